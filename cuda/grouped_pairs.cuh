#pragma once

// Outputs of pairs on their way to the sum over slots: two neighbours in a word, each 12 bits under
// an exponent that they share. An expert's raw output may lie anywhere in f32's range; f16 under an
// exponent for many outputs would need their maximum first, for which a lane would have to ask
// seven others. A value is off by at most 2^-11 of the larger of the two. Both are finite: of a row
// that is not, the scale is NaN.

#include <cstdint>

#include "numerics/platform.h"
#include "ptx.cuh"

namespace memra::cuda {

struct OutputPair {
  float first, second;
};

namespace packed {
inline constexpr uint32_t kFieldMask = 0xFFu << 23;
// What the larger magnitude is multiplied by, and what is added, before its exponent is taken:
// integers stay below 2048 for all roundings, and both factors are normal floats.
inline constexpr float kRoom = 1.0f + 0x1p-11f, kLeast = 0x1p-115f;
// All bits of a factor but the exponent, which is the complement of the magnitude's: a factor is
// -4 over its power of two, next to nothing less.
inline constexpr uint32_t kFactor = 0x007FFFFFu;
// With the magnitude's exponent field added: the factor's inverse in units of 2^-8.
inline constexpr uint32_t kInverse = 0x80000000u - (10u << 23);
// What is added to it is an integer, in units of 2^-8, in the lowest bits; of 4096 times its bits
// nothing else is left.
inline constexpr float kToInteger = 0x1.8p15f;
inline constexpr uint32_t kToIntegerBits = 0x47400000u;
static_assert(kToIntegerBits << 12 == 0);
// Undoes what all words have in common, and makes both integers not negative.
inline constexpr uint32_t kToFields = 0x800800u - kToIntegerBits - 2;
inline constexpr uint32_t kFromField = 0x4B000000u;
inline constexpr float kFieldZero = 0x1p23f + 2048.0f;

}  // namespace packed

// The bits of the larger magnitude; of a NaN, if there is one.
MEMRA_HD uint32_t larger_magnitude(float first, float second) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(max_or_nan(fabsf(first), fabsf(second)));
#else
  const uint32_t a = numerics::magnitude_bits(first), b = numerics::magnitude_bits(second);
  return a > b ? a : b;
#endif
}

// Few instructions, and those that there are on different pipes: f32, integer multiplication, and
// two for masks and comparisons.
MEMRA_HD uint32_t pack_outputs(float first, float second) {
  using namespace packed;
  const float largest = numerics::bits_float(larger_magnitude(first, second));
  const uint32_t room = numerics::float_bits(numerics::fma(largest, kRoom, kLeast));
#ifdef __CUDA_ARCH__
  const uint32_t factor = complement_or(room, kFactor);
  const auto multiply = [](uint32_t a, uint32_t b, uint32_t c) { return multiply_add(a, b, c); };
#else
  const uint32_t factor = ~room | kFactor;
  const auto multiply = [](uint32_t a, uint32_t b, uint32_t c) { return a * b + c; };
#endif
  const auto integer = [=](float x) {
    return numerics::float_bits(numerics::fma(x, numerics::bits_float(factor), kToInteger));
  };
  const uint32_t word = multiply(integer(second), 4096, integer(first));
  return multiply(factor, ~1u, word);  // twice the exponent field, and 2
}

MEMRA_HD OutputPair unpack_outputs(uint32_t word) {
  using namespace packed;
  const uint32_t fields = word + kToFields;
  const float inverse = numerics::bits_float(kInverse + (fields >> 1 & kFieldMask));
  const float first = numerics::bits_float((fields & 0xFFFu) | kFromField);
  const float second = numerics::bits_float((fields >> 12 & 0xFFFu) | kFromField);
  return {numerics::mul(numerics::sub(first, kFieldZero), inverse),
          numerics::mul(numerics::sub(second, kFieldZero), inverse)};
}

}  // namespace memra::cuda
