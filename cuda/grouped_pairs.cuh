#pragma once

// Outputs of pairs on their way to the sum over slots: two neighbours in a word, each 12 bits under
// an exponent that they share, which counts one less where the second is negative. An expert's raw
// output may lie anywhere in f32's range; f16 under an exponent for many outputs would need their
// maximum first, for which a lane would have to ask seven others. A value is off by at most 2^-11
// of the larger of the two. What is not finite makes both NaN; magnitudes in the last 2^-12 of
// f32's range may become Inf.

#include <cstdint>

#include "numerics/platform.h"
#include "ptx.cuh"

namespace memra::cuda {

struct OutputPair {
  float first, second;
};

namespace packed {
inline constexpr uint32_t kFieldShift = 23, kFieldMask = 0xFFu << kFieldShift;
// Below it 2^-115, and both factors are normal floats.
inline constexpr uint32_t kLeastField = 12u << kFieldShift;
// With the exponent field of the larger magnitude subtracted: 2^10 over its power of two, times
// 2047 / 2048, so that rounding never reaches 2048.
inline constexpr uint32_t kFactor = (263u << kFieldShift) + 0x7FE000u;
// With that field added: the inverse.
inline constexpr uint32_t kInverse = 0x1002u - (10u << kFieldShift);
inline constexpr float kToInteger = 0x1.8p23f;
// A field of 12 bits as the lowest of a float: 2^23 plus 2048 more than it says.
inline constexpr uint32_t kFromField = 0x4B000800u;
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

MEMRA_HD uint32_t pack_outputs(float first, float second) {
  using namespace packed;
  const uint32_t largest = larger_magnitude(first, second);
  const uint32_t field = (largest > kLeastField ? largest : kLeastField) & kFieldMask;
  const float factor = numerics::bits_float(kFactor - field);
  const uint32_t low = numerics::float_bits(numerics::fma(first, factor, kToInteger));
  const uint32_t high = numerics::float_bits(numerics::fma(second, factor, kToInteger));
  // Above its field `high` has eight copies of its sign.
  return ((low & 0xFFFu) | (high << 12 & ~0xFFFu)) + 2 * field;
}

MEMRA_HD OutputPair unpack_outputs(uint32_t word) {
  using namespace packed;
  const uint32_t field = (word + 0x800000u) >> 1 & kFieldMask;
  const float inverse =
      numerics::bits_float(field == kFieldMask ? numerics::kCanonicalNan : kInverse + field);
  // By additions: conversions of integers run at a quarter of their rate.
  const float first = numerics::bits_float((word & 0xFFFu) ^ kFromField);
  const float second = numerics::bits_float((word >> 12 & 0xFFFu) ^ kFromField);
  return {numerics::mul(numerics::sub(first, kFieldZero), inverse),
          numerics::mul(numerics::sub(second, kFieldZero), inverse)};
}

}  // namespace memra::cuda
