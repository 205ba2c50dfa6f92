// Version, status names, error texts.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "memra.h"

namespace {

TEST(ApiStatus, EveryStatusHasItsName) {
  EXPECT_STREQ(memra_status_string(MEMRA_OK), "MEMRA_OK");
  EXPECT_STREQ(memra_status_string(MEMRA_NOT_READY), "MEMRA_NOT_READY");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_INVALID_ARGUMENT), "MEMRA_ERROR_INVALID_ARGUMENT");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_UNSUPPORTED), "MEMRA_ERROR_UNSUPPORTED");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_OUT_OF_MEMORY), "MEMRA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_WORKSPACE_TOO_SMALL),
               "MEMRA_ERROR_WORKSPACE_TOO_SMALL");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_NO_DEVICE), "MEMRA_ERROR_NO_DEVICE");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_DRIVER_TOO_OLD), "MEMRA_ERROR_DRIVER_TOO_OLD");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_NO_KERNEL_IMAGE), "MEMRA_ERROR_NO_KERNEL_IMAGE");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_CUDA), "MEMRA_ERROR_CUDA");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_FORKED), "MEMRA_ERROR_FORKED");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_INVALID_STATE), "MEMRA_ERROR_INVALID_STATE");
  EXPECT_STREQ(memra_status_string(MEMRA_ERROR_INTERNAL), "MEMRA_ERROR_INTERNAL");
}

TEST(ApiStatus, OtherValuesHaveAName) {
  for (const memra_status status : {-1, 13, 1000, INT32_MAX, INT32_MIN}) {
    EXPECT_STREQ(memra_status_string(status), "unknown status") << status;
  }
}

TEST(ApiStatus, VersionIsTheHeaders) {
  EXPECT_EQ(memra_version(), static_cast<uint32_t>(MEMRA_VERSION));
  memra_build_properties build = MEMRA_BUILD_PROPERTIES_INIT;
  ASSERT_EQ(memra_build_info(&build), MEMRA_OK);
  const std::string version = std::to_string(MEMRA_VERSION_MAJOR) + "." +
                              std::to_string(MEMRA_VERSION_MINOR) + "." +
                              std::to_string(MEMRA_VERSION_PATCH);
  EXPECT_EQ(build.version, version);
  EXPECT_NE(std::string(build.simd), "");
  EXPECT_NE(std::string(build.compiler), "");
  if (build.with_cuda == 0) {
    EXPECT_EQ(build.cuda_version, 0);
    EXPECT_STREQ(build.cuda_archs, "");
  } else {
    EXPECT_GE(build.cuda_version, 12040);
    EXPECT_NE(std::string(build.cuda_archs), "");
  }
}

TEST(ApiStatus, ErrorTextBelongsToTheThread) {
  ASSERT_EQ(memra_build_info(nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  const std::string here = memra_last_error();
  EXPECT_NE(here.find("properties"), std::string::npos) << here;
  std::thread([] {
    EXPECT_STREQ(memra_last_error(), "");
    EXPECT_EQ(memra_bank_bytes(3, 8, 64, 1, nullptr, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(memra_last_error()).find("format is 3"), std::string::npos);
  }).join();
  EXPECT_EQ(memra_last_error(), here);
}

TEST(ApiStatus, SuccessKeepsTheText) {
  ASSERT_EQ(memra_build_info(nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  const std::string text = memra_last_error();
  memra_build_properties build = MEMRA_BUILD_PROPERTIES_INIT;
  ASSERT_EQ(memra_build_info(&build), MEMRA_OK);
  EXPECT_EQ(memra_last_error(), text);
}

}  // namespace
