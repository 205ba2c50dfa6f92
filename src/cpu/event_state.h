#pragma once

// What an event knows. A record is a position of a stream; recording again moves the event, and
// whoever waited for the earlier record keeps waiting for that one.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "cpu/progress.h"

namespace memra::cpu {

class EventState {
 public:
  using Clock = std::chrono::steady_clock;

  // Numbers a record that is about to be enqueued; counts from 1.
  std::uint64_t next_record() { return ++records_; }

  // The record is enqueued. Of records that race, the highest number is the latest.
  void recorded(std::uint64_t record, const Position& position) {
    const std::lock_guard lock(mutex_);
    if (record < latest_record_) return;
    latest_record_ = record;
    latest_ = position;
  }

  // The stream has come to the record.
  void passed(std::uint64_t record) {
    const Clock::time_point now = Clock::now();
    const std::lock_guard lock(mutex_);
    if (record < timed_record_) return;
    timed_record_ = record;
    time_ = now;
  }

  // Position of the latest record; always reached where there was none.
  Position latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

  enum class Timing { kNeverRecorded, kUnfinished, kKnown };
  Timing time_of_latest(Clock::time_point* time) const {
    const std::lock_guard lock(mutex_);
    if (latest_record_ == 0) return Timing::kNeverRecorded;
    if (timed_record_ < latest_record_ || !latest_.reached()) return Timing::kUnfinished;
    *time = time_;
    return Timing::kKnown;
  }

 private:
  std::atomic<std::uint64_t> records_{0};
  mutable std::mutex mutex_;
  std::uint64_t latest_record_ = 0;
  Position latest_;
  std::uint64_t timed_record_ = 0;
  Clock::time_point time_;
};

}  // namespace memra::cpu
