#include "session.h"

namespace memra::bench {

void check(memra_status status, const char* call) {
  if (status == MEMRA_OK) return;
  throw Failure(std::string(call) + ": " + memra_status_string(status) + ": " + memra_last_error(),
                status);
}

Session::Session(const EngineChoice& choice) {
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = choice.backend;
  options.device = choice.device;
  options.cpu_threads = choice.threads;
  check(memra_engine_create(&options, &engine_), "memra_engine_create");
  try {
    refresh();
    check(memra_stream_create(engine_, &stream_), "memra_stream_create");
  } catch (...) {
    memra_engine_destroy(engine_);
    throw;
  }
}

Session::~Session() {
  (void)memra_stream_destroy(engine_, stream_);
  memra_engine_destroy(engine_);
}

Memory Session::device_memory(size_t bytes) const {
  void* ptr = nullptr;
  check(memra_alloc(engine_, bytes, &ptr), "memra_alloc");
  return {engine_, ptr, bytes, false};
}

Memory Session::host_memory(size_t bytes) const {
  void* ptr = nullptr;
  check(memra_alloc_host(engine_, bytes, &ptr), "memra_alloc_host");
  return {engine_, ptr, bytes, true};
}

Event Session::event() const {
  memra_event* event = nullptr;
  check(memra_event_create(engine_, &event), "memra_event_create");
  return Event(event);
}

void Session::copy(void* dst, const void* src, size_t bytes) const {
  check(memra_memcpy(engine_, dst, src, bytes, stream_), "memra_memcpy");
}

void Session::fill(const Memory& memory, int value) const {
  check(memra_memset(engine_, memory.as(), value, memory.bytes(), stream_), "memra_memset");
}

void Session::synchronize() const {
  check(memra_stream_synchronize(engine_, stream_), "memra_stream_synchronize");
}

}  // namespace memra::bench
