// The reference checks itself: rules 1 to 4, 7 and 8, each operation in its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference/arithmetic.h"
#include "reference/compare.h"
#include "reference/floats.h"
#include "reference/generate.h"
#include "reference/moe.h"

namespace memra::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// ---- Rule 1 ----

struct Group {
  std::vector<std::int8_t> q;
  float d;
};

Group quantize(const std::vector<float>& x) {
  const QuantizedRows rows = quantize_q8(x, 1, 32);
  return {rows.q, rows.d[0]};
}

TEST(ReferenceQuantize, RoundsToNearestEvenWithinTheGroup) {
  std::vector<float> x(32, 0.0f);
  x[0] = -127.0f;
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = 126.6f;
  const Group group = quantize(x);
  EXPECT_EQ(group.d, 1.0f);
  const std::vector<std::int8_t> head(group.q.begin(), group.q.begin() + 5);
  EXPECT_EQ(head, (std::vector<std::int8_t>{-127, 0, 2, -2, 127}));
}

TEST(ReferenceQuantize, ZeroTinyAndNonFiniteGroups) {
  const std::vector<std::int8_t> zeros(32, 0);
  for (const float value : {0.0f, -0.0f, 1e-41f, 1e-38f, std::nextafter(0x1p-119f, 0.0f)}) {
    const Group group = quantize(std::vector<float>(32, value));
    EXPECT_EQ(bits_of(group.d), 0u) << value;
    EXPECT_EQ(group.q, zeros);
  }
  const Group smallest = quantize(std::vector<float>(32, 0x1p-119f));
  EXPECT_EQ(smallest.q, std::vector<std::int8_t>(32, 127));
  EXPECT_EQ(smallest.d, div(0x1p-119f, 127.0f));
  const Group largest = quantize(std::vector<float>(32, -std::numeric_limits<float>::max()));
  EXPECT_EQ(largest.q, std::vector<std::int8_t>(32, -127));

  for (const float bad : {kInf, -kInf, canonical_nan(), from_bits(0xFFC12345u)}) {
    std::vector<float> x(32, 1.0f);
    x[17] = bad;
    const Group group = quantize(x);
    EXPECT_EQ(bits_of(group.d), kCanonicalNanF32);
    EXPECT_EQ(group.q, zeros);
  }
}

// Values at the ties between two q, where any other order of operations shows.
TEST(ReferenceQuantize, MultipliesByTheRoundedInverse) {
  Random random(4);
  int by_division = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const float amax = random.uniform(0.5f, 2.0f);
    std::vector<float> x(32);
    for (float& value : x)
      value = amax * (static_cast<float>(random.below(126)) + 0.5f) / 127.0f;
    x[0] = -amax;
    const Group group = quantize(x);
    const float inv = 127.0f / amax;
    EXPECT_EQ(group.d, amax / 127.0f);
    for (std::size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(group.q[i], std::nearbyint(x[i] * inv));
      if (group.q[i] != std::nearbyint(x[i] / group.d)) ++by_division;
    }
  }
  EXPECT_GT(by_division, 100);
}

// ---- Rules 2 and 3 ----

TEST(ReferenceDot, OrderOfARowIsLanesThenTree) {
  // One group a lane and a second one on lanes 0 and 1; every group contributes d * 21.
  const std::int64_t cols = 34 * 32;
  std::vector<std::int8_t> doubled(at(cols), 0);
  std::vector<std::int8_t> q(at(cols), 0);
  std::vector<float> scales(at(cols / 16), 1.0f);
  std::vector<float> d(34);
  Random random(3);
  for (std::int64_t g = 0; g < 34; ++g) {
    doubled[at(g * 32)] = 3;
    q[at(g * 32)] = 7;
    d[at(g)] = random.normal();
  }
  float v[32];
  for (int l = 0; l < 32; ++l)
    v[l] = 21.0f * d[at(l)];
  v[0] = std::fma(d[32], 21.0f, v[0]);
  v[1] = std::fma(d[33], 21.0f, v[1]);
  for (int width = 16; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l)
      v[l] = v[l] + v[l + width];
  }
  EXPECT_EQ(bits_of(row_dot(doubled.data(), scales.data(), q.data(), d.data(), cols)),
            bits_of(0.5f * v[0]));
}

TEST(ReferenceDot, ScalesGovernTheirHalves) {
  const std::vector<std::int8_t> ones(32, 1);
  std::vector<std::int8_t> doubled(32, 12);
  std::fill(doubled.begin() + 16, doubled.end(), std::int8_t{-1});
  EXPECT_EQ(group_dot(doubled.data(), 2.0f, 0.5f, ones.data()), 2 * 192 - 8);
  EXPECT_EQ(group_dot(doubled.data(), 0.0f, 0.5f, ones.data()), -8);
}

TEST(ReferenceDot, EveryStepIsOneFma) {
  // Four groups on lane 0 alone: the chain of fmas, against the same with two roundings.
  const std::int64_t cols = 4 * kVirtualLanes * kGroup;
  Random random(5);
  int differs_unfused = 0;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::int8_t> doubled(at(cols), 0);
    std::vector<std::int8_t> q(at(cols), 0);
    std::vector<float> scales(at(cols / 16), 0.0f);
    std::vector<float> d(at(cols / 32), 0.0f);
    float fused = 0;
    float unfused = 0;
    for (std::int64_t g = 0; g < cols / kGroup; g += kVirtualLanes) {
      std::int32_t sums[2] = {0, 0};
      for (std::int64_t i = 0; i < 32; ++i) {
        doubled[at(g * 32 + i)] =
            static_cast<std::int8_t>(e2m1_doubled(static_cast<std::uint8_t>(random.below(16))));
        q[at(g * 32 + i)] = static_cast<std::int8_t>(random.below(255) - 127);
        sums[i / 16] += doubled[at(g * 32 + i)] * q[at(g * 32 + i)];
      }
      scales[at(2 * g)] = ue4m3_value(0x7E);
      scales[at(2 * g + 1)] = ue4m3_value(static_cast<std::uint8_t>(random.below(127)));
      d[at(g)] = random.uniform(0.001f, 0.02f);
      const float p = std::fma(scales[at(2 * g + 1)], static_cast<float>(sums[1]),
                               scales[at(2 * g)] * static_cast<float>(sums[0]));
      fused = std::fma(d[at(g)], p, fused);
      unfused = d[at(g)] * p + unfused;
    }
    ASSERT_EQ(row_dot(doubled.data(), scales.data(), q.data(), d.data(), cols), 0.5f * fused);
    if (unfused != fused) ++differs_unfused;
  }
  EXPECT_GT(differs_unfused, 10);
}

// ---- Rule 4 ----

TEST(ReferenceGateUp, BiasEntersInOneFma) {
  ProblemSpec spec;
  spec.bias = true;
  spec.tokens = 1;
  const MoeProblem problem = make_problem(spec);
  const MoeResult result = moe_rows(problem);
  int differs_unfused = 0;
  for (const Plane plane : {kGate, kUp}) {
    const Bank& bank = problem.banks[plane];
    const std::int64_t expert = problem.ids[0];
    const DecodedSlab slab = decode(bank.slabs[at(expert)]);
    const std::vector<float>& actual = plane == kGate ? result.gate_up.gate : result.gate_up.up;
    for (std::int64_t row = 0; row < bank.rows; ++row) {
      const float dot =
          row_dot(slab.doubled.data() + row * slab.cols, slab.scales.data() + row * slab.cols / 16,
                  result.x_q.q.data(), result.x_q.d.data(), slab.cols);
      const float scale = bank.scales[at(expert)];
      const float bias = bank.bias[at(expert * bank.rows + row)];
      ASSERT_EQ(actual[at(row)], std::fma(dot, scale, bias));
      if (actual[at(row)] != dot * scale + bias) ++differs_unfused;
    }
  }
  EXPECT_GT(differs_unfused, 5);
}

// ---- Rule 7 ----

TEST(ReferenceActivation, OperationsAreInTheirOrder) {
  const ActivationParams plain{Activation::kSwiglu, 7.0f, 1.702f};
  const ActivationParams oai{Activation::kSwigluOai, 7.0f, 1.702f};
  Random random(6);
  int other_plain = 0;
  int other_oai = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const float g = 2 * random.normal();
    const float u = 2 * random.normal();
    const float s = 1.0f / (1.0f + exp_f32(-g));
    ASSERT_EQ(activate(plain, g, u), (g * s) * u);
    other_plain += activate(plain, g, u) != (g * u) * s;
    const float sa = 1.0f / (1.0f + exp_f32(-(1.702f * g)));
    ASSERT_EQ(activate(oai, g, u), ((u + 1.0f) * g) * sa);
    other_oai += activate(oai, g, u) != (u + 1.0f) * (g * sa);
  }
  EXPECT_GT(other_plain, 20);
  EXPECT_GT(other_oai, 20);
}

TEST(ReferenceActivation, ClampsWhereTheContractSays) {
  const float limit = 7.0f;
  const ActivationParams plain{Activation::kSwiglu, limit, 1.702f};
  const ActivationParams pre{Activation::kSwigluPreclamp, limit, 1.702f};
  const ActivationParams post{Activation::kSwigluPostclamp, limit, 1.702f};
  const ActivationParams oai{Activation::kSwigluOai, limit, 1.702f};

  EXPECT_EQ(activate(plain, 20.0f, 30.0f), silu(20.0f) * 30.0f);
  EXPECT_EQ(activate(pre, 20.0f, 30.0f), silu(7.0f) * 7.0f);
  EXPECT_EQ(activate(pre, -20.0f, -30.0f), silu(-20.0f) * -7.0f);
  EXPECT_EQ(activate(post, 20.0f, 30.0f), 49.0f);
  EXPECT_NE(activate(post, 7.001f, 1.0f), 7.0f);  // silu(7.001) is below the limit
  EXPECT_EQ(activate(oai, 20.0f, -30.0f), ((-7.0f + 1.0f) * 7.0f) * sig(1.702f * 7.0f));
  EXPECT_EQ(activate(oai, -20.0f, 30.0f), ((7.0f + 1.0f) * -20.0f) * sig(1.702f * -20.0f));

  for (const ActivationParams& params : {plain, pre, post, oai}) {
    EXPECT_TRUE(std::isnan(activate(params, canonical_nan(), 1.0f)));
    EXPECT_TRUE(std::isnan(activate(params, 1.0f, canonical_nan())));
    for (float g = -6; g < 7; g += 0.37f) {
      const double s = 1 / (1 + std::exp(-static_cast<double>(g) *
                                         (params.kind == Activation::kSwigluOai ? 1.702 : 1)));
      const double u = params.kind == Activation::kSwigluOai ? 1.5 + 1 : 1.5;
      EXPECT_NEAR(activate(params, g, 1.5f), g * s * u, 4e-6);
    }
  }
}

// ---- Rule 8 ----

double ulps_from_exact(float x) {
  const double exact = std::exp(static_cast<double>(x));
  const double step = std::ldexp(1.0, std::ilogb(exact) - 23);
  return std::fabs(static_cast<double>(exp_f32(x)) - exact) / step;
}

TEST(ReferenceExp, WithinAnUlpOfF64) {
  // The result is a normal number on [-87.3, 88.7].
  double worst = 0;
  for (std::uint32_t bits = 0x32000000u; from_bits(bits) < 88.7f; bits += 97) {
    const float x = from_bits(bits);
    worst = std::max(worst, ulps_from_exact(x));
    if (x < 87.3f) worst = std::max(worst, ulps_from_exact(-x));
  }
  EXPECT_LE(worst, 1.01);
  EXPECT_GT(worst, 0.5);
}

// Bits from an emulation of rule 8 in exact rationals. Most of them move with a small change of
// any coefficient.
TEST(ReferenceExp, KnownBits) {
  const std::pair<std::uint32_t, std::uint32_t> known[] = {
      {0xC01D4924, 0x3DAF64A4}, {0x3EA59FE5, 0x3FB0E349}, {0x42039B6E, 0x5730F4AB},
      {0xBF7B7B72, 0x3EBFB531}, {0xC22A9EFF, 0x20B03F35}, {0xC2B6DCF2, 0x000221C8},
      {0x3FE07EE2, 0x40B8DC99}, {0x42A18C27, 0x79B90FF0}, {0xBF9E6FF6, 0x3E947E05},
      {0x41A44EA0, 0x4E462CEF}, {0x3F82E431, 0x4031F1CE}, {0x418C197C, 0x4C19D25C},
      {0xBEAC33EC, 0x3F36E1EA}, {0x421F6DF0, 0x5C3545C7}, {0x41273D8D, 0x470747C8},
      {0x424BD21C, 0x6436A1B0}, {0xBF820386, 0x3EB96A07}, {0xC028624A, 0x3D937823},
      {0x401C6C46, 0x4138530B}, {0xC256CF5A, 0x18B803E6}, {0x3FC4302B, 0x40942F26},
      {0xC0FF55E1, 0x39B391D5}, {0x42408D04, 0x622E9D86}, {0xBFFD9F7A, 0x3E0D2E53}};
  for (const auto& [x, y] : known)
    EXPECT_EQ(bits_of(exp_f32(from_bits(x))), y);
}

TEST(ReferenceExp, Ends) {
  EXPECT_EQ(bits_of(exp_f32(0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp_f32(-0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp_f32(-104.5f)), 0u);
  EXPECT_EQ(bits_of(exp_f32(-HUGE_VALF)), 0u);
  EXPECT_EQ(exp_f32(HUGE_VALF), HUGE_VALF);
  EXPECT_EQ(exp_f32(88.9f), HUGE_VALF);
  EXPECT_TRUE(std::isnan(exp_f32(canonical_nan())));
  EXPECT_TRUE(std::isnan(exp_f32(from_bits(0xFFFFFFFFu))));
  // A subnormal result is rounded once.
  EXPECT_NEAR(exp_f32(-100.0f), std::exp(-100.0), 0x1p-149);
}

}  // namespace
}  // namespace memra::reference
