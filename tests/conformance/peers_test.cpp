// Two engines of one backend: waits and copies between them, from one host thread and from two.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "conformance/device_problem.h"
#include "conformance/fixture.h"

namespace memra::test {
namespace {

class PeersTest : public BackendTest {};

struct EventDeleter {
  void operator()(memra_event* event) const { memra_event_destroy(event); }
};
using Event = std::unique_ptr<memra_event, EventDeleter>;

Event make_event(const Engine& engine) {
  memra_event* event = nullptr;
  require(memra_event_create(engine.get(), &event));
  return Event(event);
}

// What is enqueued on `after` from now on waits for what is on `before`.
void order(const Event& event, memra_stream before, const Engine& after, memra_stream stream) {
  require(memra_event_record(event.get(), before));
  require(memra_event_wait(after.get(), event.get(), stream));
}

// A value goes to the other engine and is noted there, round after round, and no host waits: each
// wait and each copy must be ordered for every note to be right.
TEST_P(PeersTest, WaitsAndCopiesAreOrderedAcrossEngines) {
  constexpr int kRounds = 100;
  constexpr std::int64_t kBytes = 1 << 16;
  Engine& first = engine();
  Engine second(GetParam());
  const Buffer here(first, kBytes);
  const Buffer there(second, kBytes);
  const Buffer notes(second, kRounds);
  const Event sent = make_event(first);
  const Event noted = make_event(second);
  for (int i = 0; i < kRounds; ++i) {
    require(memra_memset(first.get(), here.data(), i, kBytes, first.stream()));
    order(sent, first.stream(), second, second.stream());
    require(memra_memcpy_engines(second.get(), there.data(), first.get(), here.data(), kBytes,
                                 second.stream()));
    require(memra_memcpy(second.get(), notes.as<std::uint8_t>(i), there.data() + kBytes - 1, 1,
                         second.stream()));
    order(noted, second.stream(), first, first.stream());
  }
  second.synchronize();
  Bytes expected(kRounds);
  for (int i = 0; i < kRounds; ++i)
    expected[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i);
  EXPECT_TRUE(same_bytes(expected, notes.download()));
  first.synchronize();
}

// Each thread drives an engine of its own through layers, and reads the other's memory meanwhile.
TEST_P(PeersTest, WorkFromTwoHostThreads) {
  constexpr int kRounds = 20;
  const auto known = solve(reference::ProblemSpec{});
  ASSERT_TRUE(is_informative(*known));
  Engine& first = engine();
  Engine second(GetParam());
  const Bytes contents(4096, 77);
  const Buffer sources[] = {Buffer(first, contents), Buffer(second, contents)};
  const auto drive = [&](Engine& own, Engine& other, const Buffer& source) {
    const DeviceProblem problem(own, known->problem);
    for (int i = 0; i < kRounds; ++i) {
      const Buffer target(own, source.bytes());
      EXPECT_TRUE(
          ok(memra_memcpy_engines(own.get(), target.data(), other.get(), source.data(),
                                  static_cast<std::uint64_t>(source.bytes()), own.stream())));
      problem.run({});
      EXPECT_TRUE(problem.check({}, known->result));
      EXPECT_TRUE(same_bytes(contents, target.download()));
    }
  };
  std::thread other([&] { drive(second, first, sources[0]); });
  drive(first, second, sources[1]);
  other.join();
}

// The same from one thread, which enqueues for both before it waits for either.
TEST_P(PeersTest, WorkFromOneHostThread) {
  const auto known = solve(reference::ProblemSpec{});
  Engine& first = engine();
  Engine second(GetParam());
  const DeviceProblem a(first, known->problem);
  const DeviceProblem b(second, known->problem);
  for (int i = 0; i < 3; ++i) {
    a.reset();
    b.reset();
    EXPECT_TRUE(ok(a.enqueue({}, first.stream())));
    EXPECT_TRUE(ok(b.enqueue({}, second.stream())));
    first.synchronize();
    second.synchronize();
    EXPECT_TRUE(a.check({}, known->result));
    EXPECT_TRUE(b.check({}, known->result));
  }
}

TEST_P(PeersTest, InfoSaysHowCopiesGo) {
  const auto peers = [](const Engine& engine) {
    memra_engine_properties properties = MEMRA_ENGINE_PROPERTIES_INIT;
    require(memra_engine_info(engine.get(), &properties));
    return properties.peer_devices;
  };
  const Engine second(GetParam());
  for (const Engine* one : {static_cast<const Engine*>(&engine()), &second}) {
    const std::uint64_t own = std::uint64_t{1} << one->properties().device;
    EXPECT_EQ(peers(*one) & own, one->is_cuda() ? own : 0);
  }
}

MEMRA_ON_BOTH_BACKENDS(PeersTest);

}  // namespace
}  // namespace memra::test
