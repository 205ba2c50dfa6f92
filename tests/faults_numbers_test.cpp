// Faults of numbers that users of such kernels have met, by example and on both backends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "conformance/banks.h"
#include "conformance/device_problem.h"
#include "conformance/fixture.h"
#include "reference/weights.h"

namespace memra::test {
namespace {

using reference::DType;
using reference::MoeProblem;
using reference::ProblemSpec;
using reference::RowKind;

class FaultsNumbers : public BackendTest {
 protected:
  // y in V1 and V2 and in every variant, each held against the reference first.
  template <typename Check>
  void in_every_variant(const Solved& solved, Check check) {
    for (const Formats& formats : {v1(), v2()}) {
      const DeviceProblem device(engine(), solved.in(formats));
      for (const std::uint32_t variant : device.variants()) {
        device.run({variant});
        SCOPED_TRACE(formats.name);
        SCOPED_TRACE(variant_name(variant));
        EXPECT_TRUE(device.check({variant}, solved.result));
        check(reference::widen(device.y(), solved.problem.y_dtype, solved.problem.tokens,
                               solved.problem.hidden, solved.problem.y_stride));
      }
    }
  }
};

void expect_plus_zero(const std::vector<float>& y) {
  const bool zero =
      std::all_of(y.begin(), y.end(), [](float value) { return reference::bits_of(value) == 0; });
  EXPECT_TRUE(zero);
}

ProblemSpec spec_of(std::int64_t tokens) {
  ProblemSpec spec;
  spec.hidden = 192;
  spec.intermediate = 128;
  spec.tokens = tokens;
  return spec;
}

// Gate and up are two arguments and are not swapped: silu(0) * u is 0 for a zero gate bank, as is
// silu(g) * 0, and the clamped forms show which is which.
TEST_P(FaultsNumbers, ZeroGateOrUpBankGivesZero) {
  for (const reference::Plane plane : {reference::kGate, reference::kUp, reference::kDown}) {
    MoeProblem problem = solve(spec_of(3))->problem;
    for (reference::Slab& slab : problem.banks[plane].slabs)
      std::fill(slab.bytes.begin(), slab.bytes.end(), std::uint8_t{0});
    in_every_variant(*solve("zero bank", std::move(problem)), [](const std::vector<float>& y) {
      // -0 is zero as well: a sum of zeros of both signs.
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float value) { return value == 0.0f; }));
    });
  }
}

TEST_P(FaultsNumbers, SwappedGateAndUpDiffer) {
  const auto solved = solve(spec_of(3));
  MoeProblem swapped = solved->problem;
  std::swap(swapped.banks[reference::kGate], swapped.banks[reference::kUp]);
  const auto other = solve("swapped", std::move(swapped));
  EXPECT_NE(solved->result.y, other->result.y);
  in_every_variant(*other, [](const std::vector<float>&) {});
}

// A zero down bank with bias 1 in every output, router weights .25 and .75: exactly 1.
TEST_P(FaultsNumbers, DownBiasIsWeightedByTheRouter) {
  ProblemSpec spec = spec_of(3);
  spec.bias = true;
  MoeProblem problem = solve(spec)->problem;
  for (reference::Slab& slab : problem.banks[reference::kDown].slabs)
    std::fill(slab.bytes.begin(), slab.bytes.end(), std::uint8_t{0});
  std::fill(problem.banks[reference::kDown].bias.begin(),
            problem.banks[reference::kDown].bias.end(), 1.0f);
  for (std::size_t pair = 0; pair < problem.weights.size(); ++pair)
    problem.weights[pair] = pair % 2 == 0 ? 0.25f : 0.75f;
  in_every_variant(*solve("bias", std::move(problem)), [](const std::vector<float>& y) {
    EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float value) { return value == 1.0f; }));
  });
}

// Weights that are 0, negative and beyond 1 act once, and are not normalised: y is linear in them.
TEST_P(FaultsNumbers, RouterWeightsAreMultipliedOnce) {
  ProblemSpec spec = spec_of(4);
  spec.top_k = 1;
  MoeProblem problem = solve(spec)->problem;
  // The same token and expert four times.
  for (std::size_t token = 1; token < 4; ++token) {
    std::copy_n(problem.x.begin(), problem.hidden * 4,
                problem.x.begin() + static_cast<std::ptrdiff_t>(token) * problem.hidden * 4);
    problem.ids[token] = problem.ids[0];
  }
  problem.weights = {1.0f, 0.0f, -1.0f, 2.0f};
  const auto hidden = static_cast<std::size_t>(problem.hidden);
  in_every_variant(*solve("weights", std::move(problem)), [&](const std::vector<float>& y) {
    for (std::size_t col = 0; col < hidden; ++col) {
      EXPECT_EQ(y[hidden + col], 0.0f);
      EXPECT_EQ(y[2 * hidden + col], -y[col]);
      EXPECT_EQ(y[3 * hidden + col], 2 * y[col]);
    }
  });
}

TEST_P(FaultsNumbers, ZeroRowsAndBatchesGivePlusZero) {
  ProblemSpec spec = spec_of(5);
  for (std::int64_t token = 0; token < 5; ++token)
    spec.special_rows.push_back({token, token == 2 ? RowKind::kTiny41 : RowKind::kZero});
  in_every_variant(*solve(spec), expect_plus_zero);
  spec.special_rows = {{3, RowKind::kZero}};
  in_every_variant(*solve(spec), [](const std::vector<float>& y) {
    expect_plus_zero({y.begin() + 3 * 192, y.begin() + 4 * 192});
    EXPECT_TRUE(reference::count_values({y.data(), 3 * 192}).informative());
  });
}

TEST_P(FaultsNumbers, NanAndInfStayInTheirToken) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ProblemSpec spec = spec_of(9);
    spec.x_dtype = spec.y_dtype = dtype;
    const auto clean = solve(spec);
    const auto expected =
        reference::widen(clean->result.y, dtype, 9, spec.hidden, clean->problem.y_stride);
    for (const RowKind kind : {RowKind::kOneNan, RowKind::kOneInf}) {
      // The same rows but for token 4.
      MoeProblem problem = clean->problem;
      reference::Random random(3);
      reference::fill_row(problem, 4, kind, random);
      in_every_variant(*solve("nan", std::move(problem)), [&](const std::vector<float>& y) {
        for (std::size_t i = 0; i < y.size(); ++i) {
          if (i / 192 == 4) {
            ASSERT_TRUE(std::isnan(y[i])) << i;
          } else {
            ASSERT_EQ(reference::bits_of(y[i]), reference::bits_of(expected[i])) << i;
          }
        }
      });
    }
  }
}

TEST_P(FaultsNumbers, HugeAndTinyActivationsStayFinite) {
  const auto expect_finite = [](const std::vector<float>& y) {
    const auto counts = reference::count_values(y);
    EXPECT_EQ(counts.nan + counts.inf, 0);
  };
  for (const RowKind kind : {RowKind::kOneHuge, RowKind::kBlockOf6000, RowKind::kTiny38,
                             RowKind::kTinyMixed, RowKind::kTiny41}) {
    ProblemSpec spec = spec_of(3);
    spec.special_rows = {{1, kind}};
    in_every_variant(*solve(spec), expect_finite);
  }
  for (const float huge : {3000.0f, 1e4f, 1e5f, 1e6f}) {
    MoeProblem problem = solve(spec_of(3))->problem;
    reference::store(problem.x, DType::kF32, 100, huge);
    reference::store(problem.x, DType::kF32, 192 + 7, -huge);
    in_every_variant(*solve("huge", std::move(problem)), expect_finite);
  }
}

// A scale byte that is no code, in a block of zero codes and in one of others: it counts as 0 in
// V1, after repack to V2 and in dequantize, and repack tells of the first.
TEST_P(FaultsNumbers, InvalidScaleCodesAreZeroEverywhere) {
  for (const int code : {0x7F, 0x80, 0xB8, 0xFF}) {
    SCOPED_TRACE(code);
    MoeProblem broken = solve(spec_of(5))->problem;
    MoeProblem zeroed = broken;
    for (std::size_t plane = 0; plane < 3; ++plane) {
      for (std::size_t expert = 0; expert < 4; ++expert) {
        for (const std::int64_t col : {16, 96}) {
          reference::Slab& slab = broken.banks[plane].slabs[expert];
          if (col == 16) reference::set_codes(slab, 3, col, {});
          reference::set_scale(slab, 3, col, static_cast<std::uint8_t>(code));
          reference::Slab& other = zeroed.banks[plane].slabs[expert];
          if (col == 16) reference::set_codes(other, 3, col, {});
          reference::set_scale(other, 3, col, 0);
        }
      }
    }
    const auto expected = solve("zeroed", std::move(zeroed));
    const auto solved = solve("broken", std::move(broken));
    ASSERT_EQ(solved->result.y, expected->result.y);
    in_every_variant(
        *solved, [](const std::vector<float>& y) { EXPECT_EQ(reference::count_values(y).nan, 0); });

    const reference::Bank& bank = solved->problem.banks[reference::kGate];
    const std::int64_t slab = reference::slab_bytes(bank.rows, bank.cols);
    const Buffer src(engine(), bank_bytes(bank.slabs, 0));
    const Buffer dst(engine(), 4 * slab);
    const Report report(engine());
    memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
    repack.rows = bank.rows;
    repack.columns = bank.cols;
    repack.n_experts = 4;
    repack.src = src.data();
    repack.dst = dst.data();
    repack.report = report.get();
    ASSERT_TRUE(ok(memra_repack_v2(engine().get(), &repack, engine().stream())));
    engine().synchronize();
    EXPECT_TRUE(report.check({8, 0, 3, 1}));
    Bytes decoded[2];
    for (int i = 0; i < 2; ++i) {
      const Buffer out(engine(), 4 * bank.rows * bank.cols * 4);
      memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
      args.format = i == 0 ? MEMRA_NVFP4 : MEMRA_NVFP4_V2;
      args.rows = bank.rows;
      args.columns = bank.cols;
      args.n_experts = 4;
      args.src = i == 0 ? src.data() : dst.data();
      args.dst = out.data();
      ASSERT_TRUE(ok(memra_dequantize(engine().get(), &args, engine().stream())));
      engine().synchronize();
      decoded[i] = out.download();
    }
    // Code times 0 keeps the code's sign, in both.
    EXPECT_TRUE(same_bytes(decoded[0], decoded[1]));
  }
}

// An encoder that takes the next scale code above or below loses these.
TEST_P(FaultsNumbers, ScaleCodesAreTheNearest) {
  struct Known {
    float amax6;  // amax / 6
    float scale;
  };
  const Known known[] = {{240, 240}, {248, 256}, {256, 256}, {288, 288},
                         {320, 320}, {400, 384}, {447, 448}, {448, 448}};
  for (const Known& k : known) {
    std::vector<float> values(8 * 64, 0.0f);
    values[0] = 6 * k.amax6;
    const Input src(engine(), values);
    const Buffer bank(engine(), reference::slab_bytes(8, 64));
    const Input scale(engine(), std::vector<float>{1.0f});
    memra_quantize_args args = MEMRA_QUANTIZE_ARGS_INIT;
    args.format = MEMRA_NVFP4;
    args.rows = 8;
    args.columns = 64;
    args.n_experts = 1;
    args.src = src.data();
    args.dst = bank.data();
    args.expert_scales = scale.buffer().as<float>();
    ASSERT_TRUE(ok(memra_quantize_nvfp4(engine().get(), &args, engine().stream())));
    engine().synchronize();
    EXPECT_EQ(reference::ue4m3_value(bank.download()[0]), k.scale) << k.amax6;
    EXPECT_TRUE(scale.intact("expert_scales"));
  }
}

MEMRA_ON_BOTH_BACKENDS(FaultsNumbers);

}  // namespace
}  // namespace memra::test
