// Engines as tests use them, and owners of what an engine hands out. Failures of preparation throw,
// which GoogleTest reports as a failure of the test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "memra.h"

namespace memra::test {

// EXPECT_TRUE(ok(memra_...)) prints the status and the library's text.
::testing::AssertionResult ok(memra_status status);

// A failure with that status whose text holds every one of `words`.
::testing::AssertionResult fails_with(memra_status status, memra_status expected,
                                      std::initializer_list<const char*> words = {});

// Throws unless the status is MEMRA_OK. The place is the caller's; clang-tidy's library has no
// std::source_location.
void require(memra_status status, const char* file = __builtin_FILE(), int line = __builtin_LINE());

const char* backend_name(memra_backend backend);

// Guard bands around buffers; kNone leaves the ends of an allocation to a memory checker.
enum class Guards { kBands, kNone };

// Whether the known operation of the fixtures gave its answer before any test.
enum class Health { kUnknown, kGood, kBad };

class Engine {
 public:
  explicit Engine(const memra_engine_options& options);
  explicit Engine(memra_backend backend);
  explicit Engine(memra_engine* engine);  // takes it over
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  memra_engine* get() const { return engine_; }
  memra_backend backend() const { return properties_.backend; }
  bool is_cuda() const { return backend() == MEMRA_BACKEND_CUDA; }
  const memra_engine_properties& properties() const { return properties_; }

  // A stream for transfers and single calls.
  memra_stream stream() const { return stream_; }
  void synchronize() const;

  Guards guards() const { return guards_; }
  void set_guards(Guards guards) { guards_ = guards; }
  Health health() const { return health_; }
  void set_health(Health health) { health_ = health; }

 private:
  memra_engine* engine_ = nullptr;
  memra_stream stream_ = nullptr;
  memra_engine_properties properties_ = MEMRA_ENGINE_PROPERTIES_INIT;
  Guards guards_ = Guards::kBands;
  Health health_ = Health::kUnknown;
};

memra_engine_options options_for(memra_backend backend);

// The one engine of a backend in this process. NULL, with the reason, where there is no such
// device, or not the CPU path that was asked for; throws on any other failure.
Engine* shared_engine(memra_backend backend, std::string* reason);

class Stream {
 public:
  explicit Stream(Engine& engine);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  memra_stream get() const { return stream_; }
  void synchronize() const;

 private:
  Engine* engine_;
  memra_stream stream_ = nullptr;
};

// What `enqueue` puts on the stream, recorded. `enqueue` returns a status.
class Graph {
 public:
  template <typename Enqueue>
  Graph(Engine& engine, memra_stream stream, Enqueue&& enqueue) {
    begin(engine, stream);
    const memra_status status = enqueue();
    end(engine, stream, status);
  }
  ~Graph() { memra_graph_destroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(memra_stream stream) const { require(memra_graph_launch(graph_, stream)); }

 private:
  static void begin(Engine& engine, memra_stream stream);
  void end(Engine& engine, memra_stream stream, memra_status status);

  memra_graph* graph_ = nullptr;
};

}  // namespace memra::test
