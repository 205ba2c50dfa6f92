// E2M1 codes: bit 3 is the sign, the rest indexes the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6.
#pragma once

#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

inline constexpr std::uint32_t kE2m1SignBit = 0x8u;
inline constexpr float kE2m1Max = 6.0f;

// Twice the magnitude of each index, one nibble each.
inline constexpr std::uint32_t kE2m1DoubledMagnitudes = 0xC8643210u;

// The doubled value: one of 0, 1, 2, 3, 4, 6, 8, 12 with its sign. Only the low four bits count.
MEMRA_HD constexpr std::int32_t e2m1_doubled(std::uint32_t code) {
  const std::int32_t magnitude =
      static_cast<std::int32_t>((kE2m1DoubledMagnitudes >> ((code & 7u) * 4u)) & 15u);
  return (code & kE2m1SignBit) != 0 ? -magnitude : magnitude;
}

// Code 8 is +0, as integer arithmetic on doubled codes makes it.
MEMRA_HD constexpr float e2m1_value(std::uint32_t code) {
  return static_cast<float>(e2m1_doubled(code)) * 0.5f;
}

// Nearest code, ties to the even index; Inf and all beyond 6 saturate, NaN gives 0. A magnitude
// that rounds to zero gives code 0: code 8 is never produced.
MEMRA_HD constexpr std::uint32_t e2m1_nearest(float value) {
  const float a = bits_float(magnitude_bits(value));
  const std::uint32_t index = static_cast<std::uint32_t>(a > 0.25f) + (a >= 0.75f) + (a > 1.25f) +
                              (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  const bool negative = (float_bits(value) >> 31) != 0;
  return index | (negative && index != 0 ? kE2m1SignBit : 0u);
}

}  // namespace memra::numerics
