#include "cpu/thread_start.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace memra::cpu {

Status start_thread(std::thread* thread, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    *thread = std::thread(std::move(body));
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) {
    return fail(MEMRA_ERROR_OUT_OF_MEMORY) << "the system starts no more threads for this process";
  }
#if defined(__linux__)
  pthread_setname_np(thread->native_handle(), "memra");
#endif
  return MEMRA_OK;
}

}  // namespace memra::cpu
