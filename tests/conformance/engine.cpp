#include "conformance/engine.h"

#include <memory>
#include <sstream>
#include <stdexcept>

namespace memra::test {
namespace {

std::string text_of(memra_status status) {
  return std::string(memra_status_string(status)) + ": " + memra_last_error();
}

}  // namespace

::testing::AssertionResult ok(memra_status status) {
  if (status == MEMRA_OK) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << text_of(status);
}

::testing::AssertionResult fails_with(memra_status status, memra_status expected,
                                      std::initializer_list<const char*> words) {
  if (status != expected) {
    return ::testing::AssertionFailure()
           << "expected " << memra_status_string(expected) << ", got "
           << (status == MEMRA_OK ? std::string("MEMRA_OK") : text_of(status));
  }
  const std::string text = memra_last_error();
  for (const char* word : words) {
    if (text.find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "no '" << word << "' in: " << text;
    }
  }
  return ::testing::AssertionSuccess();
}

void require(memra_status status, const char* file, int line) {
  if (status == MEMRA_OK) return;
  std::ostringstream text;
  text << file << ":" << line << ": " << text_of(status);
  throw std::runtime_error(text.str());
}

const char* backend_name(memra_backend backend) {
  return backend == MEMRA_BACKEND_CUDA ? "CUDA" : "CPU";
}

memra_engine_options options_for(memra_backend backend) {
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = backend;
  return options;
}

namespace {

memra_engine* create(const memra_engine_options& options) {
  memra_engine* engine = nullptr;
  require(memra_engine_create(&options, &engine));
  return engine;
}

}  // namespace

Engine::Engine(const memra_engine_options& options) : Engine(create(options)) {}

Engine::Engine(memra_backend backend) : Engine(options_for(backend)) {}

Engine::Engine(memra_engine* engine) : engine_(engine) {
  require(memra_engine_info(engine_, &properties_));
  require(memra_stream_create(engine_, &stream_));
}

Engine::~Engine() {
  if (stream_ != nullptr) memra_stream_destroy(engine_, stream_);
  memra_engine_destroy(engine_);
}

void Engine::synchronize() const {
  require(memra_stream_synchronize(engine_, stream_));
}

Engine* shared_engine(memra_backend backend, std::string* reason) {
  struct Slot {
    bool tried = false;
    std::unique_ptr<Engine> engine;
    std::string reason;
  };
  static Slot slots[2];
  Slot& slot = slots[backend == MEMRA_BACKEND_CUDA ? 1 : 0];
  if (!slot.tried) {
    const memra_engine_options options = options_for(backend);
    memra_engine* engine = nullptr;
    const memra_status status = memra_engine_create(&options, &engine);
    // On the CPU: a path that MEMRA_CPU_SIMD asks for, on a processor that does not run it.
    const memra_status absent =
        backend == MEMRA_BACKEND_CUDA ? MEMRA_ERROR_NO_DEVICE : MEMRA_ERROR_UNSUPPORTED;
    if (status == absent) {
      slot.reason = text_of(status);
    } else {
      require(status);
      slot.engine = std::make_unique<Engine>(engine);
    }
    slot.tried = true;
  }
  *reason = slot.reason;
  return slot.engine.get();
}

Stream::Stream(Engine& engine) : engine_(&engine) {
  require(memra_stream_create(engine.get(), &stream_));
}

Stream::~Stream() {
  memra_stream_destroy(engine_->get(), stream_);
}

void Stream::synchronize() const {
  require(memra_stream_synchronize(engine_->get(), stream_));
}

void Graph::begin(Engine& engine, memra_stream stream) {
  require(memra_graph_begin(engine.get(), stream));
}

void Graph::end(Engine& engine, memra_stream stream, memra_status status) {
  // The text of a failure inside the recording is the one worth reading.
  const std::string text = status == MEMRA_OK ? "" : text_of(status);
  const memra_status ended = memra_graph_end(engine.get(), stream, &graph_);
  if (status != MEMRA_OK) {
    memra_graph_destroy(graph_);
    graph_ = nullptr;
    throw std::runtime_error("while recording: " + text);
  }
  require(ended);
}

}  // namespace memra::test
