// Graphs of the CPU backend: recorded lists, with work that the test holds back.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cpu_support.h"

namespace memra::cpu::test {
namespace {

class CpuGraphs : public ::testing::Test {
 protected:
  Machine machine_;
  memra_stream handle_a_ = machine_.make_handle();
  memra_stream handle_b_ = machine_.make_handle();
  Stream& a_ = machine_.stream(handle_a_);
  Stream& b_ = machine_.stream(handle_b_);
  std::atomic<int> ran_{0};

  Task mark(int value) {
    return [this, value](const TaskContext&) { ran_ += value; };
  }

  // What `enqueue` puts on stream a, recorded.
  template <class Enqueue>
  std::unique_ptr<CpuGraph> record(const Enqueue& enqueue) {
    EXPECT_EQ(a_.begin_recording(), MEMRA_OK);
    enqueue();
    std::shared_ptr<GraphBody> body;
    EXPECT_EQ(a_.end_recording(&body), MEMRA_OK);
    return std::make_unique<CpuGraph>(machine_.core(), body);
  }
};

TEST_F(CpuGraphs, NothingRunsWhileRecording) {
  const auto graph = record([&] {
    a_.enqueue(mark(1));
    a_.enqueue(mark(10));
    settle();
    EXPECT_EQ(ran_, 0);
    // Other streams go on.
    b_.enqueue(mark(100));
    EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  });
  settle();
  EXPECT_EQ(ran_, 100);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(graph->launch(i == 2 ? handle_b_ : handle_a_), MEMRA_OK);
    a_.synchronize();
    b_.synchronize();
    EXPECT_EQ(ran_, 100 + 11 * i);
  }
  EXPECT_EQ(graph->launch(nullptr), MEMRA_OK);  // the default stream
  EXPECT_EQ(machine_.stream(nullptr).synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 144);
}

TEST_F(CpuGraphs, StateIsChecked) {
  std::shared_ptr<GraphBody> body;
  EXPECT_EQ(a_.end_recording(&body), MEMRA_ERROR_INVALID_STATE);
  EXPECT_EQ(body, nullptr);
  ASSERT_EQ(a_.begin_recording(), MEMRA_OK);
  EXPECT_EQ(a_.begin_recording(), MEMRA_ERROR_INVALID_STATE);
  EXPECT_EQ(a_.query(), MEMRA_ERROR_INVALID_STATE);
  EXPECT_EQ(a_.synchronize(), MEMRA_ERROR_INVALID_STATE);
  EXPECT_EQ(a_.end_recording(&body), MEMRA_OK);
  EXPECT_NE(body, nullptr);
  EXPECT_EQ(a_.query(), MEMRA_OK);
  CpuGraph graph(machine_.core(), body);  // empty
  EXPECT_EQ(graph.launch(handle_a_), MEMRA_OK);
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  int nothing = 0;
  EXPECT_EQ(graph.launch(&nothing), MEMRA_ERROR_INVALID_ARGUMENT);
}

TEST_F(CpuGraphs, ReplaysKeepTheirPlaceInTheStream) {
  std::vector<int> seen;
  const auto push = [&](int value) {
    return [&seen, value](const TaskContext&) { seen.push_back(value); };
  };
  const auto graph = record([&] {
    a_.enqueue(push(1));
    a_.enqueue(push(2));
  });
  a_.enqueue(push(0));
  graph->launch(handle_a_);
  a_.enqueue(push(3));
  graph->launch(handle_a_);
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 1, 2}));
}

TEST_F(CpuGraphs, LaunchesOfOneGraphNeverOverlap) {
  std::atomic<int> inside{0}, overlaps{0};
  const auto graph = record([&] {
    for (int node = 0; node < 3; ++node) {
      a_.enqueue([&inside, &overlaps, node](const TaskContext&) {
        if (node == 0) overlaps += inside++ != 0 ? 1 : 0;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        if (node == 2) --inside;
      });
    }
  });
  std::vector<std::thread> threads;
  for (memra_stream stream : {handle_a_, handle_b_, memra_stream{nullptr}}) {
    threads.emplace_back([&, stream] {
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(graph->launch(stream), MEMRA_OK);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (memra_stream stream : {handle_a_, handle_b_, memra_stream{nullptr}}) {
    EXPECT_EQ(machine_.stream(stream).synchronize(), MEMRA_OK);
  }
  EXPECT_EQ(overlaps, 0);
}

TEST_F(CpuGraphs, RecordNodesMoveTheEvent) {
  CpuEvent event(machine_.core());
  Gate gate;
  const auto graph = record([&] {
    a_.enqueue(mark(1));
    a_.record(event.state());
    a_.enqueue(gate.task());
    a_.enqueue(mark(10));
  });
  // Recorded is not run: the event waits for nothing.
  EXPECT_EQ(event.query(), MEMRA_OK);
  b_.wait(event.state());
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);

  graph->launch(handle_a_);
  b_.wait(event.state());
  b_.enqueue(mark(100));
  // The event marks its own place in the graph, not the graph's end.
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 101);
  EXPECT_EQ(event.query(), MEMRA_OK);
  EXPECT_EQ(a_.query(), MEMRA_NOT_READY);
  gate.open();
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 111);
}

TEST_F(CpuGraphs, RecordNodesTakeTimes) {
  CpuEvent start(machine_.core()), end(machine_.core());
  const auto graph = record([&] {
    a_.record(start.state());
    a_.enqueue(
        [](const TaskContext&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    a_.record(end.state());
  });
  float time = 0.0f;
  EXPECT_EQ(end.elapsed_since(start, &time), MEMRA_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < 2; ++i) {
    graph->launch(handle_b_);
    EXPECT_EQ(end.synchronize(), MEMRA_OK);
    EXPECT_EQ(end.elapsed_since(start, &time), MEMRA_OK);
    EXPECT_GE(time, 5.0f);
  }
}

TEST_F(CpuGraphs, WaitNodesMeanTheRecordBeforeTheLaunch) {
  CpuEvent event(machine_.core());
  const auto graph = record([&] {
    a_.wait(event.state());
    a_.enqueue(mark(1));
  });
  graph->launch(handle_a_);  // never recorded
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 1);

  Gate gate;
  b_.enqueue(gate.task());
  b_.record(event.state());
  graph->launch(handle_a_);
  settle();
  EXPECT_EQ(ran_, 1);
  gate.open();
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 2);

  // A record after the launch, on the launch's own stream, is not what it waits for.
  graph->launch(handle_a_);
  a_.record(event.state());
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 3);
}

TEST_F(CpuGraphs, EventsInsideOneGraph) {
  CpuEvent event(machine_.core());
  const auto graph = record([&] {
    a_.enqueue(mark(1));
    a_.record(event.state());
    a_.wait(event.state());
    a_.enqueue(mark(10));
  });
  for (int i = 1; i <= 3; ++i) {
    graph->launch(i == 2 ? handle_b_ : handle_a_);
    EXPECT_EQ(event.synchronize(), MEMRA_OK);
    a_.synchronize();
    b_.synchronize();
    EXPECT_EQ(ran_, 11 * i);
  }
}

TEST_F(CpuGraphs, LaunchesThatWaitForEachOtherEnd) {
  // The second launch waits for an event that stream a reaches only after the first launch. Were
  // launches ordered by who comes first, the second could lock the first out for ever.
  CpuEvent event(machine_.core());
  Gate gate;
  const auto graph = record([&] {
    a_.wait(event.state());
    a_.enqueue(mark(1));
  });
  a_.enqueue(gate.task());
  graph->launch(handle_a_);
  a_.record(event.state());
  graph->launch(handle_b_);
  settle();
  EXPECT_EQ(ran_, 0);
  gate.open();
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 2);
}

TEST_F(CpuGraphs, LaunchIntoARecordingCopiesTheNodes) {
  CpuEvent event(machine_.core());
  std::optional<std::unique_ptr<CpuGraph>> inner = record([&] {
    a_.enqueue(mark(1));
    a_.record(event.state());
  });
  const auto outer = record([&] {
    EXPECT_EQ((*inner)->launch(handle_a_), MEMRA_OK);
    a_.enqueue(mark(10));
    EXPECT_EQ((*inner)->launch(handle_a_), MEMRA_OK);
  });
  inner.reset();
  settle();
  EXPECT_EQ(ran_, 0);
  outer->launch(handle_b_);
  EXPECT_EQ(event.synchronize(), MEMRA_OK);
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 12);
}

TEST_F(CpuGraphs, MayDieAfterTheLaunch) {
  const auto held = std::make_shared<int>(1);
  Gate gate;
  auto graph = record([&] {
    a_.enqueue(gate.task());
    a_.enqueue([held, this](const TaskContext&) { ran_ += *held; });
  });
  graph->launch(handle_a_);
  graph.reset();
  gate.open();
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 1);
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(CpuGraphs, AFailingNodeEndsItsLaunchAlone) {
  bool fail = true;
  const auto graph = record([&] {
    a_.enqueue([&fail](const TaskContext&) {
      if (fail) throw std::bad_alloc();
    });
    a_.enqueue(mark(1));
  });
  graph->launch(handle_a_);
  a_.enqueue(mark(10));
  EXPECT_EQ(a_.synchronize(), MEMRA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ran_, 10);
  fail = false;
  graph->launch(handle_a_);
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 11);
}

TEST_F(CpuGraphs, DroppedRecordingsLeaveTheStreamUsable) {
  memra_stream handle = machine_.make_handle();
  ASSERT_EQ(machine_.stream(handle).begin_recording(), MEMRA_OK);
  machine_.stream(handle).enqueue(mark(1));
  EXPECT_EQ(machine_.core()->destroy_stream(handle), MEMRA_OK);
  EXPECT_EQ(ran_, 0);
}

}  // namespace
}  // namespace memra::cpu::test
