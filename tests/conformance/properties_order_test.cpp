// Order on streams and state shared between them: chains without a wait between the calls,
// dependent launch on and off, several streams, several threads.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/matrix.h"

namespace memra::test {
namespace {

using reference::MoeProblem;
using reference::ProblemSpec;

ProblemSpec spec_with_seed(std::uint64_t seed, std::int64_t hidden = 1408) {
  ProblemSpec spec;
  spec.hidden = hidden;
  spec.intermediate = 64;
  spec.n_experts = 6;
  spec.tokens = 3;
  spec.seed = seed;
  return spec;
}

// The same bits with and without it, as also under the engine's own choice.
class DependentLaunch : public BackendTest {};

TEST_P(DependentLaunch, OnAndOffGiveTheSameBits) {
  for (const memra_toggle toggle : {MEMRA_DEFAULT, MEMRA_ON, MEMRA_OFF}) {
    memra_engine_options options = options_for(engine().backend());
    options.dependent_launch = toggle;
    Engine other(options);
    if (toggle == MEMRA_OFF) {
      EXPECT_EQ(other.properties().dependent_launch, 0);
    }
    for (const bool stable : {false, true}) {
      for (const std::int64_t hidden : {192, 1408}) {
        ProblemSpec spec = spec_with_seed(1, hidden);
        spec.tokens = 9;
        Matrix matrix;
        matrix.tokens = {1, 9};
        matrix.modes = Modes::kBoth;
        matrix.inputs_stable = stable;
        expect_same_bits(other, *solve(spec), matrix);
      }
    }
  }
}

MEMRA_ON_BOTH_BACKENDS(DependentLaunch);

class BackToBack : public BackendTest {
 protected:
  static constexpr int kCalls = 1000;

  // Calls that alternate between two problems of one shape, all with the same workspace and with no
  // wait between them; each writes a y of its own.
  void run_alternating(const Solved& a, const Solved& b, const Formats& formats,
                       std::uint32_t variant, bool stable) {
    const DeviceProblem device_a(engine(), a.in(formats));
    const DeviceProblem device_b(engine(), b.in(formats));
    const auto y_bytes = static_cast<std::int64_t>(a.result.y.size());
    const Buffer log(engine(), kCalls * y_bytes);
    memra_moe_args args[2] = {device_a.args({variant, stable}), device_b.args({variant, stable})};
    args[1].workspace = args[0].workspace;
    memra_moe_layer* layers[2] = {device_a.layer(), device_b.layer()};
    for (int i = 0; i < kCalls; ++i) {
      args[i % 2].y = log.data() + i * y_bytes;
      ASSERT_TRUE(ok(memra_moe_rows(layers[i % 2], &args[i % 2], engine().stream())));
    }
    engine().synchronize();
    const Bytes all = log.download();
    for (int i = 0; i < kCalls; ++i) {
      const Bytes& expected = i % 2 == 0 ? a.result.y : b.result.y;
      ASSERT_EQ(std::memcmp(all.data() + i * y_bytes, expected.data(), expected.size()), 0)
          << formats.name << ", " << variant_name(variant) << ", call " << i << ", stable "
          << stable;
    }
    EXPECT_TRUE(log.guards_intact());
  }
};

TEST_P(BackToBack, AThousandCallsOverOneWorkspace) {
  const auto a = solve(spec_with_seed(2));
  const auto b = solve(spec_with_seed(3));
  ASSERT_TRUE(is_informative(*a));
  ASSERT_TRUE(is_informative(*b));
  constexpr std::uint32_t kOfV1[] = {MEMRA_ROWS_AUTO, MEMRA_ROWS_ILP | MEMRA_ROWS_PACK,
                                     MEMRA_ROWS_DEDUP_ORDER};
  constexpr std::uint32_t kOfV2[] = {
      MEMRA_ROWS_AUTO, MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_DEDUP_ORDER, MEMRA_ROWS_PLAIN};
  for (const bool stable : {false, true}) {
    for (const std::uint32_t variant : kOfV1)
      run_alternating(*a, *b, v1(), variant, stable);
    for (const std::uint32_t variant : kOfV2)
      run_alternating(*a, *b, v2(), variant, stable);
  }
}

// Call n reads what call n - 1 has written.
TEST_P(BackToBack, AChainOfLayers) {
  constexpr int kLength = 6;
  ProblemSpec spec = spec_with_seed(4);
  std::vector<Bytes> expected;
  MoeProblem problem = solve(spec)->problem;
  for (int i = 0; i < kLength; ++i) {
    const auto step = solve("step", problem);
    ASSERT_TRUE(is_informative(*step)) << i;
    expected.push_back(step->result.y);
    problem.x = step->result.y;
  }
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solve(spec)->in(formats));
    for (const std::uint32_t variant : device.variants()) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        const auto y_bytes = static_cast<std::int64_t>(expected[0].size());
        const Buffer log(engine(), kLength * y_bytes);
        memra_moe_args args = device.args({variant, true});
        for (int i = 0; i < kLength; ++i) {
          args.y = log.data() + i * y_bytes;
          ASSERT_TRUE(ok(memra_moe_rows(device.layer(), &args, engine().stream())));
          args.x = args.y;
        }
        engine().synchronize();
        for (int i = 0; i < kLength; ++i) {
          ASSERT_TRUE(
              same_bytes(expected[static_cast<std::size_t>(i)], log.download(i * y_bytes, y_bytes)))
              << formats.name << ", " << variant_name(variant) << ", layer " << i << ", repeat "
              << repeat;
        }
      }
    }
  }
}

// Without INPUTS_STABLE a call sees the slabs that the work just before it has written.
TEST_P(BackToBack, SlabsWrittenJustBefore) {
  const std::shared_ptr<const Solved> solved[2] = {solve(spec_with_seed(5)),
                                                   solve(spec_with_seed(6))};
  // Of the second problem only the slabs.
  MoeProblem mixed = solved[0]->problem;
  for (std::size_t plane = 0; plane < 3; ++plane)
    mixed.banks[plane].slabs = solved[1]->problem.banks[plane].slabs;
  const auto other = solve("other slabs", std::move(mixed));
  const DeviceProblem device(engine(), solved[0]->in(v2()));
  const DeviceProblem sources[2] = {{engine(), solved[0]->problem}, {engine(), other->problem}};
  const auto y_bytes = static_cast<std::int64_t>(solved[0]->result.y.size());
  constexpr int kRepeats = 100;
  const Buffer log(engine(), kRepeats * y_bytes);
  memra_moe_args args = device.args({});
  for (int i = 0; i < kRepeats; ++i) {
    for (const reference::Plane plane : {reference::kGate, reference::kUp, reference::kDown}) {
      memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
      repack.rows = solved[0]->problem.banks[plane].rows;
      repack.columns = solved[0]->problem.banks[plane].cols;
      repack.n_experts = solved[0]->problem.n_local;
      repack.src = sources[i % 2].slab(plane, 0);
      repack.dst = const_cast<std::uint8_t*>(device.slab(plane, 0));
      ASSERT_TRUE(ok(memra_repack_v2(engine().get(), &repack, engine().stream())));
    }
    args.y = log.data() + i * y_bytes;
    ASSERT_TRUE(ok(memra_moe_rows(device.layer(), &args, engine().stream())));
  }
  engine().synchronize();
  for (int i = 0; i < kRepeats; ++i) {
    const Bytes& expected = i % 2 == 0 ? solved[0]->result.y : other->result.y;
    ASSERT_TRUE(same_bytes(expected, log.download(i * y_bytes, y_bytes))) << "call " << i;
  }
}

TEST_P(BackToBack, TheDefaultStream) {
  const auto solved = solve(spec_with_seed(7, 192));
  const DeviceProblem device(engine(), solved->in(v2()));
  for (const std::uint32_t variant : device.variants()) {
    device.reset();
    ASSERT_TRUE(ok(device.enqueue({variant}, nullptr)));
    ASSERT_TRUE(ok(memra_stream_synchronize(engine().get(), nullptr)));
    EXPECT_TRUE(device.check({variant}, solved->result)) << variant_name(variant);
  }
}

MEMRA_ON_BOTH_BACKENDS(BackToBack);

// ---- Several streams and threads over one layer ----

// What one of them needs for calls of its own on a problem that all share.
struct Lane {
  Lane(const DeviceProblem& device, const Solved& solved)
      : stream(device.engine()),
        y(device.engine(), static_cast<std::int64_t>(solved.result.y.size())),
        workspace(device.engine(), static_cast<std::int64_t>(device.args({}).workspace_bytes)) {}

  memra_moe_args args(const DeviceProblem& device, std::uint32_t variant) const {
    memra_moe_args result = device.args({variant});
    result.y = y.data();
    result.workspace = workspace.data();
    result.invalid_ids = nullptr;
    return result;
  }

  Stream stream;
  Buffer y;
  Buffer workspace;
};

class SharedLayer : public BackendTest {};

TEST_P(SharedLayer, StreamsOverlap) {
  ProblemSpec spec = spec_with_seed(8);
  spec.tokens = 17;
  const auto solved = solve(spec);
  const DeviceProblem device(engine(), solved->in(v2()));
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int i = 0; i < 4; ++i)
    lanes.push_back(std::make_unique<Lane>(device, *solved));
  for (const std::uint32_t variant : device.variants()) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (const auto& lane : lanes) {
        lane->y.fill(0xFF);
        const memra_moe_args args = lane->args(device, variant);
        ASSERT_TRUE(ok(memra_moe_rows(device.layer(), &args, lane->stream.get())));
      }
      for (const auto& lane : lanes) {
        lane->stream.synchronize();
        ASSERT_TRUE(same_bytes(solved->result.y, lane->y.download())) << variant_name(variant);
      }
    }
  }
}

TEST_P(SharedLayer, ThreadsCallAtOnce) {
  ProblemSpec spec = spec_with_seed(9);
  spec.tokens = 5;
  const auto solved = solve(spec);
  const DeviceProblem device(engine(), solved->in(v2()));
  const std::vector<std::uint32_t> variants = device.variants();
  constexpr std::size_t kThreads = 4;
  std::vector<std::unique_ptr<Lane>> lanes;
  for (std::size_t i = 0; i < kThreads; ++i)
    lanes.push_back(std::make_unique<Lane>(device, *solved));
  // Each thread keeps its failures; GoogleTest hears of them when all have ended.
  std::vector<std::string> failures(kThreads);
  const auto work = [&](std::size_t index) {
    const Lane& lane = *lanes[index];
    const auto expect_ok = [&](memra_status status) {
      if (status != MEMRA_OK) failures[index] = memra_last_error();
    };
    for (std::size_t i = 0; i < 2 * variants.size(); ++i) {
      const memra_moe_args args = lane.args(device, variants[(i + index) % variants.size()]);
      expect_ok(
          memra_memset(engine().get(), args.y, 0xFF, solved->result.y.size(), lane.stream.get()));
      expect_ok(memra_moe_rows(device.layer(), &args, lane.stream.get()));
      Bytes y(solved->result.y.size());
      expect_ok(memra_memcpy(engine().get(), y.data(), args.y, y.size(), lane.stream.get()));
      expect_ok(memra_stream_synchronize(engine().get(), lane.stream.get()));
      if (y != solved->result.y) failures[index] = variant_name(args.variant);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back(work, i);
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string& failure : failures)
    EXPECT_EQ(failure, "");
}

MEMRA_ON_BOTH_BACKENDS(SharedLayer);

}  // namespace
}  // namespace memra::test
