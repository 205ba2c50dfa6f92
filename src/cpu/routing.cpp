// Router logits to ids, and ids to pairs sorted by expert.

#include <algorithm>
#include <cstdint>

#include "cpu/expert_id.h"
#include "cpu/grouped.h"

namespace memra::cpu {

void topk(const memra_moe_topk_args& args, const GroupedKernels& kernels, ThreadPool& pool) {
  // About 10 us of work: less does not pay for waking a thread.
  constexpr std::int64_t kUnitExperts = 4096;
  const std::int64_t tokens_per_unit = std::max<std::int64_t>(1, kUnitExperts / args.n_experts);
  const std::int64_t units = (args.tokens + tokens_per_unit - 1) / tokens_per_unit;
  pool.parallel_for(units, [&](std::int64_t unit) {
    const std::int64_t end = std::min(args.tokens, (unit + 1) * tokens_per_unit);
    for (std::int64_t token = unit * tokens_per_unit; token < end; ++token)
      kernels.topk({&args, token});
  });
}

std::uint64_t route_workspace(std::int64_t n_local_experts) {
  // Where each expert's next pair goes, and that of the skipped ones.
  return static_cast<std::uint64_t>(n_local_experts + 1) * sizeof(std::int32_t);
}

// A counting sort: stable, and in one thread, because it takes far less than what follows it.
void route(const memra_moe_route_args& args) {
  const std::int64_t n_pairs = args.tokens * args.top_k;
  const std::int64_t n_local = args.n_local_experts;
  const LocalExperts experts{args.n_experts, args.local_expert_offset, n_local, args.expert_ptrs};
  auto* const next = static_cast<std::int32_t*>(args.workspace);
  std::fill_n(next, n_local + 1, 0);
  std::uint64_t invalid = 0;
  for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
    const std::int32_t id = args.topk_ids[pair];
    invalid += numerics::is_invalid_id(id, args.n_experts) ? 1 : 0;
    ++next[experts.index(id)];
  }
  count_invalid(invalid, args.invalid_ids);

  std::int32_t active = 0, begin = 0;
  for (std::int64_t e = 0; e < n_local; ++e) {
    const std::int32_t count = next[e];
    if (count != 0) {
      args.active_experts[active] = static_cast<std::int32_t>(e);
      args.offsets[active] = begin;
      ++active;
    }
    next[e] = begin;
    begin += count;
  }
  next[n_local] = begin;
  *args.n_active = active;
  std::fill(args.active_experts + active, args.active_experts + n_local, -1);
  std::fill(args.offsets + active, args.offsets + n_local + 1, begin);

  for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
    const std::int64_t expert = experts.index(args.topk_ids[pair]);
    const std::int32_t place = next[expert]++;
    args.pair_order[place] = static_cast<std::int32_t>(pair);
    if (args.inverse != nullptr) args.inverse[pair] = expert < n_local ? place : -1;
  }
}

}  // namespace memra::cpu
