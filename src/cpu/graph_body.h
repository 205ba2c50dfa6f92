#pragma once

// A recorded list of work.

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cpu/event_state.h"
#include "cpu/progress.h"
#include "cpu/task.h"

namespace memra::cpu {

struct GraphNode {
  enum class Kind { kTask, kRecord, kWait };
  Kind kind = Kind::kTask;
  Task task;                          // kTask
  std::shared_ptr<EventState> event;  // kRecord, kWait
};

// Shared by the graph and its launches.
struct GraphBody {
  std::vector<GraphNode> nodes;
  std::size_t event_nodes = 0;
  std::mutex launch_mutex;  // held while a launch is enqueued
  Position last_launch;     // the next one waits for it: launches never overlap
};

// An event node of one launch. The point that a wait waits for, and the number of a record, are
// fixed when the launch is enqueued, as for plain calls: only work enqueued before can be waited
// for, so streams cannot wait for each other in a ring.
struct EventUse {
  Position awaited;
  std::uint64_t record = 0;
};

// The task of one launch. Each node has a ticket, and one more ends the launch.
struct GraphLaunch {
  std::shared_ptr<GraphBody> body;
  std::shared_ptr<const std::vector<EventUse>> event_uses;  // null without event nodes
  Position previous;

  void operator()(const TaskContext& context) const;
};

}  // namespace memra::cpu
