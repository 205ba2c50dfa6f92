// Streams, events and the thread pool of the CPU backend, with work that the test holds back.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cpu_support.h"

namespace memra::cpu::test {
namespace {

using std::chrono::milliseconds;

TEST(CpuPool, EveryIndexRunsOnceWhateverTheThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    std::unique_ptr<ThreadPool> pool;
    ASSERT_EQ(ThreadPool::create(threads, &pool), MEMRA_OK);
    EXPECT_EQ(pool->threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      pool->parallel_for(count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& call : calls)
        EXPECT_EQ(call, 1);
    }
  }
}

TEST(CpuPool, LoopsOfSeveralThreadsRunAtOnce) {
  std::unique_ptr<ThreadPool> pool;
  ASSERT_EQ(ThreadPool::create(3, &pool), MEMRA_OK);
  std::vector<std::thread> owners;
  std::atomic<std::int64_t> sum{0};
  owners.reserve(4);
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([&] {
      for (int repeat = 0; repeat < 500; ++repeat) {
        std::atomic<std::int64_t> own{0};
        pool->parallel_for(20, [&](std::int64_t i) { own += i; });
        sum += own;
      }
    });
  }
  for (std::thread& owner : owners)
    owner.join();
  EXPECT_EQ(sum, 4 * 500 * 190);
}

TEST(CpuPool, AllThreadsTakePart) {
  constexpr int kThreads = 3;
  std::unique_ptr<ThreadPool> pool;
  ASSERT_EQ(ThreadPool::create(kThreads, &pool), MEMRA_OK);
  // Each index waits for all others: only as many threads as indices can finish this.
  std::atomic<int> arrived{0};
  pool->parallel_for(kThreads, [&](std::int64_t) {
    ++arrived;
    while (arrived < kThreads)
      std::this_thread::yield();
  });
  EXPECT_EQ(arrived, kThreads);
}

TEST(CpuStream, RunsInOrder) {
  Machine machine;
  Stream& stream = machine.make_stream();
  std::vector<int> seen;
  constexpr int kTasks = 5000;  // more than the ring holds
  for (int i = 0; i < kTasks; ++i) {
    ASSERT_EQ(stream.enqueue([&seen, i](const TaskContext&) { seen.push_back(i); }), MEMRA_OK);
  }
  ASSERT_EQ(stream.synchronize(), MEMRA_OK);
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kTasks));
  for (int i = 0; i < kTasks; ++i)
    ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(stream.query(), MEMRA_OK);
}

TEST(CpuStream, StreamsOverlap) {
  Machine machine(1);
  Stream& a = machine.make_stream();
  Stream& b = machine.make_stream();
  // Each waits for the other: in turn they would never end.
  std::atomic<int> arrived{0};
  const auto meet = [&arrived](const TaskContext&) {
    ++arrived;
    while (arrived < 2)
      std::this_thread::yield();
  };
  a.enqueue(meet);
  b.enqueue(meet);
  EXPECT_EQ(a.synchronize(), MEMRA_OK);
  EXPECT_EQ(b.synchronize(), MEMRA_OK);
}

TEST(CpuStream, QueryTellsBusyFromDone) {
  Machine machine;
  Stream& stream = machine.make_stream();
  EXPECT_EQ(stream.query(), MEMRA_OK);
  Gate gate;
  stream.enqueue(gate.task());
  EXPECT_EQ(stream.query(), MEMRA_NOT_READY);
  gate.open();
  EXPECT_EQ(stream.synchronize(), MEMRA_OK);
  EXPECT_EQ(stream.query(), MEMRA_OK);
}

TEST(CpuStream, FullRingBlocksAndThenGoesOn) {
  Machine machine;
  Stream& stream = machine.make_stream();
  Gate gate;
  stream.enqueue(gate.task());
  gate.wait_for_arrival();
  constexpr std::size_t kTasks = 2 * Stream::kRingSlots;
  std::atomic<std::size_t> enqueued{0};
  std::vector<std::size_t> ran;
  std::thread producer([&] {
    for (std::size_t i = 0; i < kTasks; ++i) {
      stream.enqueue([&ran, i](const TaskContext&) { ran.push_back(i); });
      ++enqueued;
    }
  });
  while (enqueued < Stream::kRingSlots - 1)
    std::this_thread::yield();
  settle();
  // The task at the gate still has its slot.
  EXPECT_EQ(enqueued, Stream::kRingSlots - 1);
  gate.open();
  producer.join();
  ASSERT_EQ(stream.synchronize(), MEMRA_OK);
  ASSERT_EQ(ran.size(), kTasks);
  for (std::size_t i = 0; i < kTasks; ++i)
    ASSERT_EQ(ran[i], i);
}

TEST(CpuStream, ManyThreadsEnqueueAtOnce) {
  Machine machine;
  Stream& stream = machine.make_stream();
  constexpr int kThreads = 8, kTasks = 1000;
  std::vector<int> last(kThreads, -1);  // written by the stream alone
  int out_of_order = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        stream.enqueue([&last, &out_of_order, t, i](const TaskContext&) {
          int& mine = last[static_cast<std::size_t>(t)];
          out_of_order += mine == i - 1 ? 0 : 1;
          mine = i;
        });
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  ASSERT_EQ(stream.synchronize(), MEMRA_OK);
  EXPECT_EQ(out_of_order, 0);
  for (const int i : last)
    EXPECT_EQ(i, kTasks - 1);
}

TEST(CpuStream, FailureIsKeptUntilReported) {
  Machine machine;
  Stream& stream = machine.make_stream();
  bool later_ran = false;
  stream.enqueue([](const TaskContext&) { throw std::bad_alloc(); });
  stream.enqueue([](const TaskContext&) { throw std::runtime_error("second"); });
  stream.enqueue([&](const TaskContext&) { later_ran = true; });
  while (stream.query() == MEMRA_NOT_READY)
    std::this_thread::yield();
  EXPECT_EQ(stream.query(), MEMRA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(stream.synchronize(), MEMRA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(std::string(last_error()).find("failed"), std::string::npos);
  EXPECT_EQ(stream.synchronize(), MEMRA_OK);
  EXPECT_TRUE(later_ran);
}

TEST(CpuStream, TasksHoldNothingAfterTheyRan) {
  Machine machine;
  Stream& stream = machine.make_stream();
  const auto held = std::make_shared<int>(1);
  stream.enqueue([held](const TaskContext&) {});
  ASSERT_EQ(stream.synchronize(), MEMRA_OK);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(CpuStream, DestroyingAStreamRunsItsWork) {
  Machine machine;
  std::atomic<int> ran{0};
  memra_stream handle = machine.make_handle();
  for (int i = 0; i < 100; ++i) {
    machine.stream(handle).enqueue([&](const TaskContext&) {
      std::this_thread::sleep_for(std::chrono::microseconds(10));
      ++ran;
    });
  }
  EXPECT_EQ(machine.core()->destroy_stream(handle), MEMRA_OK);
  EXPECT_EQ(ran, 100);
  EXPECT_EQ(machine.core()->destroy_stream(handle), MEMRA_ERROR_INVALID_ARGUMENT);
}

TEST(CpuStream, ForeignHandlesAreRefused) {
  Machine machine, other;
  int nothing = 0;
  Stream* stream = nullptr;
  EXPECT_EQ(machine.core()->find(&nothing, &stream), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(machine.core()->find(other.make_handle(), &stream), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(machine.core()->destroy_stream(nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(machine.core()->find(nullptr, &stream), MEMRA_OK);
}

TEST(CpuStream, ShutdownRunsWhatIsEnqueued) {
  std::atomic<int> ran{0};
  {
    Machine machine;
    Stream& a = machine.make_stream();
    Stream& b = machine.make_stream();
    CpuEvent event(machine.core());
    for (int i = 0; i < 50; ++i) {
      b.enqueue([&](const TaskContext&) { ++ran; });
    }
    b.record(event.state());
    a.wait(event.state());
    a.enqueue([&](const TaskContext&) { ran += 1000; });
    machine.stream(nullptr).enqueue([&](const TaskContext&) { ran += 10000; });
  }
  EXPECT_EQ(ran, 11050);
}

// ---- Events ----

class CpuEvents : public ::testing::Test {
 protected:
  Machine machine_;
  Stream& a_ = machine_.make_stream();
  Stream& b_ = machine_.make_stream();
  Stream& c_ = machine_.make_stream();
  std::atomic<int> ran_{0};

  Task mark(int value) {
    return [this, value](const TaskContext&) { ran_ += value; };
  }
};

TEST_F(CpuEvents, NeverRecordedWaitsForNothing) {
  CpuEvent event(machine_.core()), other(machine_.core());
  a_.wait(event.state());
  a_.enqueue(mark(1));
  EXPECT_EQ(a_.synchronize(), MEMRA_OK);
  EXPECT_EQ(event.query(), MEMRA_OK);
  EXPECT_EQ(event.synchronize(), MEMRA_OK);
  float time = -1.0f;
  EXPECT_EQ(event.elapsed_since(other, &time), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(time, -1.0f);
}

TEST_F(CpuEvents, HoldBackAnotherStream) {
  CpuEvent event(machine_.core());
  Gate gate;
  a_.enqueue(gate.task());
  a_.record(event.state());
  b_.wait(event.state());
  b_.enqueue(mark(1));
  settle();
  EXPECT_EQ(ran_, 0);
  EXPECT_EQ(event.query(), MEMRA_NOT_READY);
  EXPECT_EQ(b_.query(), MEMRA_NOT_READY);
  gate.open();
  EXPECT_EQ(event.synchronize(), MEMRA_OK);
  EXPECT_EQ(event.query(), MEMRA_OK);
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 1);
}

TEST_F(CpuEvents, HoldBackAStreamOfAnotherEngine) {
  Machine other;
  Stream& far = other.make_stream();
  CpuEvent event(machine_.core());
  Gate gate;
  a_.enqueue(gate.task());
  a_.record(event.state());
  far.wait(event.state());
  far.enqueue(mark(1));
  settle();
  EXPECT_EQ(ran_, 0);
  gate.open();
  EXPECT_EQ(far.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 1);
}

TEST_F(CpuEvents, AWaitMeansTheRecordBeforeIt) {
  CpuEvent event(machine_.core());
  Gate first, second;
  a_.enqueue(first.task());
  a_.record(event.state());
  b_.wait(event.state());  // the first record
  b_.enqueue(mark(1));
  a_.enqueue(second.task());
  a_.record(event.state());
  c_.wait(event.state());  // the second
  c_.enqueue(mark(10));
  first.open();
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  settle();
  EXPECT_EQ(ran_, 1);
  EXPECT_EQ(event.query(), MEMRA_NOT_READY);
  second.open();
  EXPECT_EQ(c_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 11);
}

TEST_F(CpuEvents, RecordingElsewhereMovesTheEvent) {
  CpuEvent event(machine_.core());
  Gate gate;
  a_.enqueue(gate.task());
  a_.record(event.state());
  b_.wait(event.state());
  b_.enqueue(mark(1));
  // The later record, on an idle stream, is reached at once, and does not free the earlier waiter.
  c_.record(event.state());
  EXPECT_EQ(event.synchronize(), MEMRA_OK);
  EXPECT_EQ(event.query(), MEMRA_OK);
  settle();
  EXPECT_EQ(ran_, 0);
  gate.open();
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 1);
}

TEST_F(CpuEvents, ElapsedTime) {
  CpuEvent start(machine_.core()), end(machine_.core());
  float time = -1.0f;
  Gate gate;
  a_.record(start.state());
  a_.enqueue(gate.task());
  a_.enqueue([](const TaskContext&) { std::this_thread::sleep_for(milliseconds(30)); });
  a_.record(end.state());
  EXPECT_EQ(end.elapsed_since(start, &time), MEMRA_NOT_READY);
  EXPECT_EQ(start.elapsed_since(end, &time), MEMRA_NOT_READY);
  EXPECT_EQ(time, -1.0f);
  gate.open();
  EXPECT_EQ(end.synchronize(), MEMRA_OK);
  EXPECT_EQ(end.elapsed_since(start, &time), MEMRA_OK);
  EXPECT_GE(time, 30.0f);
  EXPECT_LT(time, 10000.0f);
  float reverse = 0.0f;
  EXPECT_EQ(start.elapsed_since(end, &reverse), MEMRA_OK);
  EXPECT_EQ(reverse, -time);
  // A new record of the end that is not reached yet takes the time away again.
  Gate next;
  a_.enqueue(next.task());
  a_.record(end.state());
  EXPECT_EQ(end.elapsed_since(start, &time), MEMRA_NOT_READY);
}

TEST_F(CpuEvents, MayDieBeforeTheirRecordIsReached) {
  Gate gate;
  a_.enqueue(gate.task());
  {
    CpuEvent event(machine_.core());
    a_.record(event.state());
    b_.wait(event.state());
  }
  b_.enqueue(mark(1));
  settle();
  EXPECT_EQ(ran_, 0);
  gate.open();
  EXPECT_EQ(b_.synchronize(), MEMRA_OK);
  EXPECT_EQ(ran_, 1);
}

TEST_F(CpuEvents, ManyThreadsRecordAndWait) {
  CpuEvent event(machine_.core());
  Stream* const streams[] = {&a_, &b_, &c_};
  std::vector<std::thread> threads;
  threads.reserve(6);
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        Stream& stream = *streams[(t + i) % 3];
        if (t % 2 == 0) {
          stream.record(event.state());
        } else {
          stream.wait(event.state());
          stream.enqueue(mark(1));
        }
        event.query();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (Stream* stream : streams)
    EXPECT_EQ(stream->synchronize(), MEMRA_OK);
  EXPECT_EQ(event.query(), MEMRA_OK);
  EXPECT_EQ(ran_, 900);
}

}  // namespace
}  // namespace memra::cpu::test
