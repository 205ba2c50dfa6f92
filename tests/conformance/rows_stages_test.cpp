// The stages: each alone against the reference, and chained by hand against memra_moe_rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/stages.h"

namespace memra::test {
namespace {

using reference::DType;
using reference::ProblemSpec;

struct StageCase {
  const char* name;
  ProblemSpec spec;
};

ProblemSpec spec_of(std::int64_t hidden, std::int64_t intermediate, std::int64_t tokens) {
  ProblemSpec spec;
  spec.hidden = hidden;
  spec.intermediate = intermediate;
  spec.tokens = tokens;
  return spec;
}

const std::vector<StageCase>& cases() {
  static const std::vector<StageCase> list = [] {
    std::vector<StageCase> made = {
        {"small", spec_of(128, 64, 3)},           {"one_token", spec_of(192, 320, 1)},
        {"half_tiles", spec_of(320, 192, 9)},     {"long_rows", spec_of(2880, 64, 2)},
        {"long_act", spec_of(64, 2880, 2)},       {"wide", spec_of(1408, 640, 2)},
        {"longer_rows", spec_of(8192, 64, 1)},    {"bias", spec_of(320, 128, 5)},
        {"invalid_ids", spec_of(192, 128, 8)},    {"bf16_strided", spec_of(192, 128, 5)},
        {"f16_accumulate", spec_of(128, 192, 5)}, {"offset_bias", spec_of(128, 128, 7)},
        {"repeats", spec_of(256, 64, 33)},        {"clamped", spec_of(256, 192, 4)}};
    const auto edit = [&](const std::string& name) -> ProblemSpec& {
      return std::find_if(made.begin(), made.end(), [&](const auto& c) { return c.name == name; })
          ->spec;
    };
    edit("bias").bias = true;
    edit("invalid_ids").ids = reference::IdPattern::kWithInvalid;
    edit("bf16_strided").x_dtype = edit("bf16_strided").y_dtype = DType::kBF16;
    edit("bf16_strided").x_padding = edit("bf16_strided").y_padding = 8;
    edit("f16_accumulate").x_dtype = edit("f16_accumulate").y_dtype = DType::kF16;
    edit("f16_accumulate").accumulate = true;
    edit("offset_bias").local_offset = 1;
    edit("offset_bias").n_local = 2;
    edit("offset_bias").bias = true;
    edit("repeats").ids = reference::IdPattern::kDuplicates;
    edit("repeats").top_k = 3;
    edit("clamped").activation = {reference::Activation::kSwigluOai, 0.75f, 1.702f};
    return made;
  }();
  return list;
}

class RowsStages : public BackendCaseTest<int> {
 protected:
  const StageCase& stage_case() const { return cases()[static_cast<std::size_t>(param())]; }
};

TEST_P(RowsStages, EachAloneGivesTheReferencesBits) {
  const auto solved = solve(stage_case().spec);
  ASSERT_TRUE(is_informative(*solved));
  for (const Formats& formats : all_formats()) {
    SCOPED_TRACE(formats.name);
    const DeviceProblem device(engine(), solved->in(formats));
    const DeviceStages stages(device, *solved);
    stages.quantize_x();
    EXPECT_TRUE(stages.check_x_q());
    stages.feed_quantize_act();
    stages.quantize_act();
    EXPECT_TRUE(stages.check_act_q());
    stages.feed_gate_up();
    for (const std::uint32_t variant : stages.gate_up_variants()) {
      stages.gate_up(variant);
      EXPECT_TRUE(stages.check_act()) << variant_name(variant);
    }
    stages.feed_down();
    for (const std::uint32_t variant : stages.down_variants()) {
      stages.down(variant);
      EXPECT_TRUE(stages.check_y()) << variant_name(variant);
    }
    EXPECT_TRUE(stages.inputs_intact());
    EXPECT_TRUE(device.inputs_intact());
  }
}

TEST_P(RowsStages, ChainGivesTheBitsOfTheLayer) {
  const auto solved = solve(stage_case().spec);
  for (const Formats& formats : all_formats()) {
    SCOPED_TRACE(formats.name);
    const DeviceProblem device(engine(), solved->in(formats));
    const DeviceStages stages(device, *solved);
    for (const std::uint32_t variant : device.variants()) {
      stages.quantize_x();
      stages.gate_up(variant);
      stages.quantize_act();
      stages.down(variant);
      device.run({variant});
      EXPECT_EQ(stages.y_buffer().download(), device.y()) << variant_name(variant);
      EXPECT_TRUE(stages.check_y()) << variant_name(variant);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RowsStages,
    ::testing::Combine(both_backends(), ::testing::Range(0, static_cast<int>(cases().size()))),
    case_namer([](int i) { return cases()[static_cast<std::size_t>(i)].name; }));

// ---- Properties of single stages ----

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
