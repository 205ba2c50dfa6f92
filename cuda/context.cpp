#include "context.h"

#include <unistd.h>

#include <new>

namespace memra::cuda {

Context::Context(const Driver& driver, CUdevice device, CUcontext handle)
    : driver_(driver), device_(device), handle_(handle), process_(getpid()) {}

Status Context::create(const Driver& driver, int ordinal, std::shared_ptr<Context>* context) {
  int n_devices = 0;
  if (const CUresult result = driver.device_get_count(&n_devices); result != CUDA_SUCCESS) {
    return driver_failure(driver, result, "cuDeviceGetCount");
  }
  if (ordinal < 0 || ordinal >= n_devices) {
    return fail(MEMRA_ERROR_NO_DEVICE)
           << "device is " << ordinal << ": CUDA devices found: " << n_devices
           << ", numbered from 0";
  }
  CUdevice device = 0;
  if (const CUresult result = driver.device_get(&device, ordinal); result != CUDA_SUCCESS) {
    return driver_failure(driver, result, "cuDeviceGet");
  }
  CUcontext handle = nullptr;
  if (const CUresult result = driver.primary_retain(&handle, device); result != CUDA_SUCCESS) {
    return driver_failure(driver, result, "cuDevicePrimaryCtxRetain");
  }
  auto* made = new (std::nothrow) Context(driver, device, handle);
  if (made == nullptr) {
    driver.primary_release(device);
    throw std::bad_alloc();
  }
  context->reset(made);
  if (const CUresult result = driver.get_context_id(handle, &made->id_); result != CUDA_SUCCESS) {
    context->reset();
    return driver_failure(driver, result, "cuCtxGetId");
  }
  return MEMRA_OK;
}

Context::~Context() {
  // A reset leaves the hold in place, so it is given back then too; in a child it is the parent's.
  if (getpid() == process_) driver_.primary_release(device_);
}

bool Context::intact() const {
  if (getpid() != process_) return false;
  unsigned flags = 0;
  int active = 0;
  if (driver_.primary_get_state(device_, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return false;
  }
  unsigned long long id = 0;
  return driver_.get_context_id(handle_, &id) == CUDA_SUCCESS && id == id_;
}

}  // namespace memra::cuda
