#include "cpu/thread_pool.h"

#include <chrono>

#include "cpu/fp_mode.h"
#include "cpu/machine.h"
#include "cpu/spin.h"
#include "cpu/thread_start.h"

namespace memra::cpu {

ThreadPool::ThreadPool(int threads, ProcessorBudget& budget)
    : threads_(threads), spins_(threads <= usable_processors()), budget_(budget) {}

Status ThreadPool::create(int threads, std::unique_ptr<ThreadPool>* pool, ProcessorBudget& budget) {
  pool->reset(new ThreadPool(threads, budget));
  ThreadPool& created = **pool;
  created.workers_.reserve(static_cast<std::size_t>(threads));
  for (int i = 1; i < threads; ++i) {
    std::thread thread;
    MEMRA_TRY(start_thread(&thread, [&created] { created.work(); }));
    created.workers_.push_back(std::move(thread));
  }
  return MEMRA_OK;
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  opened_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::take_indices(Loop& loop) {
  for (;;) {
    const std::int64_t index = loop.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= loop.count) return;
    loop.call(loop.context, index);
  }
}

ThreadPool::Loop* ThreadPool::find_open() const {
  Loop* loop = open_;
  while (loop != nullptr && loop->next.load(std::memory_order_relaxed) >= loop->count) {
    loop = loop->following;
  }
  return loop;
}

void ThreadPool::run(Loop& loop) {
  if (loop.count <= 1) {
    take_indices(loop);
    return;
  }
  budget_.enter();
  if (workers_.empty()) {
    take_indices(loop);
    budget_.leave();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    loop.following = open_;
    open_ = &loop;
    open_count_.fetch_add(1, std::memory_order_release);
  }
  // One call to the system wakes all; single calls, few.
  const auto workers = static_cast<std::int64_t>(workers_.size());
  if (loop.count > workers) {
    opened_.notify_all();
  } else {
    for (std::int64_t i = 1; i < loop.count; ++i)
      opened_.notify_one();
  }

  take_indices(loop);
  budget_.leave();

  std::unique_lock lock(mutex_);
  Loop** link = &open_;
  while (*link != &loop)
    link = &(*link)->following;
  *link = loop.following;
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  if (loop.helpers.load(std::memory_order_acquire) != 0) {
    // The helpers are in their last index: sleeping would often take longer than they do.
    lock.unlock();
    const auto alone = [&] { return loop.helpers.load(std::memory_order_acquire) == 0; };
    if (spins_) spin_until(alone);
    lock.lock();
    left_.wait(lock, alone);
  }
}

ThreadPool::Loop* ThreadPool::join_loop() {
  // Processors come free without a signal, and loops may be long.
  constexpr auto kRetry = std::chrono::milliseconds(1);
  std::unique_lock lock(mutex_);
  for (;;) {
    Loop* loop = nullptr;
    opened_.wait(lock, [&] {
      loop = find_open();
      return loop != nullptr || stopping_;
    });
    if (loop == nullptr) return nullptr;
    if (budget_.try_enter(threads_)) {
      loop->helpers.fetch_add(1, std::memory_order_relaxed);
      return loop;
    }
    // By the system's clock: thread sanitizers do not know waits by the steady one.
    opened_.wait_until(lock, std::chrono::system_clock::now() + kRetry);
  }
}

void ThreadPool::work() {
  for (;;) {
    if (spins_) {
      spin_until(
          [&] { return open_count_.load(std::memory_order_acquire) != 0 || !budget_.has_spare(); });
    }
    Loop* const loop = join_loop();
    if (loop == nullptr) return;
    {
      const DefaultFpMode mode;
      take_indices(*loop);
    }
    budget_.leave();
    bool last;
    {
      const std::lock_guard lock(mutex_);
      last = loop->helpers.fetch_sub(1, std::memory_order_release) == 1;
    }
    if (last) left_.notify_all();
  }
}

}  // namespace memra::cpu
