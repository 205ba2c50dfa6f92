// E2M1, UE4M3 and the two-level quantisation, against brute force and third-party data.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "numerics/e2m1.h"
#include "numerics/quantize_nvfp4.h"
#include "numerics/ue4m3.h"

namespace memra::numerics {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double scale_value(std::uint32_t code) {
  const int e = static_cast<int>(code >> 3);
  const double m = code & 7u;
  return e != 0 ? std::ldexp(1 + m / 8, e - 7) : std::ldexp(m, -9);
}

// Index of the nearest of n rising values, by looking at all of them; ties to the even index.
template <class ValueOf>
std::uint32_t brute_nearest(std::uint32_t n, ValueOf value_of, double x) {
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < n; ++i) {
    const double now = std::fabs(value_of(i) - x);
    const double so_far = std::fabs(value_of(best) - x);
    if (now < so_far || (now == so_far && i % 2 == 0)) best = i;
  }
  return best;
}

std::uint32_t brute_scale(double x) {
  return brute_nearest(127, scale_value, x);
}
std::uint32_t brute_magnitude(double x) {
  return brute_nearest(
      8, [](std::uint32_t i) { return kMagnitudes[i]; }, x);
}

TEST(E2m1, CodesHaveTheirValues) {
  constexpr int kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (std::uint32_t code = 0; code < 16; ++code) {
    EXPECT_EQ(e2m1_doubled(code), kDoubled[code]);
    EXPECT_EQ(e2m1_value(code), static_cast<float>(kDoubled[code]) / 2);
    EXPECT_EQ(e2m1_doubled(code | 0xF0u), kDoubled[code]) << "high bits must not count";
  }
  EXPECT_EQ(float_bits(e2m1_value(8)), 0u);
}

TEST(E2m1, TiesGoToTheEvenCode) {
  const float ties[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const std::uint32_t want[7] = {0, 2, 2, 4, 4, 6, 6};
  for (std::uint32_t i = 0; i < 7; ++i) {
    EXPECT_EQ(e2m1_nearest(ties[i]), want[i]) << ties[i];
    EXPECT_EQ(e2m1_nearest(-ties[i]), want[i] == 0 ? 0 : want[i] | 8u) << -ties[i];
    EXPECT_EQ(e2m1_nearest(std::nextafter(ties[i], 0.0f)), i);
    EXPECT_EQ(e2m1_nearest(std::nextafter(ties[i], kInf)), i + 1);
  }
}

TEST(E2m1, NearestOfADenseSweep) {
  for (int i = -70000; i <= 70000; ++i) {
    const float x = static_cast<float>(i) * 0x1p-13f;
    const std::uint32_t index = brute_magnitude(std::fabs(x));
    ASSERT_EQ(e2m1_nearest(x), index | (x < 0 && index != 0 ? 8u : 0u)) << x;
  }
}

TEST(E2m1, SpecialValues) {
  EXPECT_EQ(e2m1_nearest(kInf), 7u);
  EXPECT_EQ(e2m1_nearest(-kInf), 15u);
  EXPECT_EQ(e2m1_nearest(1e30f), 7u);
  EXPECT_EQ(e2m1_nearest(kNan), 0u);
  EXPECT_EQ(e2m1_nearest(-kNan), 0u);
  EXPECT_EQ(e2m1_nearest(-0.0f), 0u);
  EXPECT_EQ(e2m1_nearest(-0.1f), 0u);
  EXPECT_EQ(e2m1_nearest(-1e-45f), 0u);
}

TEST(Ue4m3, All256CodesDecode) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const bool legal = code <= 0x7E;
    EXPECT_EQ(ue4m3_is_legal(code), legal) << code;
    const std::uint32_t want = legal ? float_bits(static_cast<float>(scale_value(code))) : 0u;
    EXPECT_EQ(float_bits(ue4m3_decode(code)), want) << code;
    EXPECT_EQ(float_bits(kUe4m3Table[code]), want) << code;
    EXPECT_EQ(ue4m3_sanitize(code), legal ? code : 0u);
    if (legal) {
      // At run time as well: the optimiser may have folded the loop above.
      volatile std::uint32_t opaque = code;
      EXPECT_EQ(float_bits(ue4m3_decode_legal(opaque)), want) << code;
      EXPECT_EQ(ue4m3_nearest(ue4m3_decode_legal(code)), code);
    }
  }
}

TEST(Ue4m3, ValuesThatAWellKnownEncoderGetsWrong) {
  EXPECT_EQ(ue4m3_nearest(240.0f), 0x77u);
  EXPECT_EQ(ue4m3_nearest(248.0f), 0x78u);  // between 240 and 256
  EXPECT_EQ(ue4m3_nearest(256.0f), 0x78u);
  EXPECT_EQ(ue4m3_nearest(288.0f), 0x79u);
  EXPECT_EQ(ue4m3_nearest(320.0f), 0x7Au);
  EXPECT_EQ(ue4m3_nearest(400.0f), 0x7Cu);  // between 384 and 416
  EXPECT_EQ(ue4m3_nearest(447.0f), 0x7Eu);
}

TEST(Ue4m3, MidpointsGoToTheEvenCodeAndTheirNeighboursToTheNearer) {
  for (std::uint32_t code = 0; code < 126; ++code) {
    const float middle = static_cast<float>((scale_value(code) + scale_value(code + 1)) / 2);
    EXPECT_EQ(ue4m3_nearest(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(ue4m3_nearest(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(ue4m3_nearest(std::nextafter(middle, kInf)), code + 1);
  }
}

TEST(Ue4m3, NearestOfADenseSweep) {
  // By value over the whole range, and by bits over the small values that it hardly visits.
  for (int i = 0; i <= 460 * 256; ++i) {
    const float x = static_cast<float>(i) / 256;
    ASSERT_EQ(ue4m3_nearest(x), brute_scale(x)) << x;
  }
  for (std::uint32_t bits = 0; bits < float_bits(512.0f); bits += 9973) {
    const float x = bits_float(bits);
    ASSERT_EQ(ue4m3_nearest(x), brute_scale(x)) << x;
  }
}

TEST(Ue4m3, SpecialValues) {
  EXPECT_EQ(ue4m3_nearest(std::nextafter(448.0f, kInf)), 0x7Eu);
  EXPECT_EQ(ue4m3_nearest(480.0f), 0x7Eu);
  EXPECT_EQ(ue4m3_nearest(1e38f), 0x7Eu);
  EXPECT_EQ(ue4m3_nearest(kInf), 0x7Eu);
  EXPECT_EQ(ue4m3_nearest(kNan), 0u);
  EXPECT_EQ(ue4m3_nearest(-kInf), 0u);
  EXPECT_EQ(ue4m3_nearest(-1.0f), 0u);
  EXPECT_EQ(ue4m3_nearest(-0.0f), 0u);
  EXPECT_EQ(ue4m3_nearest(1e-45f), 0u);
}

TEST(Nvfp4Table, EveryScaleTimesEveryCodeAsAnotherLibraryHasIt) {
  std::ifstream file(std::string(MEMRA_TEST_DATA_DIR) + "/nvfp4_table.txt");
  ASSERT_TRUE(file.is_open());
  std::string line;
  std::uint32_t rows = 0;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::uint32_t scale = 0;
    ASSERT_TRUE(words >> scale);
    ASSERT_EQ(scale, rows);
    for (std::uint32_t code = 0; code < 16; ++code) {
      std::string word;
      ASSERT_TRUE(words >> word);
      ASSERT_EQ(float_bits(dequantize_value(code, ue4m3_decode_legal(scale), 1.0f)),
                float_bits(std::strtof(word.c_str(), nullptr)))
          << "scale " << scale << " code " << code;
    }
    ++rows;
  }
  EXPECT_EQ(rows, 127u);
}

TEST(Quantize, AmaxLeavesOutWhatIsNotFinite) {
  float amax = 0.0f;
  for (const float x : {-0.0f, 1.5f, kNan, -kInf, -3.0f, kInf, 2.0f})
    amax = amax_step(amax, x);
  EXPECT_EQ(amax, 3.0f);
  EXPECT_EQ(float_bits(amax_step(0.0f, -0.0f)), 0u);
  EXPECT_EQ(amax_step(0.0f, -1e-45f), 1e-45f);
}

TEST(Quantize, ExpertScale) {
  EXPECT_EQ(expert_scale_from_amax(2688.0f), 1.0f);
  EXPECT_EQ(expert_scale_from_amax(1.0f), 1.0f / 2688.0f);
  EXPECT_EQ(expert_scale_from_amax(0.0f), 1.0f);
  EXPECT_EQ(expert_scale_from_amax(1e-45f), 1.0f);
  EXPECT_TRUE(is_finite(expert_scale_from_amax(std::numeric_limits<float>::max())));
}

TEST(Quantize, ValuesOnTheGridComeBackExactly) {
  for (const float expert_scale : {1.0f, 0.125f, 3.0f, 1.0f / 2688.0f}) {
    for (std::uint32_t scale = 1; scale <= kUe4m3MaxCode; ++scale) {
      const float top = dequantize_value(7, ue4m3_decode(scale), expert_scale);
      const std::uint32_t scale_code = block_scale_code(top, expert_scale);
      ASSERT_EQ(scale_code, scale);
      const float step = block_step(scale_code, expert_scale);
      for (std::uint32_t code = 0; code < 16; ++code) {
        const float x = dequantize_value(code, ue4m3_decode(scale), expert_scale);
        ASSERT_EQ(value_code(x, step), code == 8 ? 0u : code) << scale << " " << expert_scale;
      }
    }
  }
}

TEST(Quantize, RandomBlocksTakeTheNearestScaleAndCodes) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int block = 0; block < 20000; ++block) {
    const float expert_scale = std::exp(normal(random));
    const float size = std::exp(4 * normal(random));
    float x[16];
    float amax = 0.0f;
    for (float& value : x) {
      value = size * normal(random);
      amax = amax_step(amax, value);
    }
    const std::uint32_t scale_code = block_scale_code(amax, expert_scale);
    // f32 rounds the quotient once before the nearest code is taken; brute force on that quotient.
    ASSERT_EQ(scale_code, brute_scale(amax / (6.0f * expert_scale)));
    const float step = block_step(scale_code, expert_scale);
    for (const float value : x) {
      const std::uint32_t code = value_code(value, step);
      if (step == 0.0f) {
        ASSERT_EQ(code, 0u);
      } else {
        ASSERT_EQ(code & 7u, brute_magnitude(std::fabs(value / step)));
        ASSERT_EQ(code & 8u, value < 0 && (code & 7u) != 0 ? 8u : 0u);
      }
    }
  }
}

TEST(Quantize, QuotientsNearTiesAreRoundedAsTheContractDivides) {
  std::mt19937 random(29);
  std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
  int order_matters = 0;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const float expert_scale = uniform(random);
    const std::uint32_t code = 8 + random() % 118;
    const double middle = (scale_value(code) + scale_value(code + 1)) / 2;
    const float amax = static_cast<float>(middle * 6 * static_cast<double>(expert_scale));
    for (int ulps = -2; ulps <= 2; ++ulps) {
      const float x = bits_float(float_bits(amax) + static_cast<std::uint32_t>(ulps));
      const std::uint32_t want = brute_scale(x / (6.0f * expert_scale));
      ASSERT_EQ(block_scale_code(x, expert_scale), want) << x << " " << expert_scale;
      order_matters += brute_scale(x / 6.0f / expert_scale) != want;
    }
  }
  EXPECT_GT(order_matters, 100);
}

TEST(Quantize, DegenerateInputs) {
  EXPECT_EQ(block_scale_code(0.0f, 1.0f), 0u);
  EXPECT_EQ(value_code(1.0f, block_step(0, 1.0f)), 0u);
  EXPECT_EQ(value_code(0.0f, 0.0f), 0u);
  EXPECT_EQ(value_code(kNan, 1.0f), 0u);
  EXPECT_EQ(value_code(kInf, 1.0f), 0u);
  EXPECT_EQ(value_code(-kInf, 1.0f), 0u);
  EXPECT_EQ(value_code(-7.0f, 1.0f), 15u);
  // A product of two scales that underflows must not become a division by zero.
  EXPECT_EQ(value_code(1.0f, block_step(1, 1e-45f)), 0u);
}

TEST(Quantize, DequantizedNansAreCanonical) {
  EXPECT_EQ(float_bits(dequantize_value(1, 1.0f, bits_float(0xFFC00123u))), kCanonicalNan);
  EXPECT_EQ(float_bits(dequantize_value(0, 1.0f, kInf)), kCanonicalNan);
}

}  // namespace
}  // namespace memra::numerics
