// Router logits to ids and weights, and ids to pairs sorted by expert, by plain sorting.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace memra::reference {

struct Router {
  std::int64_t n_experts = 0;
  std::int64_t top_k = 0;
  bool sigmoid = false;     // else softmax
  std::vector<float> bias;  // empty or [n_experts]
  std::int64_t n_groups = 0;
  std::int64_t top_k_groups = 0;
  bool top2_sum = false;  // groups by the sum of their two best keys, else by the best one
  bool renormalize = false;
  float factor = 1.0f;
};

struct Chosen {
  std::vector<std::int32_t> ids;  // [tokens, top_k]
  std::vector<float> weights;
};

// logits [tokens, n_experts].
Chosen choose_experts(const Router& router, std::span<const float> logits);

struct SortedPairs {
  std::vector<std::int32_t> active;   // [n_local], -1 beyond
  std::vector<std::int32_t> offsets;  // [n_local + 1]
  std::vector<std::int32_t> order;    // [n_pairs]
  std::vector<std::int32_t> inverse;  // [n_pairs], -1 where skipped
  std::int32_t n_active = 0;
  std::uint64_t invalid = 0;
};

// missing[e]: local expert e has no slabs; may be empty.
SortedPairs sort_pairs(std::span<const std::int32_t> ids, std::int64_t n_experts,
                       std::int64_t offset, std::int64_t n_local,
                       const std::vector<bool>& missing = {});

}  // namespace memra::reference
