#pragma once

// An in-order queue of tasks with a worker of its own. The queue is a fixed ring: who enqueues on a
// full one waits for room.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/event_state.h"
#include "cpu/graph_body.h"
#include "cpu/progress.h"
#include "cpu/task.h"
#include "cpu/thread_pool.h"
#include "status.h"

namespace memra::cpu {

class Stream {
 public:
  static constexpr std::size_t kRingSlots = 512;

  // Starts the worker. May throw std::bad_alloc. The pool must outlive the stream.
  static Status create(ThreadPool& pool, std::unique_ptr<Stream>* stream);
  // Runs what is enqueued, then ends the worker. A recording that is under way is dropped.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Any thread. While the stream records, work becomes a node of the recording.
  Status enqueue(Task task);
  Status record(const std::shared_ptr<EventState>& event);
  Status wait(const std::shared_ptr<EventState>& event);
  Status launch(const std::shared_ptr<GraphBody>& body);

  Status query();
  Status synchronize();

  bool recording() const;
  Status begin_recording();
  Status end_recording(std::shared_ptr<GraphBody>* body);

 private:
  struct Slot {
    Task task;
    std::uint64_t first_ticket = 0;
    std::uint64_t last_ticket = 0;
  };

  explicit Stream(ThreadPool& pool);
  // Makes the node part of a recording, if one is under way.
  bool recorded(GraphNode node);
  // Returns the first of the tickets taken.
  std::uint64_t push(Task task, std::uint64_t tickets = 1);
  Position position(std::uint64_t ticket) const { return {progress_, ticket}; }
  void work();
  void run(Slot& slot);
  Status failure(Status status, const char* text);

  ThreadPool& pool_;
  const bool spins_;
  const std::shared_ptr<Progress> progress_;
  const std::unique_ptr<std::array<Slot, kRingSlots>> ring_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable has_work_;
  std::condition_variable has_room_;
  std::uint64_t head_ = 0;              // slots taken by the worker since the begin
  std::atomic<std::uint64_t> tail_{0};  // slots filled
  std::uint64_t tickets_ = 0;           // given out
  bool stopping_ = false;
  bool recording_ = false;
  std::vector<GraphNode> nodes_;
  Status error_ = MEMRA_OK;  // of the first task that failed, until reported

  std::thread worker_;
};

}  // namespace memra::cpu
