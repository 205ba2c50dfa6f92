#pragma once

#include <functional>
#include <thread>

#include "status.h"

namespace memra::cpu {

// Starts a thread that receives no signals: handlers are the host's business, in the host's
// threads. Failure to start one is OUT_OF_MEMORY.
Status start_thread(std::thread* thread, std::function<void()> body);

// One turn of a spin loop.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace memra::cpu
