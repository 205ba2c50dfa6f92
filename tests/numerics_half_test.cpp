// f16 and bf16 against their definitions: every code, every midpoint, and a sweep of floats.
#include "numerics/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace memra::numerics {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t canonical_nan;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t inf_code() const { return ((1u << exponent_bits) - 1u) << mantissa_bits; }

  // The value of a positive code. Inf's code reads as the power of two that rounding sees there.
  double value(std::uint32_t code) const {
    const int e = static_cast<int>(code >> mantissa_bits);
    const double m = code & ((1u << mantissa_bits) - 1u);
    const double fraction = std::ldexp(m, -mantissa_bits);
    return e == 0 ? std::ldexp(fraction, 1 - bias()) : std::ldexp(1.0 + fraction, e - bias());
  }

  std::vector<double> values() const {
    std::vector<double> all;
    for (std::uint32_t code = 0; code <= inf_code(); ++code)
      all.push_back(value(code));
    return all;
  }
};

// Code of the nearest of `values`, which rise; ties to the even code. Knows nothing of bits.
std::uint32_t nearest(const std::vector<double>& values, double a) {
  const auto above = std::upper_bound(values.begin(), values.end(), a);
  if (above == values.end()) return static_cast<std::uint32_t>(values.size() - 1);
  const auto high = static_cast<std::uint32_t>(above - values.begin());
  const std::uint32_t low = high - 1;
  const double below_by = a - values[low];
  const double above_by = values[high] - a;
  if (below_by != above_by) return below_by < above_by ? low : high;
  return low % 2 == 0 ? low : high;
}

std::uint16_t narrow_f16(float value) {
  return f32_to_f16(value);
}
std::uint16_t narrow_bf16(float value) {
  return f32_to_bf16(value);
}
float widen_f16(std::uint16_t half) {
  return f16_to_f32(half);
}
float widen_bf16(std::uint16_t bf16) {
  return bf16_to_f32(bf16);
}

constexpr Format kF16{5, 10, 0x7E00u, widen_f16, narrow_f16};
constexpr Format kBf16{8, 7, 0x7FC0u, widen_bf16, narrow_bf16};

class HalfFormat : public ::testing::TestWithParam<Format> {};

TEST_P(HalfFormat, EveryCodeWidensExactly) {
  const Format format = GetParam();
  for (std::uint32_t code = 0; code < 0x10000u; ++code) {
    const float got = format.widen(static_cast<std::uint16_t>(code));
    const std::uint32_t positive = code & 0x7FFFu;
    std::uint32_t want = kCanonicalNan;
    if (positive == format.inf_code()) want = kInfBits | (code & 0x8000u) << 16;
    if (positive < format.inf_code()) {
      const double value = format.value(positive);
      want = float_bits(static_cast<float>(code & 0x8000u ? -value : value));
    }
    ASSERT_EQ(float_bits(got), want) << "code " << code;
  }
}

TEST_P(HalfFormat, EveryCodeSurvivesARoundTrip) {
  const Format format = GetParam();
  for (std::uint32_t code = 0; code < 0x10000u; ++code) {
    const bool nan = (code & 0x7FFFu) > format.inf_code();
    ASSERT_EQ(format.narrow(format.widen(static_cast<std::uint16_t>(code))),
              nan ? format.canonical_nan : code);
  }
}

TEST_P(HalfFormat, MidpointsGoToTheEvenCodeAndTheirNeighboursToTheNearer) {
  const Format format = GetParam();
  for (std::uint32_t code = 0; code < format.inf_code(); ++code) {
    const double exact = (format.value(code) + format.value(code + 1)) / 2;
    const float middle = static_cast<float>(exact);
    ASSERT_EQ(middle, exact);
    const std::uint32_t even = code % 2 == 0 ? code : code + 1;
    const float below = std::nextafter(middle, 0.0f);
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    ASSERT_EQ(format.narrow(middle), even) << code;
    ASSERT_EQ(format.narrow(-middle), even | 0x8000u) << code;
    ASSERT_EQ(format.narrow(below), code);
    ASSERT_EQ(format.narrow(above), code + 1);
    ASSERT_EQ(format.narrow(-below), code | 0x8000u);
    ASSERT_EQ(format.narrow(-above), (code + 1) | 0x8000u);
  }
}

TEST_P(HalfFormat, ASweepOfAllFloatsGoesToTheNearest) {
  const Format format = GetParam();
  const std::vector<double> values = format.values();
  for (std::uint64_t bits = 0; bits < kInfBits; bits += 997) {
    const float value = bits_float(static_cast<std::uint32_t>(bits));
    const std::uint32_t want = nearest(values, value);
    ASSERT_EQ(format.narrow(value), want) << "bits " << bits;
    ASSERT_EQ(format.narrow(-value), want | 0x8000u) << "bits " << bits;
  }
}

TEST_P(HalfFormat, SpecialValues) {
  const Format format = GetParam();
  const float inf = bits_float(kInfBits);
  EXPECT_EQ(format.narrow(inf), format.inf_code());
  EXPECT_EQ(format.narrow(-inf), format.inf_code() | 0x8000u);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), format.inf_code());
  EXPECT_EQ(format.narrow(0.0f), 0u);
  EXPECT_EQ(format.narrow(-0.0f), 0x8000u);
  for (const std::uint32_t nan :
       {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFC00000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(format.narrow(bits_float(nan)), format.canonical_nan) << std::hex << nan;
  }
}

INSTANTIATE_TEST_SUITE_P(Numerics, HalfFormat, ::testing::Values(kF16, kBf16),
                         [](const ::testing::TestParamInfo<Format>& info) {
                           return info.param.exponent_bits == 5 ? "F16" : "Bf16";
                         });

TEST(HalfTags, LoadAndStoreThroughUntypedPointers) {
  float f32[3] = {1.0f, -2.5f, 0x1.002p0f};
  std::uint16_t f16[3] = {0xFFFFu, 0xFFFFu, 0xFFFFu};
  std::uint16_t bf16[3] = {0xFFFFu, 0xFFFFu, 0xFFFFu};
  for (std::int64_t i = 0; i < 3; ++i) {
    store_from_f32<F16>(f16, i, load_as_f32<F32>(f32, i));
    store_from_f32<Bf16>(bf16, i, load_as_f32<F32>(f32, i));
  }
  EXPECT_EQ(load_as_f32<F16>(f16, 1), -2.5f);
  EXPECT_EQ(load_as_f32<Bf16>(bf16, 1), -2.5f);
  EXPECT_EQ(load_as_f32<F16>(f16, 2), 1.0f);  // a tie
  EXPECT_EQ(load_as_f32<Bf16>(bf16, 2), 1.0f);
}

TEST(HalfTags, StoresAreCanonical) {
  const float nan = bits_float(0xFF812345u);
  float f32 = 0.0f;
  std::uint16_t f16 = 0;
  std::uint16_t bf16 = 0;
  F32::store(&f32, nan);
  F16::store(&f16, nan);
  Bf16::store(&bf16, nan);
  EXPECT_EQ(float_bits(f32), 0x7FC00000u);
  EXPECT_EQ(f16, 0x7E00u);
  EXPECT_EQ(bf16, 0x7FC0u);
  F32::store(&f32, -0.0f);
  EXPECT_EQ(float_bits(f32), 0x80000000u);
}

}  // namespace
}  // namespace memra::numerics
