#pragma once

// Outputs of pairs on their way to the sum over slots: two neighbours in a word, each 12 bits under
// an exponent that they share. An expert's raw output may lie anywhere in f32's range; f16 under an
// exponent for many outputs would need their maximum first, for which a lane would have to ask
// seven others. A value is off by at most 2^-11 of the larger of the two. What is not finite makes
// both NaN; magnitudes in the last 2^-12 of f32's range may become Inf.

#include <cstdint>

#include "numerics/platform.h"

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
}  // namespace packed

MEMRA_HD uint32_t pack_outputs(float first, float second) {
  using namespace packed;
  const uint32_t a = numerics::magnitude_bits(first), b = numerics::magnitude_bits(second);
  const uint32_t largest = (a > b ? a : b) & kFieldMask;
  const uint32_t field = largest > kLeastField ? largest : kLeastField;
  const float factor = numerics::bits_float(kFactor - field);
  const uint32_t low = numerics::float_bits(numerics::fma(first, factor, kToInteger));
  const uint32_t high = numerics::float_bits(numerics::fma(second, factor, kToInteger));
  return (low & 0xFFFu) | (high << 12 & 0xFFF000u) | field << 1;
}

MEMRA_HD OutputPair unpack_outputs(uint32_t word) {
  using namespace packed;
  const uint32_t field = word >> 1 & kFieldMask;
  if (field == kFieldMask) {
    const float nan = numerics::bits_float(numerics::kCanonicalNan);
    return {nan, nan};
  }
  const float inverse = numerics::bits_float(kInverse + field);
  const auto first = static_cast<int32_t>(word << 20) >> 20;
  const auto second = static_cast<int32_t>(word << 8) >> 20;
  return {numerics::mul(static_cast<float>(first), inverse),
          numerics::mul(static_cast<float>(second), inverse)};
}

}  // namespace memra::cuda
