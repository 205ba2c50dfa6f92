// Rule 1: activations to int8, 32 values under one f32 scale.
#pragma once

#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

inline constexpr int kGroup = 32;

// Groups whose maximum is below 2^-119 quantise to zero: d would be subnormal, or inv overflow.
inline constexpr std::uint32_t kQ8ZeroBelowBits = 0x04000000u;

// `inv` is 0 exactly where all q are 0: in a zero group (d = +0) and in one that holds a NaN or an
// Inf (d = canonical NaN).
struct Q8Scale {
  float d;
  float inv;
};

// From the unsigned maximum of magnitude_bits() over the group.
MEMRA_HD Q8Scale q8_scale(std::uint32_t amax_bits) {
  if (amax_bits >= kInfBits) return {bits_float(kCanonicalNan), 0.0f};
  if (amax_bits < kQ8ZeroBelowBits) return {0.0f, 0.0f};
  const float amax = bits_float(amax_bits);
  return {div(amax, 127.0f), div(127.0f, amax)};
}

// Round to nearest even to an integer by adding 1.5 * 2^23; exact for |value| < 2^22, and here
// |value| < 127.5. No conversion instruction: vectors and the device do the same two operations.
MEMRA_HD std::int32_t round_to_int(float value) {
  return static_cast<std::int32_t>(float_bits(add(value, 0x1.8p23f)) - 0x4B400000u);
}

// For an x of the group that `scale` came from.
MEMRA_HD std::int8_t q8(float x, Q8Scale scale) {
  const std::int32_t q = round_to_int(mul(x, scale.inv));
  return static_cast<std::int8_t>(scale.inv == 0.0f ? 0 : q);
}

// One whole group; returns d.
MEMRA_HD float q8_group(const float* x, std::int8_t* q) {
  std::uint32_t amax_bits = 0;
  for (int i = 0; i < kGroup; ++i) {
    const std::uint32_t bits = magnitude_bits(x[i]);
    amax_bits = bits > amax_bits ? bits : amax_bits;
  }
  const Q8Scale scale = q8_scale(amax_bits);
  for (int i = 0; i < kGroup; ++i)
    q[i] = q8(x[i], scale);
  return scale.d;
}

}  // namespace memra::numerics
