#include <atomic>
#include <memory>

#include "check.h"
#include "entry.h"
#include "memra.h"

struct memra_event {
  std::shared_ptr<const memra::EngineState> state;
  std::unique_ptr<memra::Event> event;
  std::atomic<bool> recorded = false;
};

struct memra_graph {
  std::shared_ptr<const memra::EngineState> state;
  std::unique_ptr<memra::Graph> graph;
};

namespace memra {
namespace {

Status check_own_stream(memra_stream stream) {
  if (stream != nullptr) return MEMRA_OK;
  return invalid("stream") << " is NULL: must be a stream of its own, not the default stream";
}

// Runs body() on an event.
template <typename Body>
Status run_on_event(memra_event* event, const char* name, Body&& body) {
  if (event == nullptr) return missing_handle(name, "memra_event_create");
  return run_on(*event->state, body);
}

Status elapsed(memra_event& start, memra_event& end, float* milliseconds) {
  MEMRA_TRY(check_not_forked(*start.state));
  const Backend& start_backend = *start.state->backend;
  const Backend& end_backend = *end.state->backend;
  MEMRA_TRY(check_same_backend(start_backend, "start", end_backend, "end"));
  if (start_backend.device() != end_backend.device()) {
    return invalid("start") << " is of device " << start_backend.device() << ": end is of device "
                            << end_backend.device() << ", both must be of one";
  }
  if (!start.recorded) return invalid("start") << " was never recorded: record both events first";
  if (!end.recorded) return invalid("end") << " was never recorded: record both events first";
  MEMRA_TRY(check_out(milliseconds, "milliseconds"));
  float value = 0.0f;
  MEMRA_TRY(end.event->elapsed_since(*start.event, &value));
  *milliseconds = value;
  return MEMRA_OK;
}

}  // namespace
}  // namespace memra

using memra::EngineState;
using memra::Status;

extern "C" {

memra_status memra_stream_create(memra_engine* engine, memra_stream* stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_out(stream, "stream"));
    memra_stream made = nullptr;
    MEMRA_TRY(state.backend->stream_create(&made));
    *stream = made;
    return MEMRA_OK;
  });
}

memra_status memra_stream_destroy(memra_engine* engine, memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_own_stream(stream));
    return state.backend->stream_destroy(stream);
  });
}

memra_status memra_stream_query(memra_engine* engine, memra_stream stream) {
  return memra::run_on(
      engine, [&](const EngineState& state) { return state.backend->stream_query(stream); });
}

memra_status memra_stream_synchronize(memra_engine* engine, memra_stream stream) {
  return memra::run_on(
      engine, [&](const EngineState& state) { return state.backend->stream_synchronize(stream); });
}

memra_status memra_event_create(memra_engine* engine, memra_event** event) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_out(event, "event"));
    auto made = std::make_unique<memra_event>();
    made->state = engine->state;
    MEMRA_TRY(state.backend->event_create(&made->event));
    *event = made.release();
    return MEMRA_OK;
  });
}

void memra_event_destroy(memra_event* event) {
  memra::destroy_handle(event);
}

memra_status memra_event_record(memra_event* event, memra_stream stream) {
  return memra::run_on_event(event, "event", [&]() -> Status {
    MEMRA_TRY(event->event->record(stream));
    event->recorded = true;
    return MEMRA_OK;
  });
}

memra_status memra_event_wait(memra_engine* engine, memra_event* event, memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    if (event == nullptr) return memra::missing_handle("event", "memra_event_create");
    MEMRA_TRY(memra::check_not_forked(*event->state));
    MEMRA_TRY(memra::check_same_backend(*event->state->backend, "event", *state.backend, "engine"));
    return state.backend->stream_wait_event(stream, *event->event);
  });
}

memra_status memra_event_query(memra_event* event) {
  return memra::run_on_event(event, "event", [&] { return event->event->query(); });
}

memra_status memra_event_synchronize(memra_event* event) {
  return memra::run_on_event(event, "event", [&] { return event->event->synchronize(); });
}

memra_status memra_event_elapsed(memra_event* start, memra_event* end, float* milliseconds) {
  if (start == nullptr) return memra::missing_handle("start", "memra_event_create");
  return memra::run_on_event(end, "end",
                             [&] { return memra::elapsed(*start, *end, milliseconds); });
}

memra_status memra_graph_begin(memra_engine* engine, memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_own_stream(stream));
    return state.backend->graph_begin(stream);
  });
}

memra_status memra_graph_end(memra_engine* engine, memra_stream stream, memra_graph** graph) {
  MEMRA_TRY(memra::check_out(graph, "graph"));
  *graph = nullptr;
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_own_stream(stream));
    auto made = std::make_unique<memra_graph>();
    made->state = engine->state;
    MEMRA_TRY(state.backend->graph_end(stream, &made->graph));
    *graph = made.release();
    return MEMRA_OK;
  });
}

memra_status memra_graph_launch(memra_graph* graph, memra_stream stream) {
  if (graph == nullptr) return memra::missing_handle("graph", "memra_graph_end");
  return memra::run_on(*graph->state, [&] { return graph->graph->launch(stream); });
}

void memra_graph_destroy(memra_graph* graph) {
  memra::destroy_handle(graph);
}

}  // extern "C"
