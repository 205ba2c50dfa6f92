#pragma once

// One way to launch a kernel: with dependent launch where the device and the options allow it.
//
// Protocol of dependent launch, kept by every kernel of the library: a kernel calls
// dependency_wait() (ptx.cuh) before it reads anything that earlier work may have written, and
// dependency_release() only after that wait and before its own global writes, so that a chain of
// kernels can never overtake a write two steps back. Weights may be read before the wait only where
// `prefetch` below is true.

#include <cuda_runtime.h>

#include <utility>

#include "device.h"

namespace memra::cuda {

// Ids, tables and weights are not written by the work just before this kernel.
inline bool may_prefetch(const Device& device, const Launch& launch) {
  return device.dependent_launch && (launch.chained || launch.inputs_stable);
}

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
  bool cooperative = false;  // all blocks run together, or none
};

template <typename... Params, typename... Args>
cudaError_t enqueue_kernel(const Device& device, const Launch& launch, const Grid& grid,
                           void (*kernel)(Params...), Args&&... args) {
  cudaLaunchAttribute attributes[2]{};
  unsigned n_attributes = 0;
  if (device.dependent_launch) {
    cudaLaunchAttribute& attribute = attributes[n_attributes++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cooperative) {
    cudaLaunchAttribute& attribute = attributes[n_attributes++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(launch.stream);
  config.attrs = attributes;
  config.numAttrs = n_attributes;
  return cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
}

template <typename... Params, typename... Args>
Status launch_kernel(const Device& device, const Launch& launch, const Grid& grid,
                     void (*kernel)(Params...), Args&&... args) {
  const cudaError_t error =
      enqueue_kernel(device, launch, grid, kernel, std::forward<Args>(args)...);
  return error == cudaSuccess ? Status(MEMRA_OK) : cuda_failure(error, "cudaLaunchKernelEx");
}

// Loads a kernel now, so that its first launch may be captured, and lets it use `shared_bytes` of
// dynamic shared memory.
template <typename... Params>
Status load_kernel(void (*kernel)(Params...), size_t shared_bytes = 0) {
  cudaFuncAttributes attributes{};
  MEMRA_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
  if (shared_bytes != 0) {
    MEMRA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared_bytes)));
  }
  return MEMRA_OK;
}

}  // namespace memra::cuda
