#include "emulation/support.h"

#include <gtest/gtest.h>

#include "emulation/machine.h"

namespace memra::cuda {

// In place of cuda/error.cpp: why a launch failed is among the machine's faults.
Status cuda_failure(cudaError_t /*error*/, const char* what) {
  return fail(MEMRA_ERROR_CUDA) << what << " failed";
}

}  // namespace memra::cuda

namespace memra::emulation {

cuda::Device device(bool wgmma, int multiprocessors) {
  cuda::Device device;
  device.grouped = true;
  device.wgmma = wgmma;
  device.n_multiprocessors = multiprocessors;
  return device;
}

void expect_no_faults(const std::string& what) {
  for (const std::string& fault : machine().take_faults())
    ADD_FAILURE() << fault << " (" << what << ")";
}

memra_dtype dtype_of(reference::DType dtype) {
  switch (dtype) {
    case reference::DType::kF16:
      return MEMRA_F16;
    case reference::DType::kBF16:
      return MEMRA_BF16;
    default:
      return MEMRA_F32;
  }
}

std::string describe(bool wgmma, const Numbers& numbers) {
  std::string text = wgmma ? "wgmma" : "mma";
  for (const auto& [name, number] : numbers) {
    text += ", ";
    text += name;
    text += ' ';
    text += std::to_string(number);
  }
  return text;
}

}  // namespace memra::emulation
