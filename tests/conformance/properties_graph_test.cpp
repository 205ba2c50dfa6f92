// Recorded calls: the first call ever, replays that see new contents, and several calls in one
// graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/stages.h"

namespace memra::test {
namespace {

using reference::MoeProblem;
using reference::ProblemSpec;

ProblemSpec spec_with_seed(std::uint64_t seed, std::int64_t hidden = 320) {
  ProblemSpec spec;
  spec.hidden = hidden;
  spec.intermediate = 128;
  spec.n_experts = 6;
  spec.top_k = 3;
  spec.tokens = 5;
  spec.seed = seed;
  spec.ids = reference::IdPattern::kDuplicates;
  return spec;
}

class RecordedCalls : public BackendTest {};

TEST_P(RecordedCalls, FirstCallOfANewEngineMayBeRecorded) {
  for (const std::int64_t hidden : {320, 1408}) {
    const auto solved = solve(spec_with_seed(1, hidden));
    for (const Formats& formats : all_formats()) {
      Engine fresh(engine().backend());
      const DeviceProblem device(fresh, solved->in(formats));
      for (const std::uint32_t variant : device.variants()) {
        device.run_recorded({variant});
        EXPECT_TRUE(device.check({variant}, solved->result))
            << formats.name << ", " << variant_name(variant);
      }
    }
  }
}

TEST_P(RecordedCalls, NothingRunsWhileRecording) {
  const auto solved = solve(spec_with_seed(2));
  const DeviceProblem device(engine(), solved->problem);
  device.reset();
  const Stream stream(engine());
  const Graph graph(engine(), stream.get(), [&] { return device.enqueue({}, stream.get()); });
  stream.synchronize();
  EXPECT_TRUE(same_bytes(solved->problem.y_initial, device.y()));
  graph.launch(stream.get());
  stream.synchronize();
  EXPECT_TRUE(device.check({}, solved->result));
}

TEST_P(RecordedCalls, ReplaysSeeNewContents) {
  const auto first = solve(spec_with_seed(3));
  for (const Formats& formats : {v1(), v2()}) {
    for (const std::uint32_t variant : DeviceProblem(engine(), first->in(formats)).variants()) {
      SCOPED_TRACE(variant_name(variant));
      DeviceProblem device(engine(), first->in(formats), {Slabs::kTables, 0});
      const Call call{variant};
      const Graph graph(engine(), engine().stream(),
                        [&] { return device.enqueue(call, engine().stream()); });
      for (const std::uint64_t seed : {3, 4, 5}) {
        // New x, ids, router weights, slabs; then tables that name the experts in another order.
        const auto next = solve(spec_with_seed(seed));
        device.replace_tokens(next->problem);
        device.replace_slabs(next->in(formats));
        std::vector<float> scales;
        for (const reference::Bank& bank : next->problem.banks)
          scales.insert(scales.end(), bank.scales.begin(), bank.scales.end());
        device.replace_tables(device.slab_table(), scales);
        device.reset();
        graph.launch(engine().stream());
        engine().synchronize();
        ASSERT_TRUE(device.check(call, next->result)) << formats.name << ", seed " << seed;

        MoeProblem rotated = next->problem;
        std::vector<const void*> ptrs = device.slab_table();
        for (std::size_t plane = 0; plane < 3; ++plane) {
          reference::Bank& bank = rotated.banks[plane];
          std::rotate(bank.slabs.begin(), bank.slabs.begin() + 1, bank.slabs.end());
          std::rotate(bank.scales.begin(), bank.scales.begin() + 1, bank.scales.end());
          const auto begin = static_cast<std::ptrdiff_t>(plane) * next->problem.n_local;
          std::rotate(ptrs.begin() + begin, ptrs.begin() + begin + 1,
                      ptrs.begin() + begin + next->problem.n_local);
          std::rotate(scales.begin() + begin, scales.begin() + begin + 1,
                      scales.begin() + begin + next->problem.n_local);
        }
        // Expert 2 is gone in the meantime.
        rotated.banks[reference::kUp].slabs[2].bytes.clear();
        ptrs[static_cast<std::size_t>(next->problem.n_local + 2)] = nullptr;
        device.replace_tables(ptrs, scales);
        device.reset();
        graph.launch(engine().stream());
        engine().synchronize();
        const auto solved = solve("rotated", std::move(rotated));
        ASSERT_TRUE(device.check(call, solved->result)) << formats.name << ", rotated " << seed;
      }
    }
  }
}

TEST_P(RecordedCalls, TwoCallsInOneGraphAccumulate) {
  ProblemSpec spec = spec_with_seed(6);
  spec.accumulate = true;
  const auto once = solve(spec);
  MoeProblem second = once->problem;
  second.y_initial = once->result.y;
  const auto twice = solve("twice", std::move(second));
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), once->in(formats));
    // Both calls share the workspace: the second may not overtake the first.
    const Graph graph(engine(), engine().stream(), [&] {
      const memra_status status = device.enqueue({}, engine().stream());
      return status != MEMRA_OK ? status : device.enqueue({}, engine().stream());
    });
    for (int i = 0; i < 20; ++i) {
      device.reset();
      graph.launch(engine().stream());
      engine().synchronize();
      ASSERT_TRUE(same_bytes(twice->result.y, device.y())) << formats.name << ", replay " << i;
    }
  }
}

TEST_P(RecordedCalls, StagesInOneGraph) {
  const auto solved = solve(spec_with_seed(7));
  for (const Formats& formats : all_formats()) {
    const DeviceProblem device(engine(), solved->in(formats));
    const DeviceStages stages(device, *solved);
    for (const std::uint32_t variant : {MEMRA_ROWS_AUTO, MEMRA_ROWS_ILP, MEMRA_ROWS_ORD}) {
      stages.feed_gate_up();
      stages.feed_down();
      const memra_rows_gate_up_args gate_up = stages.gate_up_args(variant);
      const memra_rows_down_args down = stages.down_args(variant);
      const Graph graph(engine(), engine().stream(), [&] {
        const memra_status status =
            memra_moe_rows_gate_up(engine().get(), &gate_up, engine().stream());
        return status != MEMRA_OK ? status
                                  : memra_moe_rows_down(engine().get(), &down, engine().stream());
      });
      stages.act_buffer().fill(0xFF);
      stages.y_buffer().fill(0xFF);
      graph.launch(engine().stream());
      engine().synchronize();
      EXPECT_TRUE(stages.check_act()) << formats.name << ", " << variant_name(variant);
      EXPECT_TRUE(stages.check_y()) << formats.name << ", " << variant_name(variant);
    }
  }
}

MEMRA_ON_BOTH_BACKENDS(RecordedCalls);

}  // namespace
}  // namespace memra::test
