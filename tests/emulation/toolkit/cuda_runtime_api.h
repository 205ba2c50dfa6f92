// What emulated files need of the CUDA toolkit's header of this name.
#pragma once

#include <cstddef>

enum cudaError_t { cudaSuccess = 0, cudaErrorLaunchFailure = 719 };

using cudaStream_t = struct CUstream_st*;

struct cudaFuncAttributes {
  int maxThreadsPerBlock;
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
