#pragma once

// The CUDA driver, found at run time: the library loads on machines that have none.

#include <cuda.h>

#include "status.h"

namespace memra::cuda {

struct Driver {
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDriverGetVersion) get_version = nullptr;
  decltype(&::cuGetErrorName) get_error_name = nullptr;
  decltype(&::cuDeviceGetCount) device_get_count = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) primary_retain = nullptr;
  decltype(&::cuDevicePrimaryCtxRelease) primary_release = nullptr;
  decltype(&::cuDevicePrimaryCtxGetState) primary_get_state = nullptr;
  decltype(&::cuCtxPushCurrent) push_current = nullptr;
  decltype(&::cuCtxPopCurrent) pop_current = nullptr;
  decltype(&::cuCtxGetId) get_context_id = nullptr;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode = nullptr;
  decltype(&::cuTensorMapEncodeTiled) encode_tensor_map = nullptr;

  int version = 0;
};

// The loaded and started driver, good for the life of the process. Errors: NO_DEVICE, and
// DRIVER_TOO_OLD where its major version is below the runtime's (CUDA promises compatibility within
// one major version).
Status load_driver(const Driver** driver);

// A failure with CUDA's name for the error.
Status driver_failure(const Driver& driver, CUresult result, const char* what);

}  // namespace memra::cuda
