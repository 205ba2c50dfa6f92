// Rules 1 to 9: activations to int8, dot products, exp, activation functions, canonical NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "numerics/activation.h"
#include "numerics/dot.h"
#include "numerics/nvfp4_layout.h"
#include "numerics/platform.h"
#include "numerics/q8.h"

namespace memra::numerics {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kNans[] = {0x7F800001u, 0x7FC00000u, 0x7FC12345u, 0x7FFFFFFFu,
                                   0xFF800001u, 0xFFC00000u, 0xFFFFFFFFu};

TEST(Platform, CanonChangesNansAlone) {
  for (const std::uint32_t nan : kNans) {
    EXPECT_EQ(float_bits(canon(bits_float(nan))), 0x7FC00000u);
    EXPECT_TRUE(is_nan(bits_float(nan)));
    EXPECT_FALSE(is_finite(bits_float(nan)));
  }
  for (const std::uint32_t bits :
       {0u, 0x80000000u, 1u, 0x80000001u, 0x7F7FFFFFu, 0x7F800000u, 0xFF800000u, 0x3F800000u}) {
    EXPECT_EQ(float_bits(canon(bits_float(bits))), bits);
    EXPECT_FALSE(is_nan(bits_float(bits)));
    EXPECT_EQ(is_finite(bits_float(bits)), (bits & 0x7FFFFFFFu) != 0x7F800000u);
  }
}

TEST(Platform, FmaRoundsOnceAndMulThenAddTwice) {
  // volatile, so that the compiler neither folds nor contracts.
  volatile float a = 0x1.000002p0f;
  volatile float b = 0x1.000002p0f;
  const float product = mul(a, b);
  EXPECT_EQ(add(product, -product), 0.0f);
  EXPECT_EQ(fma(a, b, -product), 0x1p-46f);
  EXPECT_EQ(add(mul(a, b), -0x1.000004p0f), 0.0f) << "contracted: -ffp-contract=off is missing";
}

TEST(Platform, SubnormalsSurvive) {
  volatile float tiny = 0x1p-149f;
  EXPECT_EQ(float_bits(mul(tiny, 1.0f)), 1u);
  EXPECT_EQ(float_bits(mul(tiny, 0x1p120f)), float_bits(0x1p-29f));
  EXPECT_EQ(float_bits(add(tiny, tiny)), 2u);
}

Q8Scale scale_of(float amax) {
  return q8_scale(magnitude_bits(amax));
}

TEST(Q8, ScaleAndInverseAreTheRoundedQuotients) {
  // The double quotient of two floats rounds to the float quotient: 53 >= 2 * 24 + 2.
  for (std::uint32_t bits = kQ8ZeroBelowBits; bits < kInfBits; bits += 9973) {
    const Q8Scale scale = q8_scale(bits);
    const double amax = bits_float(bits);
    ASSERT_EQ(scale.d, static_cast<float>(amax / 127.0)) << bits;
    ASSERT_EQ(scale.inv, static_cast<float>(127.0 / amax)) << bits;
    ASSERT_EQ(q8(bits_float(bits), scale), 127) << bits;
    ASSERT_EQ(q8(-bits_float(bits), scale), -127) << bits;
  }
}

TEST(Q8, Thresholds) {
  const Q8Scale below = q8_scale(0x03FFFFFFu);
  EXPECT_EQ(float_bits(below.d), 0u);
  EXPECT_EQ(q8(bits_float(0x03FFFFFFu), below), 0);
  const Q8Scale at = q8_scale(0x04000000u);
  EXPECT_GE(at.d, std::numeric_limits<float>::min()) << "d must not be subnormal";
  EXPECT_TRUE(is_finite(at.inv));
  EXPECT_EQ(q8(0x1p-119f, at), 127);
  EXPECT_EQ(q8(-0x1p-119f, at), -127);
  for (const float amax : {0.0f, -0.0f, 1e-45f, 1e-41f, 1e-38f}) {
    EXPECT_EQ(float_bits(scale_of(amax).d), 0u) << amax;
    EXPECT_EQ(q8(amax, scale_of(amax)), 0) << amax;
  }
  const Q8Scale largest = q8_scale(0x7F7FFFFFu);
  EXPECT_TRUE(is_finite(largest.d));
  EXPECT_GT(largest.inv, 0.0f);
  EXPECT_EQ(q8(-std::numeric_limits<float>::max(), largest), -127);
}

TEST(Q8, NotFiniteGivesCanonicalNanAndZeros) {
  for (const std::uint32_t bits : {0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu}) {
    const Q8Scale scale = q8_scale(bits);
    EXPECT_EQ(float_bits(scale.d), 0x7FC00000u);
    for (const float x : {0.0f, 1.0f, -1e38f, kInf, -kInf, bits_float(0xFFC00001u)}) {
      EXPECT_EQ(q8(x, scale), 0) << x;
    }
  }
}

TEST(Q8, TiesGoToTheEvenInteger) {
  const Q8Scale scale = scale_of(127.0f);
  ASSERT_EQ(scale.d, 1.0f);
  ASSERT_EQ(scale.inv, 1.0f);
  for (int i = -127; i < 127; ++i) {
    const float tie = static_cast<float>(i) + 0.5f;
    const int even = i % 2 == 0 ? i : i + 1;
    EXPECT_EQ(q8(static_cast<float>(i), scale), i);
    EXPECT_EQ(q8(tie, scale), even) << tie;
    EXPECT_EQ(q8(std::nextafter(tie, -kInf), scale), i);
    EXPECT_EQ(q8(std::nextafter(tie, kInf), scale), i + 1);
  }
}

TEST(Q8, RoundToIntIsRoundToNearestEven) {
  for (int i = -4'000'000; i <= 4'000'000; ++i) {
    const float x = static_cast<float>(i) * 0.00003179f;
    ASSERT_EQ(round_to_int(x), static_cast<std::int32_t>(std::nearbyint(x))) << x;
  }
}

TEST(Q8, GroupsTakeTheMaximumOfAllTheirValues) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  float x[kGroup];
  std::int8_t q[kGroup];
  for (int place = 0; place < kGroup; ++place) {
    for (float& value : x)
      value = std::clamp(normal(random), -4.0f, 4.0f);
    x[place] = place % 2 == 0 ? -5.0f : 5.0f;
    EXPECT_EQ(q8_group(x, q), 5.0f / 127.0f);
    EXPECT_EQ(q[place], place % 2 == 0 ? -127 : 127);
    for (int i = 0; i < kGroup; ++i) {
      EXPECT_EQ(q[i], static_cast<int>(std::nearbyint(x[i] * (127.0f / 5.0f))));
    }
    x[place] = bits_float(0xFF800001u);
    EXPECT_EQ(float_bits(q8_group(x, q)), 0x7FC00000u);
    for (const std::int8_t value : q)
      EXPECT_EQ(value, 0);
  }
}

TEST(Dot, HalfDotFollowsTheByteOrderOfAGroup) {
  std::mt19937 random(13);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::uint8_t codes[16];
    std::int8_t q[32];
    for (std::uint8_t& byte : codes)
      byte = static_cast<std::uint8_t>(random());
    for (std::int8_t& value : q)
      value = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
    for (int half = 0; half < 2; ++half) {
      std::int32_t want = 0;
      for (int w = 0; w < 16; ++w) {
        const int column = 16 * half + w;
        const std::uint8_t byte = codes[code_byte_in_group(column)];
        want += e2m1_doubled(byte >> code_shift(column) & 15u) * q[column];
      }
      EXPECT_EQ(half_dot(codes + 8 * half, q + 16 * half), want);
    }
  }
}

TEST(Dot, GroupPartialIsAMulThenAnFma) {
  std::mt19937 random(17);
  int differs = 0;
  for (int repeat = 0; repeat < 100000; ++repeat) {
    // Three times a power of two and wider, so that products do round.
    const float s0 = static_cast<float>(random() % 4096 + 1) * 0x1p-9f;
    const float s1 = static_cast<float>(random() % 4096 + 1) * 0x1p-9f;
    const std::int32_t i0 = static_cast<std::int32_t>(random() % 48769) - 24384;
    const std::int32_t i1 = static_cast<std::int32_t>(random() % 48769) - 24384;
    const float first = static_cast<float>(static_cast<double>(s0) * i0);
    const double exact = static_cast<double>(s1) * i1 + static_cast<double>(first);
    ASSERT_EQ(group_partial(s0, i0, s1, i1), static_cast<float>(exact));
    ASSERT_EQ(group_partial(s0, static_cast<float>(i0), s1, static_cast<float>(i1)),
              static_cast<float>(exact));
    differs +=
        static_cast<float>(exact) != static_cast<float>(static_cast<double>(s1) * i1) + first;
  }
  EXPECT_GT(differs, 1000) << "inputs too easy to tell an fma from a mul and an add";
}

TEST(Dot, StepsRoundOnce) {
  volatile float d = 0x1.234566p-3f;
  volatile float partial = 0x1.fedcbap5f;
  const float product = mul(d, partial);
  const double residual = static_cast<double>(d) * partial - static_cast<double>(product);
  ASSERT_NE(residual, 0.0);
  EXPECT_EQ(row_step(-product, d, partial), residual);
  EXPECT_EQ(slot_step(d, partial, -product), residual);
  EXPECT_EQ(slot_bias_step(d, partial, -product), residual);
  EXPECT_EQ(pair_scale(d, partial), product);
}

TEST(Dot, TreeIsTheButterfly) {
  std::mt19937 random(19);
  std::normal_distribution<float> normal;
  int differs_from_serial = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    float lanes[kVirtualLanes];
    for (float& lane : lanes)
      lane = normal(random);
    float butterfly[kVirtualLanes];
    std::copy(std::begin(lanes), std::end(lanes), butterfly);
    float serial = 0.0f;
    for (const float lane : lanes)
      serial += lane;
    for (const int distance : {16, 8, 4, 2, 1}) {
      float next[kVirtualLanes];
      for (int l = 0; l < kVirtualLanes; ++l)
        next[l] = butterfly[l] + butterfly[l ^ distance];
      std::copy(std::begin(next), std::end(next), butterfly);
    }
    const float got = lane_tree(lanes);
    for (const float value : butterfly)
      ASSERT_EQ(float_bits(got), float_bits(value));
    differs_from_serial += got != serial;
  }
  EXPECT_GT(differs_from_serial, 50);
}

TEST(Dot, EmptyLanesTakePart) {
  float lanes[kVirtualLanes] = {};
  lanes[0] = -0.0f;
  EXPECT_EQ(float_bits(lane_tree(lanes)), 0u) << "-0 + +0 is +0";
}

TEST(Dot, FinishHalvesWithARoundingOfItsOwn) {
  EXPECT_EQ(finish_dot(3.0f), 1.5f);
  EXPECT_EQ(float_bits(finish_dot(bits_float(3))), 2u);
}

// Error of exp_f32 in units of the last place of a normal float at the exact value.
double exp_error_ulp(float x) {
  const double exact = std::exp(static_cast<double>(x));
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::fabs(static_cast<double>(exp_f32(x)) - exact) / ulp;
}

TEST(Exp, StaysWithinItsErrorOverTheNormalRange) {
  const double overflow = std::log(static_cast<double>(std::numeric_limits<float>::max()));
  double worst = 0.0;
  float worst_at = 0.0f;
  for (std::uint32_t bits = 0; bits < float_bits(89.0f); bits += 61) {
    const float magnitude = bits_float(bits);
    for (const float x : {magnitude, -magnitude}) {
      // From the smallest normal result, exp(-87.33), to the largest float.
      if (x < -87.33f || static_cast<double>(x) > overflow) continue;
      const double error = exp_error_ulp(x);
      if (error > worst) {
        worst = error;
        worst_at = x;
      }
    }
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  RecordProperty("worst_at", std::to_string(worst_at));
  EXPECT_LE(worst, 1.0104) << "at " << worst_at;
  // The worst of all floats, which the sweep steps over.
  EXPECT_NEAR(exp_error_ulp(-0x1.782f42p+2f), 1.01035, 1e-4);
}

TEST(Exp, SubnormalResultsRoundOnceMore) {
  int subnormal = 0;
  for (std::uint32_t bits = float_bits(87.33f); bits <= float_bits(104.0f); bits += 3) {
    const float x = -bits_float(bits);
    ASSERT_LE(exp_error_ulp(x), 0.751) << x;
    const std::uint32_t result = float_bits(exp_f32(x));
    subnormal += result != 0 && result < 0x00800000u;
  }
  EXPECT_GT(subnormal, 1000);
}

TEST(Exp, BeyondItsRangeIsZeroOrInf) {
  for (std::uint32_t bits = float_bits(104.0f); bits <= kInfBits; bits += 997) {
    ASSERT_EQ(float_bits(exp_f32(-bits_float(bits))), 0u) << bits;
  }
  for (std::uint32_t bits = float_bits(89.0f); bits <= kInfBits; bits += 997) {
    ASSERT_EQ(float_bits(exp_f32(bits_float(bits))), kInfBits) << bits;
  }
}

TEST(Exp, SpecialValues) {
  EXPECT_EQ(float_bits(exp_f32(0.0f)), float_bits(1.0f));
  EXPECT_EQ(float_bits(exp_f32(-0.0f)), float_bits(1.0f));
  EXPECT_EQ(float_bits(exp_f32(1e-45f)), float_bits(1.0f));
  EXPECT_EQ(float_bits(exp_f32(kInf)), 0x7F800000u);
  EXPECT_EQ(float_bits(exp_f32(-kInf)), 0u);
  EXPECT_EQ(float_bits(exp_f32(std::nextafter(-104.0f, -kInf))), 0u);
  EXPECT_EQ(float_bits(exp_f32(-1e38f)), 0u);
  EXPECT_EQ(float_bits(exp_f32(std::nextafter(89.0f, kInf))), 0x7F800000u);
  EXPECT_EQ(float_bits(exp_f32(89.0f)), 0x7F800000u);
  EXPECT_EQ(float_bits(exp_f32(1e38f)), 0x7F800000u);
  EXPECT_TRUE(is_finite(exp_f32(88.7f)));
  EXPECT_EQ(float_bits(exp_f32(-103.0f)), 1u);
  for (const std::uint32_t nan : kNans)
    EXPECT_TRUE(is_nan(exp_f32(bits_float(nan))));
}

TEST(Activation, SigmoidAndSiluAtTheirEnds) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(kInf), 1.0f);
  EXPECT_EQ(sigmoid(-kInf), 0.0f);
  EXPECT_EQ(sigmoid(100.0f), 1.0f);
  EXPECT_EQ(float_bits(silu(0.0f)), 0u);
  EXPECT_EQ(float_bits(silu(-100.0f)), 0x80000000u) << "exp overflows, so the product is -0";
  EXPECT_EQ(silu(50.0f), 50.0f);
  EXPECT_TRUE(is_nan(silu(-kInf))) << "-Inf * 0";
}

TEST(Activation, PlaneValue) {
  volatile float dot = 0x1.000002p0f;
  volatile float scale = 0x1.000002p0f;
  EXPECT_EQ(plane_value(dot, scale, false, 5.0f), 0x1.000004p0f);
  EXPECT_EQ(plane_value(dot, scale, true, -0x1.000004p0f), 0x1p-46f) << "one rounding";
  EXPECT_EQ(float_bits(plane_value(-0.0f, 1.0f, false, 0.0f)), 0x80000000u);
}

constexpr ActivationParams kServed{7.0f, 1.702f};

TEST(Activation, FormulasInFloatArithmetic) {
  std::mt19937 random(23);
  std::normal_distribution<float> normal(0.0f, 6.0f);
  for (int repeat = 0; repeat < 100000; ++repeat) {
    const float g = normal(random);
    const float u = normal(random);
    const auto sig = [](float z) { return 1.0f / (1.0f + exp_f32(-z)); };
    const float g7 = g > 7.0f ? 7.0f : g;
    const float u7 = u < -7.0f ? -7.0f : (u > 7.0f ? 7.0f : u);
    const float s = g * sig(g);
    const float s7 = s > 7.0f ? 7.0f : s;
    ASSERT_EQ(activate(Activation::kSwiglu, g, u, kServed), s * u);
    ASSERT_EQ(activate(Activation::kSwigluPreclamp, g, u, kServed), g7 * sig(g7) * u7);
    ASSERT_EQ(activate(Activation::kSwigluPostclamp, g, u, kServed), s7 * u7);
    const float alpha_g = 1.702f * g7;
    ASSERT_EQ(activate(Activation::kSwigluOai, g, u, kServed), (u7 + 1.0f) * g7 * sig(alpha_g));
  }
}

TEST(Activation, AgreesWithDoubleArithmetic) {
  for (float g = -20.0f; g <= 20.0f; g += 0.37f) {
    for (float u = -12.0f; u <= 12.0f; u += 0.41f) {
      const double gd = std::min(static_cast<double>(g), 7.0);
      const double ud = std::clamp(static_cast<double>(u), -7.0, 7.0);
      const double silu_g = g / (1 + std::exp(-static_cast<double>(g)));
      const auto near = [](float got, double want) {
        return std::fabs(got - want) <= 1e-5 * std::fabs(want);
      };
      ASSERT_TRUE(near(activate(Activation::kSwiglu, g, u, kServed), silu_g * u));
      ASSERT_TRUE(near(activate(Activation::kSwigluPreclamp, g, u, kServed),
                       gd / (1 + std::exp(-gd)) * ud));
      ASSERT_TRUE(
          near(activate(Activation::kSwigluPostclamp, g, u, kServed), std::min(silu_g, 7.0) * ud));
      const double oai = (ud + 1) * gd / (1 + std::exp(-1.702f * gd));
      ASSERT_TRUE(near(activate(Activation::kSwigluOai, g, u, kServed), oai)) << g << " " << u;
    }
  }
}

TEST(Activation, ClampsAtTheLimitItself) {
  EXPECT_EQ(clamp_above(7.0f, 7.0f), 7.0f);
  EXPECT_EQ(clamp_above(std::nextafter(7.0f, kInf), 7.0f), 7.0f);
  EXPECT_EQ(clamp_above(-1e30f, 7.0f), -1e30f);
  EXPECT_EQ(clamp_both(-1e30f, 7.0f), -7.0f);
  EXPECT_EQ(clamp_both(kInf, 7.0f), 7.0f);
  EXPECT_EQ(float_bits(clamp_both(-0.0f, 7.0f)), 0x80000000u);
}

TEST(Activation, NansPassEveryFormAndComeOutCanonical) {
  for (const Activation activation : {Activation::kSwiglu, Activation::kSwigluPreclamp,
                                      Activation::kSwigluPostclamp, Activation::kSwigluOai}) {
    for (const std::uint32_t nan : kNans) {
      const float n = bits_float(nan);
      EXPECT_EQ(float_bits(activate(activation, n, 1.0f, kServed)), 0x7FC00000u);
      EXPECT_EQ(float_bits(activate(activation, 1.0f, n, kServed)), 0x7FC00000u);
      EXPECT_EQ(float_bits(activate(activation, n, n, kServed)), 0x7FC00000u);
      EXPECT_EQ(float_bits(activate(activation, n, 0.0f, kServed)), 0x7FC00000u);
    }
    // An invalid operation makes the sign-set NaN on x86; it must come out canonical as well.
    volatile float inf = kInf;
    EXPECT_EQ(float_bits(activate(activation, -inf, 1.0f, kServed)), 0x7FC00000u);
  }
}

TEST(Activation, ValuesOfTheEnumAreFixed) {
  EXPECT_EQ(static_cast<std::int32_t>(Activation::kSwiglu), 0);
  EXPECT_EQ(static_cast<std::int32_t>(Activation::kSwigluPreclamp), 1);
  EXPECT_EQ(static_cast<std::int32_t>(Activation::kSwigluPostclamp), 2);
  EXPECT_EQ(static_cast<std::int32_t>(Activation::kSwigluOai), 3);
}

}  // namespace
}  // namespace memra::numerics
