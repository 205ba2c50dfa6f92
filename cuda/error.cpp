#include <cuda_runtime_api.h>

#include "device.h"

namespace memra::cuda {
namespace {

Status status_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return MEMRA_ERROR_OUT_OF_MEMORY;
    case cudaErrorNotReady:
      return MEMRA_NOT_READY;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorStubLibrary:
      return MEMRA_ERROR_NO_DEVICE;
    case cudaErrorInsufficientDriver:
      return MEMRA_ERROR_DRIVER_TOO_OLD;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
      return MEMRA_ERROR_NO_KERNEL_IMAGE;
    case cudaErrorNotSupported:
      return MEMRA_ERROR_UNSUPPORTED;
    case cudaErrorIllegalState:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
      return MEMRA_ERROR_INVALID_STATE;
    default:
      return MEMRA_ERROR_CUDA;
  }
}

}  // namespace

Status cuda_failure(cudaError_t error, const char* what) {
  return fail(status_of(error)) << what << ": " << cudaGetErrorName(error) << " ("
                                << cudaGetErrorString(error) << ")";
}

}  // namespace memra::cuda
