// The reference checks itself: the whole layer against f64, and what the contract says of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/compare.h"
#include "reference/exact.h"
#include "reference/generate.h"
#include "reference/moe.h"

namespace memra::reference {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

bool same_bytes(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  return a == b;
}

BitReport compare_y(const MoeProblem& problem, const MoeResult& expected, const MoeResult& actual) {
  return compare_bits(expected.y, actual.y, problem.y_dtype, problem.tokens, problem.hidden,
                      problem.y_stride);
}

std::vector<float> y_row(const MoeProblem& problem, const MoeResult& result, std::int64_t token) {
  const std::vector<float> y =
      widen(result.y, problem.y_dtype, problem.tokens, problem.hidden, problem.y_stride);
  return {y.begin() + token * problem.hidden, y.begin() + (token + 1) * problem.hidden};
}

// ---- Against f64 ----

double exact_dot(const Slab& slab, std::int64_t row, const QuantizedRows& x, std::int64_t x_row) {
  double sum = 0;
  for (std::int64_t col = 0; col < slab.cols; ++col) {
    sum += exact_weight(slab, row, col) * x.q[at(x_row * x.cols + col)] *
           static_cast<double>(x.d[at((x_row * x.cols + col) / 32)]);
  }
  return sum;
}

double bias_of(const Bank& bank, std::int64_t local, std::int64_t row) {
  return bank.bias.empty() ? 0.0 : static_cast<double>(bank.bias[at(local * bank.rows + row)]);
}

void expect_close_to_f64(const MoeProblem& problem) {
  const MoeResult result = moe_rows(problem);
  ASSERT_TRUE(count_values(result.gate_up.act).informative());
  ASSERT_TRUE(count_values(result.y_f32).informative());

  std::vector<double> act(result.gate_up.act.size(), 0.0);
  std::vector<double> y(result.y_f32.size(), 0.0);
  for (std::int64_t pair = 0; pair < problem.n_pairs(); ++pair) {
    const std::int64_t local = problem.ids[at(pair)] - problem.local_offset;
    if (local < 0 || local >= problem.n_local) continue;
    const auto linear = [&](Plane plane, std::int64_t row, const QuantizedRows& x,
                            std::int64_t x_row) {
      const Bank& bank = problem.banks[plane];
      return exact_dot(bank.slabs[at(local)], row, x, x_row) *
                 static_cast<double>(bank.scales[at(local)]) +
             bias_of(bank, local, row);
    };
    const std::int64_t token = pair / problem.top_k;
    for (std::int64_t row = 0; row < problem.intermediate; ++row) {
      act[at(pair * problem.intermediate + row)] =
          exact_activation(problem.activation, linear(kGate, row, result.x_q, token),
                           linear(kUp, row, result.x_q, token));
    }
    for (std::int64_t row = 0; row < problem.hidden; ++row) {
      y[at(token * problem.hidden + row)] +=
          static_cast<double>(problem.weights[at(pair)]) * linear(kDown, row, result.act_q, pair);
    }
  }
  const Closeness act_close = closeness(act, result.gate_up.act, problem.intermediate);
  EXPECT_LT(act_close.relative_l2, 1e-5) << act_close.text();
  const Closeness y_close = closeness(y, result.y_f32, problem.hidden);
  EXPECT_LT(y_close.relative_l2, 1e-5) << y_close.text();
}

TEST(ReferenceLayer, StagesAreCloseToF64) {
  for (const Activation kind : {Activation::kSwiglu, Activation::kSwigluPreclamp,
                                Activation::kSwigluPostclamp, Activation::kSwigluOai}) {
    ProblemSpec spec;
    spec.hidden = 320;
    spec.intermediate = 192;
    spec.activation.kind = kind;
    spec.activation.limit = 1.5f;
    for (const bool bias : {false, true}) {
      spec.bias = bias;
      spec.scales = bias ? ScaleCodes::kAll : ScaleCodes::kBand;
      spec.with_format(bias ? Format::kV2 : Format::kV1);
      ++spec.seed;
      expect_close_to_f64(make_problem(spec));
    }
  }
}

TEST(ReferenceLayer, LongRowsAreCloseToF64) {
  ProblemSpec spec;
  spec.hidden = 2880;
  spec.intermediate = 1408;
  spec.n_experts = 2;
  spec.tokens = 1;
  expect_close_to_f64(make_problem(spec));
}

TEST(ReferenceLayer, QuantisationErrorOfActivationsIsSmall) {
  // int8 activations against the unquantised input: a gross error in rule 1 would show here.
  ProblemSpec spec;
  spec.hidden = 256;
  const MoeProblem problem = make_problem(spec);
  const MoeResult result = moe_rows(problem);
  std::vector<double> x;
  std::vector<float> restored;
  for (std::int64_t i = 0; i < problem.tokens * problem.hidden; ++i) {
    x.push_back(load(problem.x, DType::kF32, i));
    restored.push_back(static_cast<float>(result.x_q.q[at(i)]) * result.x_q.d[at(i / 32)]);
  }
  EXPECT_LT(closeness(x, restored, problem.hidden).relative_l2, 0.01);
}

// ---- Invariances of the layer ----

TEST(ReferenceLayer, FormatsAndBatchesGiveTheSameBits) {
  ProblemSpec spec;
  spec.hidden = 192;
  spec.intermediate = 128;
  spec.tokens = 9;
  spec.bias = true;
  const MoeProblem problem = make_problem(spec);
  const MoeResult result = moe_rows(problem);
  ASSERT_TRUE(count_values(result.y_f32).informative());
  EXPECT_TRUE(same_bytes(moe_rows(with_format(problem, Format::kV2)).y, result.y));
  MoeProblem mixed = problem;
  mixed.banks[kUp] = with_format(problem, Format::kV2).banks[kUp];
  EXPECT_TRUE(same_bytes(moe_rows(mixed).y, result.y));
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    const MoeProblem alone = only_tokens(problem, token, 1);
    EXPECT_EQ(y_row(alone, moe_rows(alone), 0), y_row(problem, result, token));
  }
}

TEST(ReferenceLayer, GeneratedProblemsAreInformative) {
  for (const ScaleCodes scales : {ScaleCodes::kAll, ScaleCodes::kBand}) {
    ProblemSpec spec;
    spec.hidden = 512;
    spec.intermediate = 256;
    spec.scales = scales;
    spec.activation.kind = Activation::kSwigluPreclamp;
    const MoeProblem problem = make_problem(spec);
    const MoeResult result = moe_rows(problem);
    double square = 0;
    for (const float g : result.gate_up.gate)
      square += static_cast<double>(g) * g;
    const double rms = std::sqrt(square / static_cast<double>(result.gate_up.gate.size()));
    EXPECT_GT(rms, 0.6);
    EXPECT_LT(rms, 1.5);
    EXPECT_EQ(count_saturated(problem, result), 0);
    MoeProblem tight = problem;
    tight.activation.limit = 1.0f;
    const MoeResult clamped = moe_rows(tight);
    const double share = static_cast<double>(count_saturated(tight, clamped)) /
                         static_cast<double>(clamped.gate_up.act.size());
    EXPECT_GT(share, 0.1);
    EXPECT_LT(share, 0.7);
    EXPECT_GT(compare_y(problem, result, clamped).differing, problem.hidden);
  }
}

// ---- Rules of zero, NaN, and skipping ----

TEST(ReferenceLayer, ZeroBanksGiveExactZero) {
  for (const Plane plane : {kGate, kUp, kDown}) {
    MoeProblem problem = make_problem({});
    for (Slab& slab : problem.banks[plane].slabs) {
      std::fill(slab.bytes.begin(), slab.bytes.end(), std::uint8_t{0});
    }
    const MoeResult result = moe_rows(problem);
    EXPECT_EQ(count_values(result.y_f32).nonzero, 0);
    if (plane != kDown) {
      EXPECT_EQ(count_values(result.gate_up.act).nonzero, 0);
    }
  }
}

TEST(ReferenceLayer, ZeroInputsGivePlusZero) {
  ProblemSpec spec;
  for (std::int64_t token = 0; token < spec.tokens; ++token) {
    spec.special_rows.push_back({token, token == 1 ? RowKind::kTiny41 : RowKind::kZero});
  }
  const MoeResult result = moe_rows(make_problem(spec));
  for (const float y : result.y_f32)
    EXPECT_EQ(bits_of(y), 0u);
}

TEST(ReferenceLayer, SpecialRowsStayInTheirToken) {
  const RowKind kinds[] = {RowKind::kOneNan,    RowKind::kOneInf,  RowKind::kTiny38,
                           RowKind::kTinyMixed, RowKind::kOneHuge, RowKind::kBlockOf6000};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ProblemSpec spec;
    spec.tokens = 4;
    spec.x_dtype = dtype;
    const MoeProblem plain = make_problem(spec);
    const MoeResult expected = moe_rows(plain);
    for (const RowKind kind : kinds) {
      MoeProblem problem = plain;
      Random random(5);
      fill_row(problem, 2, kind, random);
      const MoeResult result = moe_rows(problem);
      for (std::int64_t token = 0; token < 4; ++token) {
        const std::vector<float> row = y_row(problem, result, token);
        if (token != 2) {
          EXPECT_EQ(row, y_row(plain, expected, token));
        } else if (kind == RowKind::kOneNan || kind == RowKind::kOneInf) {
          for (const float y : row)
            EXPECT_EQ(bits_of(y), kCanonicalNanF32);
        } else {
          EXPECT_EQ(count_values(row).nan + count_values(row).inf, 0);
        }
      }
    }
  }
}

TEST(ReferenceLayer, InvalidScalesAreZeroInBothFormats) {
  MoeProblem problem = make_problem({});
  for (Bank& bank : problem.banks) {
    for (Slab& slab : bank.slabs) {
      set_scale(slab, 1, 16, 0x7F);
      set_scale(slab, 2, 32, 0xB8);
    }
  }
  const MoeResult result = moe_rows(problem);
  EXPECT_EQ(count_values(result.y_f32).nan, 0);
  EXPECT_TRUE(same_bytes(moe_rows(with_format(problem, Format::kV2)).y, result.y));
}

TEST(ReferenceLayer, InvalidIdsAreSkippedAndCounted) {
  ProblemSpec spec;
  spec.tokens = 1;
  spec.top_k = 4;
  MoeProblem problem = make_problem(spec);
  problem.ids = {-1, 4, std::numeric_limits<std::int32_t>::min(),
                 std::numeric_limits<std::int32_t>::max()};
  const MoeResult none = moe_rows(problem);
  EXPECT_EQ(none.invalid_ids, 3u);
  for (const float y : none.y_f32)
    EXPECT_EQ(bits_of(y), 0u);

  problem.ids = {-1, 2, 4, 0};
  const MoeResult some = moe_rows(problem);
  EXPECT_EQ(some.invalid_ids, 1u);
  MoeProblem two = problem;
  two.top_k = 2;
  two.ids = {2, 0};
  two.weights = {problem.weights[1], problem.weights[3]};
  EXPECT_TRUE(same_bytes(moe_rows(two).y, some.y));
}

TEST(ReferenceLayer, PatternsOfIds) {
  ProblemSpec spec;
  spec.tokens = 20;
  spec.top_k = 3;
  for (const std::int64_t pair : {0, 7, 59}) {
    spec.ids = IdPattern::kOneExpert;
    EXPECT_EQ(make_problem(spec).ids[at(pair)], 3);
  }
  spec.ids = IdPattern::kDistinct;
  MoeProblem problem = make_problem(spec);
  for (std::size_t p = 0; p < problem.ids.size(); p += 3) {
    EXPECT_NE(problem.ids[p], problem.ids[p + 1]);
    EXPECT_NE(problem.ids[p], problem.ids[p + 2]);
    EXPECT_NE(problem.ids[p + 1], problem.ids[p + 2]);
  }
  spec.ids = IdPattern::kWithInvalid;
  const MoeResult result = moe_rows(make_problem(spec));
  EXPECT_GT(result.invalid_ids, 0u);
  EXPECT_EQ(result.pair_live[0] + result.pair_live[1] + result.pair_live[2], 0);
  EXPECT_GT(std::count(result.pair_live.begin(), result.pair_live.end(), 1), 20);
}

TEST(ReferenceLayer, LocalExpertsAreTheMaskedWhole) {
  ProblemSpec spec;
  spec.n_experts = 8;
  spec.top_k = 4;
  spec.bias = true;
  const MoeProblem whole = make_problem(spec);
  MoeProblem part = whole;
  part.local_offset = 4;
  part.n_local = 4;
  MoeProblem masked = whole;
  for (std::int32_t& id : masked.ids)
    id = id < 4 ? -1 : id;
  for (Bank& bank : part.banks) {
    bank.slabs.erase(bank.slabs.begin(), bank.slabs.begin() + 4);
    bank.scales.erase(bank.scales.begin(), bank.scales.begin() + 4);
    bank.bias.erase(bank.bias.begin(), bank.bias.begin() + 4 * bank.rows);
  }
  const MoeResult result = moe_rows(part);
  EXPECT_EQ(result.invalid_ids, 0u);
  EXPECT_GT(count_values(result.y_f32).nonzero, 0);
  EXPECT_TRUE(same_bytes(result.y, moe_rows(masked).y));
}

TEST(ReferenceLayer, ANullSlabOfAnyPlaneSkipsThePair) {
  ProblemSpec spec;
  spec.bias = true;
  const MoeProblem whole = make_problem(spec);
  const std::int32_t gone = whole.ids[0];
  MoeProblem masked = whole;
  for (std::int32_t& id : masked.ids)
    id = id == gone ? -1 : id;
  const MoeResult expected = moe_rows(masked);
  EXPECT_FALSE(same_bytes(expected.y, moe_rows(whole).y));
  for (const Plane plane : {kGate, kUp, kDown}) {
    MoeProblem absent = whole;
    absent.banks[plane].slabs[at(gone)].bytes.clear();
    EXPECT_TRUE(same_bytes(moe_rows(absent).y, expected.y));
  }
}

TEST(ReferenceLayer, TablesOverrideTheBanks) {
  const MoeProblem first = make_problem({});
  ProblemSpec spec;
  spec.seed = 2;
  const MoeProblem second = make_problem(spec);
  MoeProblem tables = first;
  MoeProblem expected = first;
  expected.banks = second.banks;
  for (const Bank& bank : second.banks) {
    for (const Slab& slab : bank.slabs)
      tables.table_slabs.push_back(&slab);
    for (const float scale : bank.scales)
      tables.table_scales.push_back(scale);
  }
  EXPECT_TRUE(same_bytes(moe_rows(tables).y, moe_rows(expected).y));
  const std::int32_t gone = first.ids[0];
  tables.table_slabs[at(kDown * tables.n_local + gone)] = nullptr;
  for (std::int32_t& id : expected.ids)
    id = id == gone ? -1 : id;
  EXPECT_TRUE(same_bytes(moe_rows(tables).y, moe_rows(expected).y));
}

// ---- Rule 6 ----

TEST(ReferenceLayer, SlotsAreSummedInOrder) {
  ProblemSpec spec;
  spec.top_k = 4;
  spec.tokens = 1;
  spec.bias = true;
  const MoeProblem problem = make_problem(spec);
  const MoeResult result = moe_rows(problem);
  std::vector<float> y(at(problem.hidden), 0.0f);
  for (std::int64_t slot = 0; slot < 4; ++slot) {
    const std::int64_t expert = problem.ids[at(slot)];
    const Bank& bank = problem.banks[kDown];
    const DecodedSlab slab = decode(bank.slabs[at(expert)]);
    const float scale = problem.weights[at(slot)] * bank.scales[at(expert)];
    for (std::int64_t row = 0; row < problem.hidden; ++row) {
      const float dot =
          row_dot(slab.doubled.data() + row * slab.cols, slab.scales.data() + row * slab.cols / 16,
                  result.act_q.q_row(slot).data(), result.act_q.d_row(slot).data(), slab.cols);
      y[at(row)] = std::fma(scale, dot, y[at(row)]);
      y[at(row)] =
          std::fma(problem.weights[at(slot)], bank.bias[at(expert * bank.rows + row)], y[at(row)]);
    }
  }
  EXPECT_TRUE(compare_bits(y, result.y_f32, problem.hidden).same());

  MoeProblem swapped = problem;
  std::reverse(swapped.ids.begin(), swapped.ids.end());
  std::reverse(swapped.weights.begin(), swapped.weights.end());
  EXPECT_GT(compare_y(problem, result, moe_rows(swapped)).differing, 0);
}

TEST(ReferenceLayer, DownBiasIsWeightedByTheRouter) {
  ProblemSpec spec;
  spec.bias = true;
  MoeProblem problem = make_problem(spec);
  for (Slab& slab : problem.banks[kDown].slabs) {
    std::fill(slab.bytes.begin(), slab.bytes.end(), std::uint8_t{0});
  }
  std::fill(problem.banks[kDown].bias.begin(), problem.banks[kDown].bias.end(), 1.0f);
  for (std::size_t pair = 0; pair < problem.weights.size(); ++pair) {
    problem.weights[pair] = pair % 2 == 0 ? 0.25f : 0.75f;
  }
  for (const float y : moe_rows(problem).y_f32)
    EXPECT_EQ(y, 1.0f);
}

TEST(ReferenceLayer, RouterWeightsAreMultipliedOnce) {
  ProblemSpec spec;
  spec.top_k = 1;
  MoeProblem problem = make_problem(spec);
  std::fill(problem.weights.begin(), problem.weights.end(), 1.0f);
  const std::vector<float> one = moe_rows(problem).y_f32;
  for (const float weight : {0.0f, -1.0f, 2.0f}) {
    std::fill(problem.weights.begin(), problem.weights.end(), weight);
    const std::vector<float> y = moe_rows(problem).y_f32;
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(y[i], weight * one[i]);
  }
}

TEST(ReferenceLayer, AccumulatesIntoYAndLeavesTheGaps) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ProblemSpec spec;
    spec.ids = IdPattern::kWithInvalid;
    spec.y_dtype = dtype;
    spec.y_padding = 5;
    spec.x_padding = 3;
    MoeProblem fresh = make_problem(spec);
    spec.accumulate = true;
    const MoeProblem problem = make_problem(spec);
    fresh.y_initial = problem.y_initial;
    const MoeResult sum = moe_rows(problem);
    const MoeResult alone = moe_rows(fresh);
    // Token 0 has no valid id: it keeps y, or gets +0.
    const std::int64_t element = dtype_bytes(dtype);
    const std::int64_t row_bytes = problem.hidden * element;
    EXPECT_EQ(std::memcmp(sum.y.data(), problem.y_initial.data(), at(row_bytes)), 0);
    for (const float y : y_row(fresh, alone, 0))
      EXPECT_EQ(bits_of(y), 0u);
    for (std::int64_t i = row_bytes; i < problem.y_stride * element; ++i) {
      EXPECT_EQ(sum.y[at(i)], 0xFF);
    }
    EXPECT_EQ(sum.y.size(), at((2 * problem.y_stride + problem.hidden) * element));
    for (std::int64_t token = 1; token < 3; ++token) {
      for (std::int64_t col = 0; col < problem.hidden; ++col) {
        const float before = load(problem.y_initial, dtype, token * problem.y_stride + col);
        EXPECT_NEAR(sum.y_f32[at(token * problem.hidden + col)],
                    before + alone.y_f32[at(token * problem.hidden + col)], 1e-5);
      }
    }
    EXPECT_GT(compare_y(problem, sum, alone).differing, problem.hidden);
  }
}

TEST(ReferenceLayer, NoTokensIsNoWork) {
  ProblemSpec spec;
  spec.tokens = 0;
  const MoeResult result = moe_rows(make_problem(spec));
  EXPECT_TRUE(result.y.empty());
  EXPECT_TRUE(result.gate_up.act.empty());
}

}  // namespace
}  // namespace memra::reference
