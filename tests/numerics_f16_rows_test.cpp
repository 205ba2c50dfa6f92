// Rows of f16 under a power of two, and the decoding of weights that the grouped path is exact in.
#include "numerics/f16_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/e2m1.h"
#include "numerics/ue4m3.h"
#include "reference/floats.h"
#include "reference/generate.h"

namespace memra::numerics {
namespace {

TEST(F16Rows, PowersOfTwo) {
  for (std::int32_t k = -126; k <= 127; ++k)
    ASSERT_EQ(power_of_two(k), std::ldexp(1.0f, k)) << k;
}

// Every exponent, the smallest and the largest value under each.
TEST(F16Rows, ExponentKeepsTheLargestValueHigh) {
  EXPECT_EQ(f16_exponent(0), 0);
  for (std::uint32_t e = 0; e < 255; ++e) {
    for (const std::uint32_t mantissa : {0u, 1u, 0x7FFFFFu}) {
      const std::uint32_t bits = e << 23 | mantissa;
      if (bits == 0) continue;
      const std::int32_t k = f16_exponent(bits);
      ASSERT_GE(k, -126);
      ASSERT_LE(k, 113);
      const double scaled = std::ldexp(static_cast<double>(bits_float(bits)), -k);
      ASSERT_LT(scaled, 32768.0) << e;
      if (k > -126) {
        ASSERT_GE(scaled, 16384.0) << e;
      }
      // It rounds to no infinity, and 2^-k is a normal float.
      ASSERT_LE(f16_scaled(bits_float(bits), k), 0x7800u) << e;
    }
  }
}

// One rounding, though there are two steps.
TEST(F16Rows, ScalingRoundsOnce) {
  reference::Random random(4);
  for (int i = 0; i < 200000; ++i) {
    const auto k = static_cast<std::int32_t>(random.below(113 + 127) - 126);
    const int exponent = k + 15 - static_cast<int>(random.below(45));
    const float x = std::ldexp(random.uniform(-1.0f, 1.0f), exponent);
    const double scaled = std::ldexp(static_cast<double>(x), -k);
    const double grid =
        std::abs(scaled) < 0x1p-14 ? 0x1p-24 : std::ldexp(1.0, std::ilogb(scaled) - 10);
    const double expected = std::nearbyint(scaled / grid) * grid;
    ASSERT_EQ(static_cast<double>(reference::f16_to_f32(f16_scaled(x, k))), expected)
        << x << " " << k;
  }
}

// All products of a code and a scale are f32, and f16 times 2^7.
TEST(F16Rows, WeightsAreExact) {
  for (std::uint32_t scale = 0; scale <= kUe4m3MaxCode; ++scale) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      const double exact = static_cast<double>(e2m1_value(code)) * kUe4m3Table[scale];
      ASSERT_EQ(static_cast<double>(e2m1_doubled(code)) * (ue4m3_decode(scale) * 0.5f), exact);
      ASSERT_EQ(static_cast<float>(e2m1_doubled(code)) * (ue4m3_decode(scale) * 0.5f), exact);
      const auto small = static_cast<float>(exact * 0x1p-7);
      ASSERT_EQ(reference::f16_to_f32(reference::f32_to_f16(small)), exact * 0x1p-7);
    }
  }
}

}  // namespace
}  // namespace memra::numerics
