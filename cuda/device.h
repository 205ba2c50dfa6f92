#pragma once

// What kernels' launch code needs to know of the device, and how CUDA errors become statuses.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend.h"
#include "status.h"

namespace memra::cuda {

struct Driver;

struct Device {
  const Driver* driver = nullptr;
  int ordinal = 0;
  int compute_capability = 0;  // 10 * major + minor
  int n_multiprocessors = 0;
  size_t l2_bytes = 0;
  size_t shared_bytes_per_block = 0;  // with opt-in
  bool dependent_launch = false;      // programmatic dependent launch, sm_90 and later
  bool grouped = false;               // there are kernels for the grouped products
  bool wgmma = false;                 // and they use warpgroup matrix instructions
};

constexpr bool is_v2(memra_format format) {
  return format == MEMRA_NVFP4_V2;
}

// A failure with CUDA's name for the error. Never reads or clears the runtime's last error.
Status cuda_failure(cudaError_t error, const char* what);

}  // namespace memra::cuda

#define MEMRA_CUDA_TRY(call)                                                                  \
  do {                                                                                        \
    const cudaError_t memra_error_ = (call);                                                  \
    if (memra_error_ != cudaSuccess) return ::memra::cuda::cuda_failure(memra_error_, #call); \
  } while (false)
