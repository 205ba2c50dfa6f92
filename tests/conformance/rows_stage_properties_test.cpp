// Single stages: lane-major order, NULL slabs, the order of pairs, and tables that no layer makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/stages.h"

namespace memra::test {
namespace {

using reference::ProblemSpec;

ProblemSpec spec_of(std::int64_t hidden, std::int64_t intermediate, std::int64_t tokens) {
  ProblemSpec spec;
  spec.hidden = hidden;
  spec.intermediate = intermediate;
  spec.tokens = tokens;
  return spec;
}

class RowsStage : public BackendTest {};

TEST_P(RowsStage, LaneMajorPermutesWithinGroupsOf32) {
  // Values 0..31 in every group, so that the permutation can be read off.
  for (const std::int64_t columns : {64, 128, 320, 1408}) {
    const std::int64_t rows = 3;
    std::vector<std::int8_t> q(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < q.size(); ++i)
      q[i] = static_cast<std::int8_t>(i % 32);
    const Input in(engine(), bytes_of(q), 16);
    const Buffer out(engine(), rows * columns, 16);
    ASSERT_TRUE(ok(memra_q8_to_lane_major(engine().get(), in.buffer().as<std::int8_t>(), rows,
                                          columns, out.as<std::int8_t>(), engine().stream())));
    engine().synchronize();
    const auto permuted = out.download_values<std::int8_t>();
    for (std::size_t group = 0; group < permuted.size(); group += 32) {
      std::vector<std::int8_t> sorted(permuted.begin() + static_cast<std::ptrdiff_t>(group),
                                      permuted.begin() + static_cast<std::ptrdiff_t>(group + 32));
      std::sort(sorted.begin(), sorted.end());
      ASSERT_TRUE(std::equal(sorted.begin(), sorted.end(), q.begin())) << columns << ", " << group;
    }
    EXPECT_TRUE(in.intact("q"));
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST_P(RowsStage, NullSlabOfOnePlaneSkipsThePairInItsStage) {
  ProblemSpec spec = spec_of(192, 128, 3);
  const auto solved = solve(spec);
  const std::int64_t n_pairs = solved->problem.n_pairs();
  const auto intermediate = static_cast<std::size_t>(spec.intermediate);
  for (const Formats& formats : all_formats()) {
    SCOPED_TRACE(formats.name);
    const DeviceProblem device(engine(), solved->in(formats));
    DeviceStages stages(device, *solved);
    const std::vector<const void*> whole = stages.ptrs();
    stages.feed_gate_up();
    for (const std::int64_t entry : {std::int64_t{1}, n_pairs + 4}) {  // gate of pair 1, up of 4
      std::vector<const void*> ptrs = whole;
      ptrs[static_cast<std::size_t>(entry)] = nullptr;
      stages.replace_ptrs(ptrs);
      std::vector<float> expected = solved->result.gate_up.act;
      const auto pair = static_cast<std::size_t>(entry % n_pairs);
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(pair * intermediate), intermediate,
                  0.0f);
      for (const std::uint32_t variant : stages.gate_up_variants()) {
        stages.gate_up(variant);
        const auto report = reference::compare_bits(std::span<const float>(expected), stages.act(),
                                                    spec.intermediate);
        EXPECT_TRUE(report.same()) << variant_name(variant) << ": " << report.text();
      }
    }
    // Down of pairs 2 and 3, which is the whole of token 1: its y is +0.
    std::vector<const void*> ptrs = whole;
    for (const std::int64_t pair : {2, 3})
      ptrs[static_cast<std::size_t>(2 * n_pairs + pair)] = nullptr;
    stages.replace_ptrs(ptrs);
    stages.feed_down();
    std::vector<float> expected = solved->result.y_f32;
    std::fill_n(expected.begin() + spec.hidden, spec.hidden, 0.0f);
    for (const std::uint32_t variant : stages.down_variants()) {
      stages.down(variant);
      const auto report =
          reference::compare_bits(std::span<const float>(expected),
                                  stages.y_buffer().download_values<float>(), spec.hidden);
      EXPECT_TRUE(report.same()) << variant_name(variant) << ": " << report.text();
    }
  }
}

TEST_P(RowsStage, AnyOrderOfTheExpertsGivesTheSameBits) {
  ProblemSpec spec = spec_of(192, 64, 17);
  spec.ids = reference::IdPattern::kDuplicates;
  const auto solved = solve(spec);
  const std::vector<std::int32_t>& ids = solved->problem.ids;
  std::vector<std::int32_t> order(ids.size());
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solved->in(formats));
    DeviceStages stages(device, *solved);
    stages.feed_gate_up();
    // Experts in rising and in another order, the pairs of each in rising and in falling order.
    for (const int factor : {1, 3}) {
      std::iota(order.begin(), order.end(), 0);
      if (factor != 1) std::reverse(order.begin(), order.end());
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return factor * ids[static_cast<std::size_t>(a)] % 4 <
               factor * ids[static_cast<std::size_t>(b)] % 4;
      });
      stages.replace_order(order);
      for (const std::uint32_t variant : stages.gate_up_variants()) {
        stages.gate_up(variant);
        EXPECT_TRUE(stages.check_act()) << formats.name << ", " << variant_name(variant);
      }
    }
  }
}

// Pairs that share slabs, in part or whole, with scales and biases of their own: whoever reads the
// weights once for several pairs must still finish each by itself.
TEST_P(RowsStage, PairsOfOneSlabMayDifferInAllElse) {
  ProblemSpec spec = spec_of(1408, 64, 9);
  spec.ids = reference::IdPattern::kDuplicates;
  spec.bias = true;
  const auto solved = solve(spec);
  const auto n_pairs = static_cast<std::size_t>(solved->problem.n_pairs());
  reference::Tables tables = reference::route(solved->problem);
  reference::PairPlane* planes[3] = {&tables.gate, &tables.up, &tables.down};
  reference::Random random(5);
  for (reference::PairPlane* plane : planes) {
    for (std::size_t pair = 0; pair < n_pairs; ++pair) {
      plane->scales[pair] *= random.uniform(0.5f, 1.5f);
      if (random.below(3) == 0) plane->bias[pair] = nullptr;
    }
  }
  // Gate of expert 1 with up of expert 2 now and then.
  for (std::size_t pair = 0; pair < n_pairs; pair += 3)
    tables.up.slabs[pair] = &solved->problem.banks[reference::kUp].slabs[2];
  const auto expected = reference::gate_up(solved->result.x_q, spec.top_k, spec.intermediate,
                                           tables.gate, tables.up, solved->problem.activation);
  std::vector<float> y(solved->result.y_f32.size(), 0.0f);
  reference::down(solved->result.act_q, spec.top_k, spec.hidden, tables.down,
                  solved->problem.weights, y);
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solved->in(formats));
    DeviceStages stages(device, *solved);
    stages.replace_tables(tables, solved->problem);
    stages.feed_gate_up();
    for (const std::uint32_t variant : stages.gate_up_variants()) {
      stages.gate_up(variant);
      const auto report = reference::compare_bits(std::span<const float>(expected.act),
                                                  stages.act(), spec.intermediate);
      EXPECT_TRUE(report.same()) << formats.name << variant_name(variant) << report.text();
    }
    stages.feed_down();
    for (const std::uint32_t variant : stages.down_variants()) {
      stages.down(variant);
      const auto report = reference::compare_bits(
          std::span<const float>(y), stages.y_buffer().download_values<float>(), spec.hidden);
      EXPECT_TRUE(report.same()) << formats.name << variant_name(variant) << report.text();
    }
  }
}

TEST_P(RowsStage, WithoutOrderTheOrderedVariantsAreErrors) {
  const auto solved = solve(spec_of(128, 64, 3));
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solved->in(formats));
    const DeviceStages stages(device, *solved);
    stages.feed_gate_up();
    stages.act_buffer().fill(0xFF);
    for (const std::uint32_t variant : stages.gate_up_variants()) {
      memra_rows_gate_up_args args = stages.gate_up_args(variant);
      args.order = nullptr;
      constexpr std::uint32_t kOrdered = MEMRA_ROWS_ORD | MEMRA_ROWS_DEDUP_ORDER;
      if ((variant & kOrdered) != 0) {
        EXPECT_TRUE(fails_with(memra_moe_rows_gate_up(engine().get(), &args, engine().stream()),
                               MEMRA_ERROR_INVALID_ARGUMENT, {"order"}));
        engine().synchronize();
        const Bytes act = stages.act_buffer().download();
        EXPECT_EQ(act, Bytes(act.size(), 0xFF)) << "written by a call that failed";
      } else if ((variant & MEMRA_ROWS_LANE_MAJOR) == 0) {
        ASSERT_TRUE(ok(memra_moe_rows_gate_up(engine().get(), &args, engine().stream())));
        engine().synchronize();
        EXPECT_TRUE(stages.check_act()) << variant_name(variant);
        stages.act_buffer().fill(0xFF);
      }
    }
  }
}

TEST_P(RowsStage, ZeroTokensAreFineWithNullPointers) {
  memra_rows_gate_up_args gate_up = MEMRA_ROWS_GATE_UP_ARGS_INIT;
  gate_up.top_k = 2;
  gate_up.hidden_size = gate_up.intermediate_size = 64;
  gate_up.gate_format = gate_up.up_format = MEMRA_NVFP4;
  EXPECT_TRUE(ok(memra_moe_rows_gate_up(engine().get(), &gate_up, engine().stream())));
  memra_rows_down_args down = MEMRA_ROWS_DOWN_ARGS_INIT;
  down.top_k = 2;
  down.hidden_size = down.intermediate_size = 64;
  down.format = MEMRA_NVFP4;
  EXPECT_TRUE(ok(memra_moe_rows_down(engine().get(), &down, engine().stream())));
  memra_q8_1_args q8 = MEMRA_Q8_1_ARGS_INIT;
  q8.columns = 64;
  EXPECT_TRUE(ok(memra_quantize_q8_1(engine().get(), &q8, engine().stream())));
  EXPECT_TRUE(
      ok(memra_q8_to_lane_major(engine().get(), nullptr, 0, 64, nullptr, engine().stream())));
}

MEMRA_ON_BOTH_BACKENDS(RowsStage);

}  // namespace
}  // namespace memra::test
