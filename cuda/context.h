#pragma once

// The device's primary context, and the guards that every entry works under.

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "driver.h"

namespace memra::cuda {

// A hold on the primary context. Events and graphs share it: they may outlive their engine.
class Context {
 public:
  static Status create(const Driver& driver, int ordinal, std::shared_ptr<Context>* context);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  CUcontext handle() const { return handle_; }

  // False in a forked child, after a device reset, and when the driver has shut down at exit: what
  // was made in the context is gone then, and its handles must not be given to CUDA.
  bool intact() const;

 private:
  Context(const Driver& driver, CUdevice device, CUcontext handle);

  const Driver& driver_;
  CUdevice device_;
  CUcontext handle_;
  unsigned long long id_ = 0;  // tells a reset context from the one made after it
  pid_t process_;
};

// Makes the context current, and puts back what was current before.
class ContextGuard {
 public:
  explicit ContextGuard(const Context& context)
      : driver_(context.driver()), result_(driver_.push_current(context.handle())) {}
  ~ContextGuard() {
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) driver_.pop_current(&popped);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

  bool ok() const { return result_ == CUDA_SUCCESS; }
  Status status() const {
    return ok() ? MEMRA_OK : driver_failure(driver_, result_, "cuCtxPushCurrent");
  }

 private:
  const Driver& driver_;
  CUresult result_;
};

// Lets this thread allocate, load and wait while a stream elsewhere is captured, without breaking
// that capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    exchanged_ = driver_.exchange_capture_mode(&mode_) == CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (exchanged_) driver_.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged_ = false;
};

}  // namespace memra::cuda
