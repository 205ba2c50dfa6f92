#include "emulation/support.h"

#include <gtest/gtest.h>

#include <algorithm>

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

SlabMemory place_slab(const reference::Slab& slab, int64_t expert) {
  const bool apart = slab.format == reference::Format::kV1 && expert % 3 == 1;
  const size_t offset = apart ? 4 + 4 * static_cast<size_t>(expert / 3 % 3) : 0;
  SlabMemory placed{std::make_unique<Guarded<uint8_t>>(offset + slab.bytes.size()), nullptr};
  std::copy(slab.bytes.begin(), slab.bytes.end(), placed.memory->data() + offset);
  placed.slab = placed.memory->data() + offset;
  return placed;
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
