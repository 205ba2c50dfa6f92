#pragma once

// How far a stream has come. Work takes tickets in order, and a stream completes them in order, so
// (stream, ticket) names a point of a stream. Outlives the stream where events refer to it.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace memra::cpu {

class Progress {
 public:
  bool reached(std::uint64_t ticket) const {
    return completed_.load(std::memory_order_acquire) >= ticket;
  }

  void wait(std::uint64_t ticket) {
    if (reached(ticket)) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached(ticket); });
  }

  // By the stream's worker alone; rising.
  void publish(std::uint64_t ticket) {
    {
      const std::lock_guard lock(mutex_);
      completed_.store(ticket, std::memory_order_release);
    }
    changed_.notify_all();
  }

 private:
  std::atomic<std::uint64_t> completed_{0};  // tickets count from 1
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct Position {
  std::shared_ptr<Progress> progress;  // null: a point that is always reached
  std::uint64_t ticket = 0;

  bool reached() const { return progress == nullptr || progress->reached(ticket); }
  void wait() const {
    if (progress != nullptr) progress->wait(ticket);
  }
};

}  // namespace memra::cpu
