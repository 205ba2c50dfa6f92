#include "driver.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <mutex>

namespace memra::cuda {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Names carry the suffix of the version that the macros of cuda.h choose.
const char* find_missing(void* library, Driver& driver) {
  if (!find(library, "cuInit", &driver.init)) return "cuInit";
  if (!find(library, "cuDriverGetVersion", &driver.get_version)) return "cuDriverGetVersion";
  if (!find(library, "cuGetErrorName", &driver.get_error_name)) return "cuGetErrorName";
  return nullptr;
}

const char* find_missing_of_current_drivers(void* library, Driver& driver) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto* function) {
    if (!find(library, name, function)) missing = name;
  };
  need("cuDeviceGetCount", &driver.device_get_count);
  need("cuDeviceGet", &driver.device_get);
  need("cuDevicePrimaryCtxRetain", &driver.primary_retain);
  need("cuDevicePrimaryCtxRelease_v2", &driver.primary_release);
  need("cuDevicePrimaryCtxGetState", &driver.primary_get_state);
  need("cuCtxPushCurrent_v2", &driver.push_current);
  need("cuCtxPopCurrent_v2", &driver.pop_current);
  need("cuCtxGetId", &driver.get_context_id);
  need("cuThreadExchangeStreamCaptureMode", &driver.exchange_capture_mode);
  need("cuTensorMapEncodeTiled", &driver.encode_tensor_map);
  return missing;
}

Status start(Driver& driver) {
  // Never closed: the CUDA runtime holds it as well.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();  // NOLINT(concurrency-mt-unsafe): one a thread in glibc
    return fail(MEMRA_ERROR_NO_DEVICE)
           << "no CUDA driver: " << (reason != nullptr ? reason : "libcuda.so.1 does not load");
  }
  if (const char* missing = find_missing(library, driver)) {
    return fail(MEMRA_ERROR_NO_DEVICE) << "libcuda.so.1 is no CUDA driver: it has no " << missing;
  }
  if (const CUresult result = driver.get_version(&driver.version); result != CUDA_SUCCESS) {
    return fail(MEMRA_ERROR_NO_DEVICE)
           << "the CUDA driver does not tell its version: error " << static_cast<int>(result);
  }
  if (driver.version / 1000 < CUDART_VERSION / 1000) {
    return fail(MEMRA_ERROR_DRIVER_TOO_OLD)
           << "the driver supports CUDA " << driver.version / 1000 << "."
           << driver.version % 1000 / 10 << ", the CUDA runtime inside the library is "
           << CUDART_VERSION / 1000 << "." << CUDART_VERSION % 1000 / 10
           << ": install a driver for CUDA " << CUDART_VERSION / 1000 << ".0 or later";
  }
  if (const char* missing = find_missing_of_current_drivers(library, driver)) {
    return fail(MEMRA_ERROR_NO_DEVICE) << "the CUDA driver has no " << missing;
  }
  if (const CUresult result = driver.init(0); result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_NO_DEVICE) {
      return fail(MEMRA_ERROR_NO_DEVICE) << "the CUDA driver finds no device";
    }
    const char* name = nullptr;
    driver.get_error_name(result, &name);
    return fail(MEMRA_ERROR_NO_DEVICE) << "the CUDA driver does not start: cuInit: "
                                       << (name != nullptr ? name : "unknown error");
  }
  return MEMRA_OK;
}

}  // namespace

Status load_driver(const Driver** driver) {
  // A failure is not kept: a driver may be installed while the process runs.
  static std::mutex mutex;
  static Driver loaded;
  static bool is_loaded = false;
  const std::lock_guard lock(mutex);
  if (!is_loaded) {
    MEMRA_TRY(start(loaded));
    is_loaded = true;
  }
  *driver = &loaded;
  return MEMRA_OK;
}

Status driver_failure(const Driver& driver, CUresult result, const char* what) {
  const char* name = nullptr;
  driver.get_error_name(result, &name);
  const Status status =
      result == CUDA_ERROR_OUT_OF_MEMORY ? MEMRA_ERROR_OUT_OF_MEMORY : MEMRA_ERROR_CUDA;
  return fail(status) << what << ": " << (name != nullptr ? name : "unknown error");
}

}  // namespace memra::cuda
