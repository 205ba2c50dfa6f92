#include <cuda_runtime_api.h>

#include "device.h"

namespace memra::cuda {
namespace {

struct Meaning {
  cudaError_t error;
  Status status;
};

// What is not listed is MEMRA_ERROR_CUDA.
constexpr Meaning kMeanings[] = {
    {cudaErrorNotReady, MEMRA_NOT_READY},
    {cudaErrorMemoryAllocation, MEMRA_ERROR_OUT_OF_MEMORY},
    {cudaErrorNotSupported, MEMRA_ERROR_UNSUPPORTED},
    {cudaErrorNoDevice, MEMRA_ERROR_NO_DEVICE},
    {cudaErrorInvalidDevice, MEMRA_ERROR_NO_DEVICE},
    {cudaErrorStubLibrary, MEMRA_ERROR_NO_DEVICE},
    {cudaErrorInsufficientDriver, MEMRA_ERROR_DRIVER_TOO_OLD},
    {cudaErrorNoKernelImageForDevice, MEMRA_ERROR_NO_KERNEL_IMAGE},
    {cudaErrorInvalidDeviceFunction, MEMRA_ERROR_NO_KERNEL_IMAGE},
    {cudaErrorInvalidKernelImage, MEMRA_ERROR_NO_KERNEL_IMAGE},
    {cudaErrorInvalidPtx, MEMRA_ERROR_NO_KERNEL_IMAGE},
    {cudaErrorUnsupportedPtxVersion, MEMRA_ERROR_NO_KERNEL_IMAGE},
    {cudaErrorJitCompilerNotFound, MEMRA_ERROR_NO_KERNEL_IMAGE},
    {cudaErrorJitCompilationDisabled, MEMRA_ERROR_NO_KERNEL_IMAGE},
    {cudaErrorIllegalState, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorCapturedEvent, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureUnsupported, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureInvalidated, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureMerge, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureUnmatched, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureUnjoined, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureIsolation, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureImplicit, MEMRA_ERROR_INVALID_STATE},
    {cudaErrorStreamCaptureWrongThread, MEMRA_ERROR_INVALID_STATE},
};

Status status_of(cudaError_t error) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.error == error) return meaning.status;
  }
  return MEMRA_ERROR_CUDA;
}

}  // namespace

Status cuda_failure(cudaError_t error, const char* what) {
  return fail(status_of(error)) << what << ": " << cudaGetErrorName(error) << " ("
                                << cudaGetErrorString(error) << ")";
}

}  // namespace memra::cuda
