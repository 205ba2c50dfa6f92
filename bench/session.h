// The few calls of memra.h that the benchmarks need, with statuses turned into exceptions and
// lifetimes into destructors.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "memra.h"

namespace memra::bench {

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& text, memra_status status = MEMRA_ERROR_INTERNAL)
      : std::runtime_error(text), status_(status) {}
  // Of the library, where it is the library that failed.
  memra_status status() const { return status_; }

 private:
  memra_status status_;
};

// Throws Failure with the library's own text.
void check(memra_status status, const char* call);

struct EventDeleter {
  void operator()(memra_event* event) const { memra_event_destroy(event); }
};
struct GraphDeleter {
  void operator()(memra_graph* graph) const { memra_graph_destroy(graph); }
};
using Event = std::unique_ptr<memra_event, EventDeleter>;
using Graph = std::unique_ptr<memra_graph, GraphDeleter>;

struct MemoryDeleter {
  memra_engine* engine = nullptr;
  bool host = false;
  void operator()(void* ptr) const {
    host ? memra_free_host(engine, ptr) : memra_free(engine, ptr);
  }
};

// Device or pinned host memory.
class Memory {
 public:
  Memory() = default;
  Memory(memra_engine* engine, void* ptr, size_t bytes, bool host)
      : ptr_(ptr, {engine, host}), bytes_(bytes) {}

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(ptr_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, MemoryDeleter> ptr_;
  size_t bytes_ = 0;
};

// Which engine a command line asks for.
struct EngineChoice {
  memra_backend backend = MEMRA_BACKEND_AUTO;
  int device = 0;
  int threads = 0;  // of the CPU; 0: all
};

// An engine and one stream of it.
class Session {
 public:
  explicit Session(const EngineChoice& choice);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  memra_engine* engine() const { return engine_; }
  memra_stream stream() const { return stream_; }
  const memra_engine_properties& properties() const { return properties_; }
  // Asks the engine anew: an engine made later may have changed what is told of peers.
  void refresh() { check(memra_engine_info(engine_, &properties_), "memra_engine_info"); }
  bool on_cpu() const { return properties_.backend == MEMRA_BACKEND_CPU; }

  Memory device_memory(size_t bytes) const;
  Memory host_memory(size_t bytes) const;
  Event event() const;

  void copy(void* dst, const void* src, size_t bytes) const;
  void fill(const Memory& memory, int value) const;
  void synchronize() const;

  template <typename T>
  Memory upload(const std::vector<T>& values) const {
    Memory memory = device_memory(values.size() * sizeof(T));
    copy(memory.as(), values.data(), memory.bytes());
    synchronize();
    return memory;
  }
  template <typename T>
  std::vector<T> download(const Memory& memory) const {
    std::vector<T> values(memory.bytes() / sizeof(T));
    copy(values.data(), memory.as(), values.size() * sizeof(T));
    synchronize();
    return values;
  }

  // Records what `enqueue` enqueues on the session's stream.
  template <typename Enqueue>
  Graph capture(Enqueue enqueue) const {
    check(memra_graph_begin(engine_, stream_), "memra_graph_begin");
    memra_graph* graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      (void)memra_graph_end(engine_, stream_, &graph);
      memra_graph_destroy(graph);
      throw;
    }
    check(memra_graph_end(engine_, stream_, &graph), "memra_graph_end");
    return Graph(graph);
  }

 private:
  memra_engine* engine_ = nullptr;
  memra_stream stream_ = nullptr;
  memra_engine_properties properties_ = MEMRA_ENGINE_PROPERTIES_INIT;
};

}  // namespace memra::bench
