// Router logits to scores, and the order in which experts are chosen. Every operation is one of the
// contract's, so that all backends choose the same experts.
#pragma once

#include <cstdint>

#include "numerics/activation.h"
#include "numerics/dot.h"
#include "numerics/platform.h"

namespace memra::numerics {

inline constexpr float kLowest = -__builtin_inff();
inline constexpr float kLargestFloat = 0x1.fffffep127f;

// NaN counts as -Inf, +Inf as the largest float: all that follows is finite or -Inf.
MEMRA_HD float router_logit(float x) {
  if (is_nan(x)) return kLowest;
  return x > kLargestFloat ? kLargestFloat : x;
}

// Softmax. The terms are summed over kVirtualLanes lanes, lane l taking experts l, l + 32, ... in
// rising order from +0, then lane_tree(). Where every logit is -Inf all terms are 0.
MEMRA_HD float softmax_term(float logit, float largest) {
  return largest == kLowest ? 0.0f : exp_f32(sub(logit, largest));
}
MEMRA_HD float softmax_score(float term, float sum) {
  return sum > 0.0f ? div(term, sum) : 0.0f;
}
MEMRA_HD float sigmoid_score(float logit) {
  return sigmoid(logit);
}

// What experts, and groups by two of them, are compared by.
MEMRA_HD float selection_key(float score, float bias) {
  const float key = add(score, bias);
  return is_nan(key) ? kLowest : key;
}

// Larger is better, and no two of a row are alike: the key, then the lower index. Above 0.
MEMRA_HD std::uint64_t selection_rank(float key, std::uint32_t index) {
  // +0 and -0 are the same key.
  const std::uint32_t bits = float_bits(add(key, 0.0f));
  const std::uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(ordered) << 32 | (0xFFFFFFFFu - index);
}
MEMRA_HD std::uint32_t rank_index(std::uint64_t rank) {
  return 0xFFFFFFFFu - static_cast<std::uint32_t>(rank);
}

// The weight of a slot; `sum` of the scores of all slots, in slot order from +0.
MEMRA_HD float slot_weight(float score, bool renormalize, float sum, float factor) {
  if (renormalize) score = softmax_score(score, sum);
  return mul(score, factor);
}

}  // namespace memra::numerics
