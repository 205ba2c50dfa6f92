#pragma once

// The activation's outputs as rows of the next product: f16 under an exponent for each 16 of them.
//
// One exponent for a row needs the whole row, of which a warp sees a part. So each part has its
// own, from a coarse grid: parts of one row nearly always meet on it, and a pass over the exponents
// alone brings those few together that do not (grouped_activations.cu).

#include <cstdint>

#include "grouped_layout.cuh"
#include "numerics/activation.h"
#include "numerics/f16_rows.h"
#include "ptx.cuh"

namespace memra::cuda {

// Parts of a slab: what one thread of a quad takes of it (grouped_layout.cuh), a quarter of every
// chunk.
inline constexpr int kSlabParts = kStepRuns;
MEMRA_HD constexpr int64_t n_parts(int64_t columns) {
  return n_slabs(columns) * kSlabParts;
}

// Exponents are kGridOffset plus multiples of kGridStep, such that the largest magnitude, scaled,
// is in [2^-1, 2^15). That keeps all bits of f16 for values down to 2^-13 of it, and 23 bits below
// the largest in all. Magnitudes of 2^-9 to 2^7, as models have them, meet on one point of the
// grid.
inline constexpr int32_t kGridStep = 16, kGridOffset = -8;
inline constexpr int32_t kLeastExponent = -120, kMostExponent = 127 - numerics::kF16TopExponent;

MEMRA_HD constexpr int32_t grid_exponent(uint32_t amax_bits) {
  // The exponent that puts the largest magnitude into [2^14, 2^15) is the least that will do.
  const int32_t least = static_cast<int32_t>(amax_bits >> 23) - 127 - numerics::kF16TopExponent;
  const int32_t above = least - kGridOffset + kGridStep * 16;  // not negative
  const int32_t point =
      (above + kGridStep - 1) / kGridStep * kGridStep - kGridStep * 16 + kGridOffset;
  // 2^-k, and 2^k with the unit of weights, stay normal floats; what is not finite stays what it
  // is.
  return point < kLeastExponent ? kLeastExponent : point > kMostExponent ? kMostExponent : point;
}

// As it is kept: a part of zeroes may take any, and what is not finite makes the row NaN.
inline constexpr int8_t kAnyExponent = -128, kNotFinite = 127;
MEMRA_HD constexpr int8_t part_exponent(int32_t exponent, uint32_t amax_bits) {
  if (amax_bits >= numerics::kInfBits) return kNotFinite;
  return amax_bits == 0 ? kAnyExponent : static_cast<int8_t>(exponent);
}

// A part's, from the upper half of its largest magnitude's bits: as it is kept, and what values are
// multiplied by, the upper half of a float. Parts that have nothing from 2^-133 on become zeroes.
struct PartExponent {
  int8_t kept;
  uint32_t factor;

  MEMRA_HD constexpr explicit PartExponent(uint32_t amax_upper)
      : kept(part_exponent(grid_exponent(amax_upper << 16), amax_upper << 16)),
        factor(amax_upper == 0 ? 0
                               : numerics::float_bits(
                                     numerics::power_of_two(-grid_exponent(amax_upper << 16))) >>
                                     16) {}
};

// The scale of a row whose parts have met on an exponent.
MEMRA_HD constexpr float row_scale(int32_t exponent) {
  return exponent == kNotFinite ? numerics::bits_float(numerics::kCanonicalNan)
                                : numerics::power_of_two(exponent);
}

// All activation functions as one: g and u clamped, g * sigmoid(alpha * g), clamped, times u +
// offset.
struct ActivationForm {
  float limit_before, limit_after, limit_up, minus_alpha_log2e, offset;

  __device__ __forceinline__ ActivationForm(numerics::Activation activation,
                                            const numerics::ActivationParams& params) {
    constexpr float kLog2e = 1.44269504f, kNone = __builtin_inff();
    const bool oai = activation == numerics::Activation::kSwigluOai;
    const bool after = activation == numerics::Activation::kSwigluPostclamp;
    const bool none = activation == numerics::Activation::kSwiglu;
    limit_before = none || after ? kNone : params.limit;
    limit_after = after ? params.limit : kNone;
    limit_up = none ? kNone : params.limit;
    minus_alpha_log2e = -kLog2e * (oai ? params.alpha : 1.0f);
    offset = oai ? 1.0f : 0.0f;
  }

  __device__ __forceinline__ float operator()(float g, float u) const {
    g = min_or_nan(g, limit_before);
    u = max_or_nan(min_or_nan(u, limit_up), -limit_up);
    const float e = exp2_approximate(__fmul_rn(minus_alpha_log2e, g));
    float s = __fmul_rn(g, reciprocal_approximate(__fadd_rn(1.0f, e)));
    s = min_or_nan(s, limit_after);
    return __fmul_rn(s, __fadd_rn(u, offset));
  }
};

}  // namespace memra::cuda
