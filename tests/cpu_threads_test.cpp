// Pools of several engines in one process, and the pages of an engine's memory.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "conformance/engine.h"
#include "cpu/machine.h"
#include "cpu/processor_budget.h"
#include "cpu/thread_pool.h"

namespace memra::cpu {
namespace {

using std::chrono::milliseconds;

// The threads that run the bodies of a loop.
class Runners {
 public:
  void note() {
    const std::lock_guard lock(mutex_);
    ids_.insert(std::this_thread::get_id());
  }
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return ids_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::thread::id> ids_;
};

// A pool with two threads in a loop that ends when release() is called.
class BusyPool {
 public:
  explicit BusyPool(ProcessorBudget& budget) {
    EXPECT_EQ(ThreadPool::create(2, &pool_, budget), MEMRA_OK);
    owner_ = std::thread([this] {
      pool_->parallel_for(2, [this](std::int64_t) {
        ++arrived_;
        while (!released_)
          std::this_thread::sleep_for(milliseconds(1));
      });
    });
    while (arrived_ < 2)
      std::this_thread::yield();
  }
  ~BusyPool() {
    release();
    owner_.join();
  }
  BusyPool(const BusyPool&) = delete;
  BusyPool& operator=(const BusyPool&) = delete;

  void release() { released_ = true; }

 private:
  std::unique_ptr<ThreadPool> pool_;
  std::atomic<int> arrived_{0};
  std::atomic<bool> released_{false};
  std::thread owner_;
};

TEST(CpuThreads, APoolLeavesBusyProcessorsToOthers) {
  ProcessorBudget budget(2);
  std::unique_ptr<ThreadPool> pool;
  ASSERT_EQ(ThreadPool::create(2, &pool, budget), MEMRA_OK);
  const BusyPool other(budget);
  Runners runners;
  pool->parallel_for(40, [&](std::int64_t) {
    runners.note();
    std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_EQ(runners.count(), 1u);
}

TEST(CpuThreads, HelpersComeWhenAProcessorIsFree) {
  ProcessorBudget budget(2);
  std::unique_ptr<ThreadPool> pool;
  ASSERT_EQ(ThreadPool::create(2, &pool, budget), MEMRA_OK);
  BusyPool other(budget);
  Runners runners;
  pool->parallel_for(10000, [&](std::int64_t) {
    other.release();
    runners.note();
    if (runners.count() == 1) std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_EQ(runners.count(), 2u);
}

TEST(CpuThreads, AnEngineMayAskForMoreThreadsThanProcessors) {
  ProcessorBudget budget(1);
  std::unique_ptr<ThreadPool> pool;
  ASSERT_EQ(ThreadPool::create(3, &pool, budget), MEMRA_OK);
  std::atomic<int> arrived{0};
  pool->parallel_for(3, [&](std::int64_t) {
    ++arrived;
    while (arrived < 3)
      std::this_thread::yield();
  });
  EXPECT_TRUE(budget.has_spare()) << "all have left";
}

TEST(CpuThreads, AForkedChildCountsAnew) {
  ProcessorBudget& budget = ProcessorBudget::of_process();
  const int processors = usable_processors();
  for (int i = 0; i < processors; ++i)
    budget.enter();
  EXPECT_FALSE(budget.has_spare());
  EXPECT_FALSE(ProcessorBudget::of_process().has_spare()) << "the same process";
  const pid_t child = fork();
  if (child == 0) _exit(ProcessorBudget::of_process().has_spare() ? 42 : 1);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42);
  for (int i = 0; i < processors; ++i)
    budget.leave();
}

#if defined(__linux__)
// The flags that the system keeps for the pages at an address.
std::string page_flags(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= place && place < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line.substr(8) + " ";
    }
  }
  return "";
}

TEST(CpuThreads, LargeBuffersAskForLargePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good()) {
    GTEST_SKIP() << "this system has no transparent huge pages";
  }
  const test::Engine engine(MEMRA_BACKEND_CPU);
  constexpr std::uint64_t kBytes = 32 << 20;
  for (const auto& allocate : {memra_alloc, memra_alloc_host}) {
    void* buffer = nullptr;
    ASSERT_TRUE(test::ok(allocate(engine.get(), kBytes, &buffer)));
    for (const std::uint64_t place : {std::uint64_t{0}, kBytes / 2, kBytes - 1}) {
      const std::string flags = page_flags(static_cast<std::uint8_t*>(buffer) + place);
      EXPECT_NE(flags.find(" hg "), std::string::npos) << place << ":" << flags;
    }
    EXPECT_TRUE(test::ok(memra_free(engine.get(), buffer)));
  }
}
#endif

}  // namespace
}  // namespace memra::cpu
