// Rules 2, 3 and 6: the dot product of a row, and the weighted sum over slots.
#pragma once

#include <cstdint>

#include "numerics/e2m1.h"
#include "numerics/platform.h"

namespace memra::numerics {

inline constexpr int kVirtualLanes = 32;

// Exact dot of 16 doubled codes, in a group's byte order, with 16 activations in column order. Any
// other order of the sum gives the same integer. |result| <= 16 * 12 * 127.
MEMRA_HD std::int32_t half_dot(const std::uint8_t* codes, const std::int8_t* q) {
  std::int32_t sum = 0;
  for (int i = 0; i < 8; ++i) {
    sum += e2m1_doubled(codes[i] & 15u) * q[i] + e2m1_doubled(codes[i] >> 4) * q[i + 8];
  }
  return sum;
}

// Rule 2, for integers that are floats already; in two steps, one for each half of a group, or at
// once. A power of two may sit in i instead of s: the products stay exact.
MEMRA_HD float first_half(float s0, float i0) {
  return mul(s0, i0);
}
MEMRA_HD float second_half(float s1, float i1, float partial) {
  return fma(s1, i1, partial);
}
MEMRA_HD float group_partial(float s0, float i0, float s1, float i1) {
  return second_half(s1, i1, first_half(s0, i0));
}

// Rule 2. Both conversions are exact.
MEMRA_HD float group_partial(float s0, std::int32_t i0, float s1, std::int32_t i1) {
  return group_partial(s0, static_cast<float>(i0), s1, static_cast<float>(i1));
}

// Rule 3: one group into its virtual lane's accumulator, which starts at +0.
MEMRA_HD float row_step(float acc, float d, float partial) {
  return fma(d, partial, acc);
}

// Rule 3: the pairwise sums at distance 16, 8, 4, 2, 1. Overwrites `lanes`.
MEMRA_HD float lane_tree(float* lanes) {
  for (int distance = kVirtualLanes / 2; distance > 0; distance /= 2) {
    for (int l = 0; l < distance; ++l)
      lanes[l] = add(lanes[l], lanes[l + distance]);
  }
  return lanes[0];
}

// Undoes the doubling of the codes; a rounding of its own, never folded into a scale.
MEMRA_HD float finish_dot(float acc) {
  return mul(0.5f, acc);
}

// Rule 6.
MEMRA_HD float pair_scale(float topk_weight, float scale_down) {
  return mul(topk_weight, scale_down);
}
MEMRA_HD float slot_step(float scale, float dot, float y) {
  return fma(scale, dot, y);
}
MEMRA_HD float slot_bias_step(float topk_weight, float bias, float y) {
  return fma(topk_weight, bias, y);
}

}  // namespace memra::numerics
