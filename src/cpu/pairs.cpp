// From ids and router weights to tables over pairs.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cpu/rows.h"
#include "numerics/dot.h"
#include "numerics/routing.h"

namespace memra::cpu {
namespace {

// Local index of a pair's expert, or n_local_experts where the pair is skipped.
std::int64_t local_expert(const PreparePairsArgs& args, std::int64_t pair) {
  const std::int64_t n_local = args.n_local_experts;
  const std::int32_t id = args.topk_ids[pair];
  const std::int64_t local = id - args.local_expert_offset;
  if (!numerics::is_local_expert(id, args.n_experts, args.local_expert_offset, n_local)) {
    return n_local;
  }
  for (std::int64_t plane = 0; plane < 3; ++plane) {
    if (args.expert_ptrs[plane * n_local + local] == nullptr) return n_local;
  }
  return local;
}

}  // namespace

void prepare_pairs(const PreparePairsArgs& args) {
  const std::int64_t n_pairs = args.tokens * args.top_k;
  const std::int64_t n_local = args.n_local_experts;
  std::uint64_t invalid = 0;
  for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
    invalid += numerics::is_invalid_id(args.topk_ids[pair], args.n_experts) ? 1 : 0;
    const std::int64_t local = local_expert(args, pair);
    const bool live = local < n_local;
    for (std::int64_t plane = 0; plane < 3; ++plane) {
      const std::int64_t to = plane * n_pairs + pair, from = plane * n_local + local;
      args.ptrs[to] = live ? args.expert_ptrs[from] : nullptr;
      args.scales[to] = live ? args.expert_scales[from] : 0.0f;
      if (args.bias != nullptr) args.bias[to] = live ? args.expert_bias[from] : nullptr;
    }
    if (live) {
      float& scale = args.scales[2 * n_pairs + pair];
      scale = numerics::pair_scale(args.topk_weights[pair], scale);
    }
    if (args.order != nullptr) args.order[pair] = static_cast<std::int32_t>(pair);
  }
  if (invalid != 0 && args.invalid_ids != nullptr) {
    // Calls on several streams may count in one place.
    std::atomic_ref(*args.invalid_ids).fetch_add(invalid, std::memory_order_relaxed);
  }
  if (args.order != nullptr) {
    std::sort(args.order, args.order + n_pairs, [&](std::int32_t a, std::int32_t b) {
      const std::int64_t expert_a = local_expert(args, a), expert_b = local_expert(args, b);
      return expert_a != expert_b ? expert_a < expert_b : a < b;
    });
  }
}

}  // namespace memra::cpu
