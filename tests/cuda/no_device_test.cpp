// Engine creation on the machine as it is.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "memra.h"

namespace {

memra_status create(int device, memra_engine** engine) {
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = MEMRA_BACKEND_CUDA;
  options.device = device;
  return memra_engine_create(&options, engine);
}

TEST(CudaNoDevice, WithoutDriverTheTextSaysSo) {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) {
    GTEST_SKIP() << "this machine has a CUDA driver";
  }
  memra_engine* engine = reinterpret_cast<memra_engine*>(&create);  // must be overwritten
  EXPECT_EQ(create(0, &engine), MEMRA_ERROR_NO_DEVICE);
  EXPECT_EQ(engine, nullptr);
  const std::string text = memra_last_error();
  EXPECT_NE(text.find("no CUDA driver"), std::string::npos) << text;
  EXPECT_NE(text.find("libcuda.so.1"), std::string::npos) << text;
}

TEST(CudaNoDevice, OrdinalsOutOfRange) {
  memra_engine* engine = reinterpret_cast<memra_engine*>(&create);
  EXPECT_EQ(create(4096, &engine), MEMRA_ERROR_NO_DEVICE) << memra_last_error();
  EXPECT_EQ(engine, nullptr);
}

}  // namespace
