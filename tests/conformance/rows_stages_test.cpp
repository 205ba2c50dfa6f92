// The stages: each alone against the reference, and chained by hand against memra_moe_rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

// ---- Rule 1 over everything a float can be ----

class QuantizeQ8 : public BackendCaseTest<int> {};

TEST_P(QuantizeQ8, EveryMagnitudeAndTie) {
  const DType dtype = static_cast<DType>(param());
  constexpr std::int64_t kColumns = 192;
  constexpr std::int64_t kRows = 600;
  reference::Random random(12);
  Bytes x(static_cast<std::size_t>(kRows * kColumns * reference::dtype_bytes(dtype)));
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t group = 0; group < kColumns / 32; ++group) {
      // From subnormals to the largest, and about the border of 2^-119 on every third row.
      const auto exponent = static_cast<int>(row % 3 == 0 ? -121 + random.below(4)
                                                          : -149 + (row * 6 + group) % (149 + 129));
      const std::int64_t kind = random.below(8);
      const std::int64_t special = random.below(32);
      for (std::int64_t i = 0; i < 32; ++i) {
        float value = std::ldexp(random.normal() + 2.0f, exponent);
        // Multiples of a half under an amax of 127 are ties.
        if (kind == 1) value = static_cast<float>(random.below(509) - 254) * 0.5f;
        if (kind == 1 && i == special) value = 127.0f;
        if (kind == 2) value = -std::ldexp(1.0f, exponent);
        if (kind == 3) value = std::ldexp(1.0f, exponent + static_cast<int>(random.below(6)));
        if (kind == 4 && i == special) value = std::numeric_limits<float>::infinity();
        if (kind == 5 && i == special) value = reference::from_bits(0xFF800001u);
        if (kind == 6) value = i % 2 == 0 ? -0.0f : 0.0f;
        if (kind == 7) value = std::numeric_limits<float>::max() * (i == special ? -1.0f : 0.3f);
        reference::store(x, dtype, row * kColumns + group * 32 + i, value);
      }
    }
  }
  const auto expected = reference::quantize_q8(
      reference::widen(x, dtype, kRows, kColumns, kColumns), kRows, kColumns);
  const Input in(engine(), x, 16);
  const Buffer q(engine(), kRows * kColumns, 16);
  const Buffer d(engine(), kRows * (kColumns / 32) * 4, 16);
  memra_q8_1_args args = MEMRA_Q8_1_ARGS_INIT;
  args.x_dtype = abi(dtype);
  args.x = in.data();
  args.rows = kRows;
  args.columns = kColumns;
  args.q = q.as<std::int8_t>();
  args.d = d.as<float>();
  ASSERT_TRUE(ok(memra_quantize_q8_1(engine().get(), &args, engine().stream())));
  engine().synchronize();
  EXPECT_TRUE(same_bytes(bytes_of(expected.q), q.download()));
  EXPECT_TRUE(same_bytes(bytes_of(expected.d), d.download()));
  EXPECT_TRUE(q.guards_intact());
  EXPECT_TRUE(d.guards_intact());
  EXPECT_TRUE(in.intact("x"));
}

INSTANTIATE_TEST_SUITE_P(Backends, QuantizeQ8,
                         ::testing::Combine(both_backends(), ::testing::Range(0, 3)),
                         case_namer([](int dtype) {
                           return dtype == 0 ? "f32" : dtype == 1 ? "f16" : "bf16";
                         }));

}  // namespace
}  // namespace memra::test
