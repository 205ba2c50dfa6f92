#include "cpu/processor_budget.h"

#include <unistd.h>

#include "cpu/machine.h"

namespace memra::cpu {

ProcessorBudget& ProcessorBudget::of_process() {
  static ProcessorBudget budget(1);
  // Threads that were computing when the process forked do not exist in the child.
  const pid_t process = getpid();
  if (budget.process_.exchange(process, std::memory_order_relaxed) != process) {
    budget.busy_.store(0, std::memory_order_relaxed);
  }
  budget.processors_.store(usable_processors(), std::memory_order_relaxed);
  return budget;
}

}  // namespace memra::cpu
