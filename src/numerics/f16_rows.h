// Section 5: rows of activations as f16 under a power of two.
#pragma once

#include <cstdint>

#include "numerics/half.h"
#include "numerics/platform.h"

namespace memra::numerics {

// The largest magnitude of a row comes to lie in [2^14, 2^15), as high as f16 and its rounding
// allow: small values beside it keep all their bits for 28 binades.
inline constexpr std::int32_t kF16TopExponent = 14;
inline constexpr std::int32_t kMinNormalExponent = -126;

// 2^k for a normal result.
MEMRA_HD constexpr float power_of_two(std::int32_t k) {
  return bits_float(static_cast<std::uint32_t>(k + 127) << 23);
}

// k of finite values, from the unsigned maximum of magnitude_bits() over them; 0 for zeros. Never
// so small that 2^k would not be normal; at most 113.
MEMRA_HD constexpr std::int32_t f16_exponent(std::uint32_t amax_bits) {
  if (amax_bits == 0) return 0;
  const std::int32_t k = static_cast<std::int32_t>(amax_bits >> 23) - 127 - kF16TopExponent;
  return k < kMinNormalExponent ? kMinNormalExponent : k;
}

// f16(x * 2^-k) for the k above. Both steps together round once: where the product is no normal
// float, f16 has 0 anyway.
MEMRA_HD std::uint16_t f16_scaled(float x, std::int32_t k) {
  return f32_to_f16(mul(x, power_of_two(-k)));
}

}  // namespace memra::numerics
