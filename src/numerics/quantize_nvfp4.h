// Two-level NVFP4: floats to (expert scale, block scale codes, value codes) and back.
#pragma once

#include <cstdint>

#include "numerics/e2m1.h"
#include "numerics/platform.h"
#include "numerics/ue4m3.h"

namespace memra::numerics {

// A running maximum of |x|, from +0. Values that are not finite are left out; callers count them
// with is_finite(). Maxima of parts combine in any order.
MEMRA_HD float amax_step(float amax, float x) {
  const std::uint32_t bits = magnitude_bits(x);
  return bits < kInfBits && bits > float_bits(amax) ? bits_float(bits) : amax;
}

// amax / (6 * 448) of a slab, so that the largest block scale is about 448. A slab of zeros, or of
// values so small that the quotient is 0, gets 1: all its codes are 0.
MEMRA_HD float expert_scale_from_amax(float amax) {
  const float scale = div(amax, 6.0f * 448.0f);
  return scale > 0.0f ? scale : 1.0f;
}

// amax_block / (6 * expert_scale) to the nearest legal code. expert_scale is finite and above 0.
MEMRA_HD std::uint32_t block_scale_code(float amax_block, float expert_scale) {
  return ue4m3_nearest(div(amax_block, mul(kE2m1Max, expert_scale)));
}

// The step of a block, for value_code().
MEMRA_HD float block_step(std::uint32_t scale_code, float expert_scale) {
  return mul(ue4m3_decode(scale_code), expert_scale);
}

// The nearest code of x / step; 0 where step is 0 or x is not finite.
MEMRA_HD std::uint32_t value_code(float x, float step) {
  if (step == 0.0f || !is_finite(x)) return 0u;
  return e2m1_nearest(div(x, step));
}

// code * block scale is exact, so there is one rounding. An expert scale of 1 changes no bit.
MEMRA_HD float dequantize_value(std::uint32_t code, float block_scale, float expert_scale) {
  return canon(mul(mul(e2m1_value(code), block_scale), expert_scale));
}

}  // namespace memra::numerics
