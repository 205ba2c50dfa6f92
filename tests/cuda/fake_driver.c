/* libcuda.so.1 as far as engine creation goes before it touches a device. */
#include "fake_driver.h"

static int g_version;
static int g_init_result;
static int g_devices;

void memra_fake_driver_set(int version, int init_result, int devices) {
  g_version = version;
  g_init_result = init_result;
  g_devices = devices;
}

enum { OK = 0, NO_DEVICE = 100, NOT_SUPPORTED = 801 };

int cuInit(unsigned flags) {
  (void)flags;
  return g_init_result;
}

int cuDriverGetVersion(int* version) {
  *version = g_version;
  return OK;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_THE_FAKE";
  return OK;
}

int cuDeviceGetCount(int* count) {
  *count = g_devices;
  return OK;
}

/* Nothing behind these: a test that gets here fails with CUDA_ERROR_OF_THE_FAKE. */
int cuDeviceGet(void) {
  return NOT_SUPPORTED;
}
int cuDevicePrimaryCtxRetain(void) {
  return NOT_SUPPORTED;
}
int cuDevicePrimaryCtxRelease_v2(void) {
  return NOT_SUPPORTED;
}
int cuDevicePrimaryCtxGetState(void) {
  return NOT_SUPPORTED;
}
int cuCtxPushCurrent_v2(void) {
  return NOT_SUPPORTED;
}
int cuCtxPopCurrent_v2(void) {
  return NOT_SUPPORTED;
}
int cuCtxGetId(void) {
  return NOT_SUPPORTED;
}
int cuThreadExchangeStreamCaptureMode(void) {
  return NOT_SUPPORTED;
}
int cuTensorMapEncodeTiled(void) {
  return NOT_SUPPORTED;
}
