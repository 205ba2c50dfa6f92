// A thread of control with a stack of its own, switched by hand: one CPU thread runs them all, one
// at a time.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace memra::emulation {

class Fiber {
 public:
  using Entry = void (*)();

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Forgets what the fiber did; resume() will begin `entry`, which must not return.
  void restart(Entry entry);
  // Runs it until it suspends itself.
  void resume();
  // Back to resume(); inside the fiber alone.
  void suspend();

 private:
  std::byte* stack_ = nullptr;
#if defined(__x86_64__)
  void* here_ = nullptr;  // stack pointers of who is not running
  void* caller_ = nullptr;
#else
  ucontext_t here_{};
  ucontext_t caller_{};
#endif
};

}  // namespace memra::emulation
