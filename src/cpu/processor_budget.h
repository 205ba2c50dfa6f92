#pragma once

// How many threads compute at once, over all engines of a process: pools of several engines would
// otherwise fill the machine several times over, and a loop would wait for a helper that is not
// running. Which processor a thread runs on is the host's and the system's business.

#include <sys/types.h>

#include <algorithm>
#include <atomic>

namespace memra::cpu {

class ProcessorBudget {
 public:
  explicit ProcessorBudget(int processors) : processors_(processors) {}
  ProcessorBudget(const ProcessorBudget&) = delete;
  ProcessorBudget& operator=(const ProcessorBudget&) = delete;

  // That of the process, as large as its set of processors is now. In a child of the process that
  // counted it begins anew.
  static ProcessorBudget& of_process();

  // Who asks for work does it whatever others do.
  void enter() { busy_.fetch_add(1, std::memory_order_relaxed); }
  // A helper only where a processor is left. An engine may fill `threads` of its own choice.
  bool try_enter(int threads) {
    int busy = busy_.load(std::memory_order_relaxed);
    const int most = std::max(threads, processors_.load(std::memory_order_relaxed));
    while (busy < most) {
      if (busy_.compare_exchange_weak(busy, busy + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void leave() { busy_.fetch_sub(1, std::memory_order_relaxed); }

  // Whether a thread may spin without keeping another from computing.
  bool has_spare() const {
    return busy_.load(std::memory_order_relaxed) < processors_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<int> processors_;
  std::atomic<int> busy_{0};
  std::atomic<pid_t> process_{0};
};

}  // namespace memra::cpu
