// From ids and router weights to tables over pairs.

#include <algorithm>
#include <cstdint>

#include "cpu/expert_id.h"
#include "cpu/rows.h"
#include "numerics/dot.h"

namespace memra::cpu {
void prepare_pairs(const PreparePairsArgs& args) {
  const std::int64_t n_pairs = args.tokens * args.top_k;
  const std::int64_t n_local = args.n_local_experts;
  const LocalExperts experts{args.n_experts, args.local_expert_offset, n_local, args.expert_ptrs};
  std::uint64_t invalid = 0;
  for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
    invalid += numerics::is_invalid_id(args.topk_ids[pair], args.n_experts) ? 1 : 0;
    const std::int64_t local = experts.index(args.topk_ids[pair]);
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
  count_invalid(invalid, args.invalid_ids);
  if (args.order != nullptr) {
    std::sort(args.order, args.order + n_pairs, [&](std::int32_t a, std::int32_t b) {
      const std::int64_t expert_a = experts.index(args.topk_ids[a]);
      const std::int64_t expert_b = experts.index(args.topk_ids[b]);
      return expert_a != expert_b ? expert_a < expert_b : a < b;
    });
  }
}

}  // namespace memra::cpu
