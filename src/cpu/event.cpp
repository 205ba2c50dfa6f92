#include "cpu/event.h"

#include <chrono>

namespace memra::cpu {
namespace {

Status read_time(const EventState& event, const char* name, EventState::Clock::time_point* time) {
  switch (event.time_of_latest(time)) {
    case EventState::Timing::kNeverRecorded:
      return fail(MEMRA_ERROR_INVALID_ARGUMENT)
             << name << " was never recorded: legal are events that were";
    case EventState::Timing::kUnfinished:
      return MEMRA_NOT_READY;
    case EventState::Timing::kKnown:
      break;
  }
  return MEMRA_OK;
}

}  // namespace

CpuEvent::~CpuEvent() {
  if (!core_->forked()) return;
  leak(state_);
  leak(core_);
}

Status CpuEvent::record(memra_stream stream) {
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  return target->record(state_);
}

Status CpuEvent::query() {
  return state_->latest().reached() ? MEMRA_OK : MEMRA_NOT_READY;
}

Status CpuEvent::synchronize() {
  state_->latest().wait();
  return MEMRA_OK;
}

Status CpuEvent::elapsed_since(Event& start, float* milliseconds) {
  EventState::Clock::time_point begin;
  EventState::Clock::time_point end;
  const Status begin_status =
      read_time(*static_cast<CpuEvent&>(start).state_, "the start event", &begin);
  if (begin_status != MEMRA_OK && begin_status != MEMRA_NOT_READY) return begin_status;
  MEMRA_TRY(read_time(*state_, "the end event", &end));
  if (begin_status != MEMRA_OK) return begin_status;
  *milliseconds = std::chrono::duration<float, std::milli>(end - begin).count();
  return MEMRA_OK;
}

CpuGraph::~CpuGraph() {
  if (!core_->forked()) return;
  leak(body_);
  leak(core_);
}

Status CpuGraph::launch(memra_stream stream) {
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  return target->launch(body_);
}

}  // namespace memra::cpu
