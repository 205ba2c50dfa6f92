// Tools of the CPU backend's tests: work that waits for the test, and engines of a given width.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "cpu/core.h"
#include "cpu/event.h"
#include "cpu/stream.h"

namespace memra::cpu::test {

// A door that work waits at. Opened at the latest by its destructor.
class Gate {
 public:
  Gate() : state_(std::make_shared<State>()) {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    const std::lock_guard lock(state_->mutex);
    state_->is_open = true;
    state_->changed.notify_all();
  }

  // Waits until the gate is open.
  Task task() const {
    return [state = state_](const TaskContext&) {
      std::unique_lock lock(state->mutex);
      state->arrived = true;
      state->changed.notify_all();
      state->changed.wait(lock, [&] { return state->is_open; });
    };
  }

  // Returns when a task stands at the gate.
  void wait_for_arrival() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->arrived; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = false;
    bool arrived = false;
  };
  std::shared_ptr<State> state_;
};

// The core of an engine, with streams by name.
class Machine {
 public:
  explicit Machine(int threads = 2) { EXPECT_EQ(Core::create(threads, &core_), MEMRA_OK); }
  ~Machine() { core_->shutdown(); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const std::shared_ptr<Core>& core() const { return core_; }

  memra_stream make_handle() {
    memra_stream handle = nullptr;
    EXPECT_EQ(core_->create_stream(&handle), MEMRA_OK);
    return handle;
  }
  Stream& stream(memra_stream handle) {
    Stream* stream = nullptr;
    EXPECT_EQ(core_->find(handle, &stream), MEMRA_OK);
    return *stream;
  }
  Stream& make_stream() { return stream(make_handle()); }

 private:
  std::shared_ptr<Core> core_;
};

// Long enough that work which may run would have run.
inline void settle() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace memra::cpu::test
