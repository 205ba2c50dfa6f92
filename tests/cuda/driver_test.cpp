// How engine creation reads the driver, against a driver that answers what it is told. It stands in
// for libcuda.so.1 in this whole program, so no real device is ever used here.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "memra.h"

namespace {

constexpr int kNoDevice = 100;     // CUDA_ERROR_NO_DEVICE
constexpr int kInitFailure = 999;  // CUDA_ERROR_UNKNOWN
constexpr int kCurrent = 99000;    // newer than any runtime
constexpr int kAncient = 11040;

using Set = void (*)(int version, int init_result, int devices);

// Loaded first, it is what dlopen("libcuda.so.1") finds afterwards: the names are equal.
Set fake_driver() {
  static void* library = dlopen(MEMRA_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? reinterpret_cast<Set>(dlsym(library, "memra_fake_driver_set"))
                            : nullptr;
}

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override {
    set_ = fake_driver();
    ASSERT_NE(set_, nullptr) << dlerror();
  }

  memra_status create(memra_backend backend, int device) {
    memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
    options.backend = backend;
    options.device = device;
    engine_ = reinterpret_cast<memra_engine*>(&options);  // must be overwritten
    return memra_engine_create(&options, &engine_);
  }

  Set set_ = nullptr;
  memra_engine* engine_ = nullptr;
};

std::string last_error() {
  return memra_last_error();
}

TEST_F(CudaDriver, OlderThanTheRuntimeIsNamedWithBothVersions) {
  set_(kAncient, 0, 1);
  EXPECT_EQ(create(MEMRA_BACKEND_CUDA, 0), MEMRA_ERROR_DRIVER_TOO_OLD);
  EXPECT_EQ(engine_, nullptr);
  EXPECT_NE(last_error().find("11.4"), std::string::npos) << last_error();
  memra_build_properties build = MEMRA_BUILD_PROPERTIES_INIT;
  ASSERT_EQ(memra_build_info(&build), MEMRA_OK);
  const std::string runtime = std::to_string(build.cuda_version / 1000) + "." +
                              std::to_string(build.cuda_version % 1000 / 10);
  EXPECT_NE(last_error().find(runtime), std::string::npos) << last_error();
}

TEST_F(CudaDriver, OlderThanTheRuntimeLeadsAutoToTheCpu) {
  set_(kAncient, 0, 1);
  ASSERT_EQ(create(MEMRA_BACKEND_AUTO, 0), MEMRA_OK) << last_error();
  memra_engine_properties properties = MEMRA_ENGINE_PROPERTIES_INIT;
  EXPECT_EQ(memra_engine_info(engine_, &properties), MEMRA_OK);
  EXPECT_EQ(properties.backend, MEMRA_BACKEND_CPU);
  EXPECT_NE(std::string(properties.fallback_reason).find("11.4"), std::string::npos)
      << properties.fallback_reason;
  memra_engine_destroy(engine_);
}

TEST_F(CudaDriver, WithoutDeviceIsNoDevice) {
  set_(kCurrent, kNoDevice, 0);
  EXPECT_EQ(create(MEMRA_BACKEND_CUDA, 0), MEMRA_ERROR_NO_DEVICE);
  EXPECT_EQ(engine_, nullptr);
}

TEST_F(CudaDriver, ThatDoesNotStartIsNoDevice) {
  set_(kCurrent, kInitFailure, 1);
  EXPECT_EQ(create(MEMRA_BACKEND_CUDA, 0), MEMRA_ERROR_NO_DEVICE);
  EXPECT_EQ(engine_, nullptr);
  EXPECT_NE(last_error().find("CUDA_ERROR_OF_THE_FAKE"), std::string::npos) << last_error();
}

TEST_F(CudaDriver, OrdinalsOutOfRangeAreNoDevice) {
  set_(kCurrent, 0, 2);
  EXPECT_EQ(create(MEMRA_BACKEND_CUDA, 2), MEMRA_ERROR_NO_DEVICE);
  EXPECT_EQ(engine_, nullptr);
  EXPECT_NE(last_error().find("found: 2"), std::string::npos) << last_error();
}

TEST_F(CudaDriver, DeviceFailuresCarryTheDriversName) {
  set_(kCurrent, 0, 1);
  EXPECT_EQ(create(MEMRA_BACKEND_CUDA, 0), MEMRA_ERROR_CUDA);
  EXPECT_EQ(engine_, nullptr);
  EXPECT_NE(last_error().find("cuDeviceGet: CUDA_ERROR_OF_THE_FAKE"), std::string::npos)
      << last_error();
}

}  // namespace
