// In place of cuda/error.cpp: why a launch failed is among the machine's faults.
#include "device.h"

namespace memra::cuda {

Status cuda_failure(cudaError_t /*error*/, const char* what) {
  return fail(MEMRA_ERROR_INTERNAL) << what << " failed";
}

}  // namespace memra::cuda
