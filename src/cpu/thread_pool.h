#pragma once

// The threads that an engine's tasks share. A parallel loop is run by the thread that asks for it
// and by every pool thread that is free; several loops may run at once.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "cpu/processor_budget.h"
#include "status.h"

namespace memra::cpu {

class ThreadPool {
 public:
  // `threads` counts the one that asks: threads - 1 are started. May throw std::bad_alloc. The
  // budget must outlive the pool.
  static Status create(int threads, std::unique_ptr<ThreadPool>* pool,
                       ProcessorBudget& budget = ProcessorBudget::of_process());
  // No loop may be running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(index) once for every index in [0, count), in any order and on any thread, and
  // returns when all calls have. The body must not throw.
  template <class Body>
  void parallel_for(std::int64_t count, const Body& body) {
    Loop loop;
    loop.call = [](const void* context, std::int64_t index) {
      (*static_cast<const Body*>(context))(index);
    };
    loop.context = &body;
    loop.count = count;
    run(loop);
  }

 private:
  struct Loop {
    void (*call)(const void*, std::int64_t) = nullptr;
    const void* context = nullptr;
    std::int64_t count = 0;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> helpers{0};  // pool threads inside; changed under the mutex
    Loop* following = nullptr;    // in open_
  };

  ThreadPool(int threads, ProcessorBudget& budget);
  void run(Loop& loop);
  static void take_indices(Loop& loop);
  Loop* find_open() const;  // under the mutex
  // Waits for a loop that this thread may help with; null at the end of the pool.
  Loop* join_loop();
  void work();

  const int threads_;
  const bool spins_;  // not where its own threads would keep each other from computing
  ProcessorBudget& budget_;
  std::mutex mutex_;
  std::condition_variable opened_;
  std::condition_variable left_;
  Loop* open_ = nullptr;            // loops whose owners still hand out indices
  std::atomic<int> open_count_{0};  // a hint for spinning threads
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace memra::cpu
