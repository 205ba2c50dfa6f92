#include "cpu/stream.h"

#include <new>
#include <utility>

#include "cpu/fp_mode.h"
#include "cpu/machine.h"
#include "cpu/spin.h"
#include "cpu/thread_start.h"

namespace memra::cpu {
namespace {

struct RecordTask {
  std::shared_ptr<EventState> event;
  std::uint64_t record;
  void operator()(const TaskContext&) const { event->passed(record); }
};

struct WaitTask {
  Position position;
  void operator()(const TaskContext&) const { position.wait(); }
};

Status recording_failure(const char* call) {
  return fail(MEMRA_ERROR_INVALID_STATE)
         << call << ": the stream is recording a graph; end the recording first";
}

}  // namespace

Stream::Stream(ThreadPool& pool)
    : pool_(pool),
      spins_(pool.threads() < usable_processors()),
      progress_(std::make_shared<Progress>()),
      ring_(std::make_unique<std::array<Slot, kRingSlots>>()) {}

Status Stream::create(ThreadPool& pool, std::unique_ptr<Stream>* stream) {
  stream->reset(new Stream(pool));
  Stream& created = **stream;
  return start_thread(&created.worker_, [&created] { created.work(); });
}

Stream::~Stream() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_work_.notify_all();
  worker_.join();
}

bool Stream::recorded(GraphNode node) {
  const std::lock_guard lock(mutex_);
  if (recording_) nodes_.push_back(std::move(node));
  return recording_;
}

std::uint64_t Stream::push(Task task, std::uint64_t tickets) {
  std::uint64_t first;
  {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock,
                   [&] { return tail_.load(std::memory_order_relaxed) - head_ < kRingSlots; });
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    Slot& slot = (*ring_)[tail % kRingSlots];
    first = tickets_ + 1;
    tickets_ += tickets;
    slot.task = std::move(task);
    slot.first_ticket = first;
    slot.last_ticket = tickets_;
    tail_.store(tail + 1, std::memory_order_release);
  }
  has_work_.notify_one();
  return first;
}

Status Stream::enqueue(Task task) {
  // The test and the push are two steps: a call that races with begin_recording may be counted on
  // either side of it.
  if (recording() && recorded({GraphNode::Kind::kTask, task, nullptr})) return MEMRA_OK;
  push(std::move(task));
  return MEMRA_OK;
}

Status Stream::record(const std::shared_ptr<EventState>& event) {
  if (recording() && recorded({GraphNode::Kind::kRecord, {}, event})) return MEMRA_OK;
  const std::uint64_t record = event->next_record();
  const std::uint64_t ticket = push(RecordTask{event, record});
  event->recorded(record, position(ticket));
  return MEMRA_OK;
}

Status Stream::wait(const std::shared_ptr<EventState>& event) {
  if (recording() && recorded({GraphNode::Kind::kWait, {}, event})) return MEMRA_OK;
  const Position awaited = event->latest();
  if (awaited.progress != progress_ && !awaited.reached()) push(WaitTask{awaited});
  return MEMRA_OK;
}

Status Stream::launch(const std::shared_ptr<GraphBody>& body) {
  const std::lock_guard launch_lock(body->launch_mutex);
  {
    const std::lock_guard lock(mutex_);
    if (recording_) {
      nodes_.reserve(nodes_.size() + body->nodes.size());
      for (const GraphNode& node : body->nodes)
        nodes_.push_back(node);
      return MEMRA_OK;
    }
  }
  std::shared_ptr<std::vector<EventUse>> uses;
  if (body->event_nodes != 0) {
    uses = std::make_shared<std::vector<EventUse>>();
    uses->reserve(body->event_nodes);
    for (const GraphNode& node : body->nodes) {
      if (node.kind == GraphNode::Kind::kTask) continue;
      EventUse& use = uses->emplace_back();
      if (node.kind == GraphNode::Kind::kRecord) {
        use.record = node.event->next_record();
      } else if (Position awaited = node.event->latest(); awaited.progress != progress_) {
        use.awaited = std::move(awaited);
      }
    }
  }
  const std::uint64_t tickets = body->nodes.size() + 1;
  const std::uint64_t first = push(GraphLaunch{body, uses, body->last_launch}, tickets);
  body->last_launch = position(first + tickets - 1);
  std::size_t used = 0;
  for (std::size_t i = 0; i < body->nodes.size(); ++i) {
    const GraphNode& node = body->nodes[i];
    if (node.kind == GraphNode::Kind::kTask) continue;
    const EventUse& use = (*uses)[used++];
    if (use.record != 0) node.event->recorded(use.record, position(first + i));
  }
  return MEMRA_OK;
}

void GraphLaunch::operator()(const TaskContext& context) const {
  previous.wait();
  TaskContext node_context = context;
  std::size_t used = 0;
  for (GraphNode& node : body->nodes) {
    if (node.kind == GraphNode::Kind::kTask) {
      node.task.run(node_context);
    } else {
      const EventUse& use = (*event_uses)[used++];
      use.awaited.wait();
      if (use.record != 0) node.event->passed(use.record);
    }
    context.progress.publish(node_context.first_ticket++);
  }
}

Status Stream::failure(Status status, const char* text) {
  return fail(status) << text;
}

Status Stream::query() {
  const std::lock_guard lock(mutex_);
  if (recording_) return recording_failure("query");
  if (error_ != MEMRA_OK) return failure(error_, "work on the stream failed");
  return progress_->reached(tickets_) ? MEMRA_OK : MEMRA_NOT_READY;
}

Status Stream::synchronize() {
  std::uint64_t target;
  {
    const std::lock_guard lock(mutex_);
    if (recording_) return recording_failure("synchronize");
    target = tickets_;
  }
  progress_->wait(target);
  const std::lock_guard lock(mutex_);
  const Status error = std::exchange(error_, MEMRA_OK);
  return error == MEMRA_OK ? MEMRA_OK : failure(error, "work on the stream failed");
}

bool Stream::recording() const {
  const std::lock_guard lock(mutex_);
  return recording_;
}

Status Stream::begin_recording() {
  const std::lock_guard lock(mutex_);
  if (recording_) return recording_failure("graph begin");
  recording_ = true;
  return MEMRA_OK;
}

Status Stream::end_recording(std::shared_ptr<GraphBody>* body) {
  std::vector<GraphNode> nodes;
  {
    const std::lock_guard lock(mutex_);
    if (!recording_) {
      return fail(MEMRA_ERROR_INVALID_STATE) << "graph end: the stream is not recording a graph";
    }
    recording_ = false;
    nodes.swap(nodes_);
  }
  *body = std::make_shared<GraphBody>();
  for (const GraphNode& node : nodes) {
    if (node.kind != GraphNode::Kind::kTask) ++(*body)->event_nodes;
  }
  (*body)->nodes = std::move(nodes);
  return MEMRA_OK;
}

void Stream::run(Slot& slot) {
  const DefaultFpMode mode;
  Status error = MEMRA_OK;
  try {
    slot.task.run(TaskContext{pool_, *progress_, slot.first_ticket});
  } catch (const std::bad_alloc&) {
    error = MEMRA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    error = MEMRA_ERROR_INTERNAL;
  }
  slot.task.reset();
  if (error != MEMRA_OK) {
    const std::lock_guard lock(mutex_);
    if (error_ == MEMRA_OK) error_ = error;
  }
}

void Stream::work() {
  for (;;) {
    Slot* slot;
    std::uint64_t last_ticket;
    {
      std::unique_lock lock(mutex_);
      if (spins_ && tail_.load(std::memory_order_relaxed) == head_ && !stopping_) {
        const std::uint64_t head = head_;
        lock.unlock();
        spin_until([&] { return tail_.load(std::memory_order_acquire) != head; });
        lock.lock();
      }
      has_work_.wait(lock,
                     [&] { return tail_.load(std::memory_order_relaxed) != head_ || stopping_; });
      if (tail_.load(std::memory_order_relaxed) == head_) return;
      slot = &(*ring_)[head_ % kRingSlots];
      last_ticket = slot->last_ticket;
    }
    run(*slot);
    {
      const std::lock_guard lock(mutex_);
      ++head_;
    }
    has_room_.notify_one();
    progress_->publish(last_ticket);
  }
}

}  // namespace memra::cpu
