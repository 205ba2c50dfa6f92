/* Control of the driver that driver_test.cpp puts in the place of libcuda.so.1. */
#ifndef MEMRA_TESTS_CUDA_FAKE_DRIVER_H
#define MEMRA_TESTS_CUDA_FAKE_DRIVER_H

#define FAKE_EXPORT __attribute__((visibility("default")))

/* version as cuDriverGetVersion gives it; init_result is what cuInit returns. */
FAKE_EXPORT void memra_fake_driver_set(int version, int init_result, int devices);

FAKE_EXPORT int cuInit(unsigned flags);
FAKE_EXPORT int cuDriverGetVersion(int* version);
FAKE_EXPORT int cuGetErrorName(int error, const char** name);
FAKE_EXPORT int cuDeviceGetCount(int* count);
FAKE_EXPORT int cuDeviceGet(void);
FAKE_EXPORT int cuDevicePrimaryCtxRetain(void);
FAKE_EXPORT int cuDevicePrimaryCtxRelease_v2(void);
FAKE_EXPORT int cuDevicePrimaryCtxGetState(void);
FAKE_EXPORT int cuCtxPushCurrent_v2(void);
FAKE_EXPORT int cuCtxPopCurrent_v2(void);
FAKE_EXPORT int cuCtxGetId(void);
FAKE_EXPORT int cuThreadExchangeStreamCaptureMode(void);
FAKE_EXPORT int cuTensorMapEncodeTiled(void);

#endif
