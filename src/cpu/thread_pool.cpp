#include "cpu/thread_pool.h"

#include "cpu/fp_mode.h"
#include "cpu/machine.h"
#include "cpu/thread_start.h"

namespace memra::cpu {
namespace {

// Some tens of microseconds: the gap between two tasks of a busy stream.
constexpr int kSpins = 1000;

}  // namespace

ThreadPool::ThreadPool(int threads)
    : threads_(threads), spins_(threads <= usable_processors() ? kSpins : 0) {}

Status ThreadPool::create(int threads, std::unique_ptr<ThreadPool>* pool) {
  pool->reset(new ThreadPool(threads));
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
  if (loop.count <= 1 || workers_.empty()) {
    take_indices(loop);
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

  std::unique_lock lock(mutex_);
  Loop** link = &open_;
  while (*link != &loop)
    link = &(*link)->following;
  *link = loop.following;
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  if (loop.helpers.load(std::memory_order_acquire) != 0) {
    // The helpers are in their last index: sleeping would often take longer than they do.
    lock.unlock();
    for (int i = 0; i < spins_ && loop.helpers.load(std::memory_order_acquire) != 0; ++i) {
      spin_pause();
    }
    lock.lock();
    left_.wait(lock, [&] { return loop.helpers.load(std::memory_order_acquire) == 0; });
  }
}

void ThreadPool::work() {
  for (;;) {
    for (int i = 0; i < spins_ && open_count_.load(std::memory_order_acquire) == 0; ++i) {
      spin_pause();
    }
    Loop* loop = nullptr;
    {
      std::unique_lock lock(mutex_);
      opened_.wait(lock, [&] {
        loop = find_open();
        return loop != nullptr || stopping_;
      });
      if (loop == nullptr) return;
      loop->helpers.fetch_add(1, std::memory_order_relaxed);
    }
    {
      const DefaultFpMode mode;
      take_indices(*loop);
    }
    bool last;
    {
      const std::lock_guard lock(mutex_);
      last = loop->helpers.fetch_sub(1, std::memory_order_release) == 1;
    }
    if (last) left_.notify_all();
  }
}

}  // namespace memra::cpu
