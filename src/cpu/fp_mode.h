#pragma once

// Arithmetic runs in the default floating-point mode: round to nearest even, subnormals kept.
// Threads inherit a host's flush-to-zero mode from the thread that starts them, so every task sets
// the mode and restores it afterwards.

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace memra::cpu {

class DefaultFpMode {
 public:
  DefaultFpMode() : saved_(read()) { write(kDefault); }
  ~DefaultFpMode() { write(saved_); }
  DefaultFpMode(const DefaultFpMode&) = delete;
  DefaultFpMode& operator=(const DefaultFpMode&) = delete;

 private:
#if defined(__SSE__)
  static constexpr std::uint64_t kDefault = 0x1F80;  // all exceptions masked
  static std::uint64_t read() {
    return _mm_getcsr();
  }
  static void write(std::uint64_t mode) {
    _mm_setcsr(static_cast<unsigned>(mode));
  }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kDefault = 0;
  static std::uint64_t read() {
    std::uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(std::uint64_t mode) {
    asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
  }
#else
  static constexpr std::uint64_t kDefault = 0;
  static std::uint64_t read() {
    return 0;
  }
  static void write(std::uint64_t) {}
#endif

  std::uint64_t saved_;
};

}  // namespace memra::cpu
