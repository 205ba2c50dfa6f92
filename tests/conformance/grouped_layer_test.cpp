// The layer by the grouped path: close to f64 on every shape, format and feature.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/grouped.h"

namespace memra::test {
namespace {

using reference::Activation;
using reference::DType;
using reference::MoeProblem;
using reference::ProblemSpec;
using reference::RowKind;

struct LayerCase {
  const char* name;
  ProblemSpec spec;
};

LayerCase layer_case(const char* name, std::int64_t hidden, std::int64_t intermediate,
                     std::int64_t tokens) {
  LayerCase made{name, {}};
  made.spec.hidden = hidden;
  made.spec.intermediate = intermediate;
  made.spec.tokens = tokens;
  return made;
}

const std::vector<LayerCase>& layer_cases() {
  static const std::vector<LayerCase> list = [] {
    std::vector<LayerCase> made = {
        layer_case("small", 128, 64, 3),           layer_case("one_token", 192, 320, 1),
        layer_case("half_tiles", 320, 192, 70),    layer_case("long_rows", 2688, 64, 5),
        layer_case("long_act", 64, 1856, 5),       layer_case("narrow", 64, 64, 40),
        layer_case("bias", 320, 128, 9),           layer_case("all_scales", 256, 128, 17),
        layer_case("bf16_strided", 192, 128, 21),  layer_case("f16_accumulate", 128, 192, 21),
        layer_case("invalid_ids", 192, 128, 40),   layer_case("local", 128, 128, 33),
        layer_case("repeats", 256, 64, 33),        layer_case("one_expert", 192, 128, 130),
        layer_case("preclamp", 256, 192, 12),      layer_case("postclamp", 256, 192, 12),
        layer_case("oai_bias", 256, 192, 12),      layer_case("many_experts", 64, 64, 150),
        layer_case("accumulate_local", 128, 64, 9)};
    const auto edit = [&](const char* name) -> ProblemSpec& {
      return std::find_if(made.begin(), made.end(),
                          [&](const LayerCase& c) { return std::strcmp(c.name, name) == 0; })
          ->spec;
    };
    edit("bias").bias = true;
    edit("all_scales").scales = reference::ScaleCodes::kAll;
    edit("bf16_strided").x_dtype = edit("bf16_strided").y_dtype = DType::kBF16;
    edit("bf16_strided").x_padding = edit("bf16_strided").y_padding = 8;
    edit("f16_accumulate").x_dtype = edit("f16_accumulate").y_dtype = DType::kF16;
    edit("f16_accumulate").accumulate = true;
    edit("invalid_ids").ids = reference::IdPattern::kWithInvalid;
    edit("local").local_offset = 1;
    edit("local").n_local = 2;
    edit("local").bias = true;
    edit("repeats").ids = reference::IdPattern::kDuplicates;
    edit("repeats").top_k = 3;
    edit("one_expert").ids = reference::IdPattern::kOneExpert;
    edit("preclamp").activation = {Activation::kSwigluPreclamp, 1.5f, 1.0f};
    edit("postclamp").activation = {Activation::kSwigluPostclamp, 1.5f, 1.0f};
    edit("oai_bias").activation = {Activation::kSwigluOai, 1.5f, 1.702f};
    edit("oai_bias").bias = true;
    edit("many_experts").n_experts = 300;
    edit("many_experts").top_k = 4;
    edit("accumulate_local").local_offset = 2;
    edit("accumulate_local").n_local = 1;
    edit("accumulate_local").accumulate = true;
    return made;
  }();
  return list;
}

class GroupedLayer : public GroupedCaseTest<int> {
 protected:
  const ProblemSpec& spec() const { return layer_cases()[static_cast<std::size_t>(param())].spec; }
};

TEST_P(GroupedLayer, IsCloseToF64InEveryFormat) {
  const auto exact = solve_exact(spec());
  ASSERT_TRUE(is_informative(*exact));
  for (const Formats& formats : all_formats()) {
    SCOPED_TRACE(formats.name);
    const DeviceProblem device(engine(), exact->solved.in(formats));
    device.run(grouped_call());
    EXPECT_TRUE(device.check_close(grouped_call(), exact->y));
    const Bytes eager = device.y();
    device.run_recorded(grouped_call());
    EXPECT_EQ(eager, device.y()) << "recorded";
    EXPECT_TRUE(device.check_close(grouped_call(), exact->y)) << "recorded";
    EXPECT_TRUE(device.inputs_intact());
  }
}

TEST_P(GroupedLayer, FormatsAndPlacementsGiveTheSameBits) {
  const auto exact = solve_exact(spec());
  Bytes expected;
  for (const Formats& formats : all_formats()) {
    for (const Slabs slabs : {Slabs::kPacked, Slabs::kStrided, Slabs::kPointers, Slabs::kTables}) {
      const DeviceProblem device(engine(), exact->solved.in(formats), {slabs, 4});
      device.run(grouped_call());
      if (expected.empty()) expected = device.y();
      EXPECT_EQ(expected, device.y()) << formats.name << ", placement " << static_cast<int>(slabs);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, GroupedLayer,
    ::testing::Combine(both_backends(),
                       ::testing::Range(0, static_cast<int>(layer_cases().size()))),
    case_namer([](int i) { return layer_cases()[static_cast<std::size_t>(i)].name; }));

// ---- Values ----

class GroupedValues : public GroupedTest {
 protected:
  // In V1 and V2.
  void expect_close(const ExactSolved& exact) {
    for (const Formats& formats : {v1(), v2()}) {
      const DeviceProblem device(engine(), exact.solved.in(formats));
      device.run(grouped_call());
      EXPECT_TRUE(device.check_close(grouped_call(), exact.y)) << formats.name;
    }
  }
};

TEST_P(GroupedValues, SpecialRowsStayAmongThemselves) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ProblemSpec spec;
    spec.hidden = 192;
    spec.tokens = 12;
    spec.x_dtype = dtype;
    const auto plain = solve_exact(spec);
    spec.special_rows = {{1, RowKind::kZero},    {3, RowKind::kOneNan},      {4, RowKind::kOneInf},
                         {6, RowKind::kOneHuge}, {7, RowKind::kBlockOf6000}, {9, RowKind::kTiny38}};
    const auto special = solve_exact(spec);
    const DeviceProblem before(engine(), plain->problem());
    const DeviceProblem after(engine(), special->problem());
    before.run(grouped_call());
    after.run(grouped_call());
    for (std::int64_t token = 0; token < spec.tokens; ++token) {
      const std::vector<float> row = after.y_row(token);
      const bool is_nan = token == 3 || token == 4;
      for (const float value : row) {
        if (is_nan) {
          ASSERT_EQ(reference::bits_of(value), reference::kCanonicalNanF32) << token;
        } else {
          ASSERT_TRUE(std::isfinite(value)) << token;
        }
        if (token == 1) {
          ASSERT_EQ(reference::bits_of(value), 0u);
        }
      }
      if (std::none_of(spec.special_rows.begin(), spec.special_rows.end(),
                       [&](const reference::SpecialRow& s) { return s.token == token; })) {
        EXPECT_EQ(before.y_row(token), row) << token;
      }
    }
    // Each by itself: a huge row would hide the errors of the others.
    for (const std::int64_t token : {6, 7}) {
      const Call call = grouped_call(token, 1);
      after.run(call);
      EXPECT_TRUE(after.check_close(call, special->y)) << token;
    }
  }
}

// Down's outputs are beyond f16, and the router weight brings them back.
TEST_P(GroupedValues, RawOutputsBeyondF16) {
  ProblemSpec spec;
  spec.hidden = 256;
  spec.tokens = 9;
  MoeProblem problem = reference::make_problem(spec);
  for (float& scale : problem.banks[reference::kDown].scales)
    scale *= 0x1p40f;
  for (float& weight : problem.weights)
    weight *= 0x1p-40f;
  const auto exact = solve_exact(problem);
  ASSERT_TRUE(is_informative(*exact));
  expect_close(*exact);
  // And in the activations between.
  for (float& scale : problem.banks[reference::kUp].scales)
    scale *= 0x1p30f;
  for (float& scale : problem.banks[reference::kDown].scales)
    scale *= 0x1p-30f;
  expect_close(*solve_exact(problem));
}

TEST_P(GroupedValues, RouterWeightsAreUsedAsTheyAre) {
  ProblemSpec spec;
  spec.tokens = 6;
  MoeProblem problem = reference::make_problem(spec);
  problem.weights = {0, 0, -1, 2.5f, 0, 1, 100, 1e-3f, -0.0f, 3, 1, 1};
  const auto exact = solve_exact(problem);
  expect_close(*exact);
  const DeviceProblem device(engine(), problem);
  device.run(grouped_call());
  for (const float value : device.y_row(0))
    EXPECT_EQ(reference::bits_of(value), 0u);
}

TEST_P(GroupedValues, AllZeroGateOrUpGivesZero) {
  for (const reference::Plane plane : {reference::kGate, reference::kUp}) {
    MoeProblem problem = reference::make_problem({});
    for (reference::Slab& slab : problem.banks[plane].slabs)
      std::fill(slab.bytes.begin(), slab.bytes.end(), 0);
    const DeviceProblem device(engine(), problem);
    device.run(grouped_call());
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      for (const float value : device.y_row(token))
        ASSERT_EQ(value, 0.0f);
    }
  }
}

TEST_P(GroupedValues, DownBiasIsWeightedByTheRouter) {
  MoeProblem problem = reference::make_problem({});
  reference::Bank& down = problem.banks[reference::kDown];
  for (reference::Slab& slab : down.slabs)
    std::fill(slab.bytes.begin(), slab.bytes.end(), 0);
  down.bias.assign(static_cast<std::size_t>(problem.n_local * problem.hidden), 1.0f);
  for (std::size_t i = 0; i < problem.weights.size(); ++i)
    problem.weights[i] = i % 2 == 0 ? 0.25f : 0.75f;
  const DeviceProblem device(engine(), problem);
  device.run(grouped_call());
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    for (const float value : device.y_row(token))
      ASSERT_EQ(value, 1.0f);
  }
}

// In the order of the slots, in f32: 1 + 2^-24 + 2^-24 is 1, and in any other order it is more.
TEST_P(GroupedValues, SlotsAreAddedInTheirOrder) {
  ProblemSpec spec;
  spec.tokens = 40;
  spec.top_k = 3;
  MoeProblem problem = reference::make_problem(spec);
  reference::Bank& down = problem.banks[reference::kDown];
  for (reference::Slab& slab : down.slabs)
    std::fill(slab.bytes.begin(), slab.bytes.end(), 0);
  down.bias.assign(static_cast<std::size_t>(problem.n_local * problem.hidden), 1.0f);
  for (std::size_t pair = 0; pair < problem.ids.size(); pair += 3) {
    problem.ids[pair] = pair % 2 == 0 ? 3 : 0;
    problem.ids[pair + 1] = 1;
    problem.ids[pair + 2] = 2;
    problem.weights[pair] = 1.0f;
    problem.weights[pair + 1] = problem.weights[pair + 2] = 0x1p-24f;
  }
  const DeviceProblem device(engine(), problem);
  device.run(grouped_call());
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    for (const float value : device.y_row(token))
      ASSERT_EQ(value, 1.0f) << token;
  }
}

// In zero blocks and in others.
TEST_P(GroupedValues, InvalidScaleCodesDecodeToZero) {
  MoeProblem problem = reference::make_problem({});
  std::uint8_t code = 0x7F;
  for (reference::Bank& bank : problem.banks) {
    for (reference::Slab& slab : bank.slabs) {
      for (std::int64_t row = 0; row < slab.rows; row += 3)
        reference::set_scale(slab, row, row % slab.cols, code++ | 0x80);
      reference::set_scale(slab, 1, 0, 0x7F);
    }
  }
  const auto exact = solve_exact(problem);
  ASSERT_TRUE(is_informative(*exact));
  expect_close(*exact);
  const DeviceProblem old_format(engine(), exact->solved.in(v1()));
  const DeviceProblem new_format(engine(), exact->solved.in(v2()));
  old_format.run(grouped_call());
  new_format.run(grouped_call());
  EXPECT_EQ(old_format.y(), new_format.y());
}

MEMRA_ON_BOTH_BACKENDS(GroupedValues);

}  // namespace
}  // namespace memra::test
