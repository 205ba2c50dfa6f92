// Router logits to ids and weights.

#include "numerics/topk.h"

#include "grouped.h"
#include "launch.h"
#include "numerics/half.h"
#include "ptx.cuh"

namespace memra::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
// A warp for each token where there are enough of them, else a block.
constexpr int kWarpExperts = 512;      // the most of a token that is one warp's
constexpr int kFewExperts = 128;       // so few that more warps than one would not help
constexpr int64_t kManyTokens = 1024;  // so many that the GPU is busy

// The experts of a token, in shared memory.
struct Experts {
  uint64_t* ranks;  // 0 where out of the running
  float* scores;
  int count;
};
constexpr size_t shared_bytes(int64_t n_experts) {
  return static_cast<size_t>(n_experts) * (sizeof(uint64_t) + sizeof(float));
}

struct Scratch {
  uint64_t group_ranks[MEMRA_TOPK_MAX_GROUPS];
  uint32_t group_stays[MEMRA_TOPK_MAX_GROUPS / 32];
  float largest[kWarps];
};

__device__ inline float larger(float a, float b) {
  return b > a ? b : a;
}

// The warps of one token: one, or all of a block.
template <int kTeamWarps>
struct TeamOf {
  static constexpr int kSize = 32 * kTeamWarps;
  static constexpr int kTeams = kWarps / kTeamWarps;

  static __device__ int index() { return static_cast<int>(threadIdx.x) / kSize; }
  static __device__ int thread() { return static_cast<int>(threadIdx.x) % kSize; }
  static __device__ void sync() {
    if constexpr (kTeamWarps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  static __device__ float largest(float value, Scratch& scratch) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      value = larger(value, __shfl_xor_sync(~0u, value, distance));
    if constexpr (kTeamWarps > 1) {
      scratch.largest[thread() / 32] = value;
      sync();
      for (int warp = 0; warp < kTeamWarps; ++warp)
        value = larger(value, scratch.largest[warp]);
    }
    return value;
  }
};

// The sum of softmax, by every warp: a lane is a virtual lane, and shuffles make lane_tree().
__device__ inline float sum_of_terms(const Experts& experts, int lane) {
  static_assert(numerics::kVirtualLanes == 32);
  float sum = 0.0f;
#pragma unroll 8
  for (int e = lane; e < experts.count; e += 32)
    sum = numerics::add(sum, experts.scores[e]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum = numerics::add(sum, __shfl_xor_sync(~0u, sum, distance));
  return sum;
}

__device__ inline float key_of(const memra_moe_topk_args& args, float score, int expert) {
  return args.bias != nullptr ? numerics::selection_key(score, args.bias[expert]) : score;
}

// Scores and ranks of all experts.
template <class Type, class Team>
__device__ inline void score_experts(const memra_moe_topk_args& args, int64_t token,
                                     const Experts& experts, Scratch& scratch) {
  const auto* const logits =
      static_cast<const typename Type::Storage*>(args.logits) + token * args.logits_stride;
  const bool softmax = args.scoring == MEMRA_SCORING_SOFTMAX;
  float largest = numerics::kLowest;
#pragma unroll 4
  for (int e = Team::thread(); e < experts.count; e += Team::kSize) {
    const float logit = numerics::router_logit(Type::load(logits + e));
    experts.scores[e] = logit;
    largest = larger(largest, logit);
  }
  float sum = 0.0f;
  if (softmax) {
    largest = Team::largest(largest, scratch);
#pragma unroll 2
    for (int e = Team::thread(); e < experts.count; e += Team::kSize)
      experts.scores[e] = numerics::softmax_term(experts.scores[e], largest);
    Team::sync();
    sum = sum_of_terms(experts, static_cast<int>(threadIdx.x) % 32);
    Team::sync();
  }
#pragma unroll 2
  for (int e = Team::thread(); e < experts.count; e += Team::kSize) {
    const float value = experts.scores[e];
    const float score =
        softmax ? numerics::softmax_score(value, sum) : numerics::sigmoid_score(value);
    experts.scores[e] = score;
    experts.ranks[e] = numerics::selection_rank(key_of(args, score, e), static_cast<uint32_t>(e));
  }
  Team::sync();
}

// The largest of a lane's ranks below `bound`; 0 where there is none.
__device__ inline uint64_t lane_best(const uint64_t* ranks, int count, int lane, uint64_t bound) {
  uint64_t best = 0;
#pragma unroll 4
  for (int i = lane; i < count; i += 32) {
    const uint64_t rank = ranks[i];
    if (rank < bound && rank > best) best = rank;
  }
  return best;
}

// Calls take(i, index) for the k largest ranks in falling order; by one warp.
template <class Take>
__device__ inline void take_best(const uint64_t* ranks, int count, int k, int lane, Take take) {
  uint64_t best = lane_best(ranks, count, lane, ~uint64_t{0});
  for (int i = 0; i < k; ++i) {
    const auto high = static_cast<uint32_t>(best >> 32);
    const uint32_t top = __reduce_max_sync(~0u, high);
    const uint32_t low = __reduce_max_sync(~0u, high == top ? static_cast<uint32_t>(best) : 0u);
    const uint64_t taken = uint64_t{top} << 32 | low;
    take(i, numerics::rank_index(taken));
    if (best == taken) best = lane_best(ranks, count, lane, taken);
  }
}

// What a group is compared by.
__device__ inline uint64_t group_rank(const memra_moe_topk_args& args, const Experts& experts,
                                      int group, int size) {
  float first = numerics::kLowest, second = numerics::kLowest;
  // Groups begin at different places of theirs, so that lanes meet different banks.
  int at = group % size;
  for (int i = 0; i < size; ++i) {
    const int expert = group * size + at;
    const float key = key_of(args, experts.scores[expert], expert);
    second = key > first ? first : larger(second, key);
    first = larger(first, key);
    at = at + 1 == size ? 0 : at + 1;
  }
  const float score = args.group_score == MEMRA_GROUP_SCORE_TOP2_SUM
                          ? numerics::selection_key(first, second)
                          : first;
  return numerics::selection_rank(score, static_cast<uint32_t>(group));
}

// Takes the experts outside the best groups out of the running.
__device__ inline void mask_groups(const memra_moe_topk_args& args, const Experts& experts,
                                   Scratch& scratch, int lane) {
  const int n_groups = static_cast<int>(args.n_groups);
  const int size = experts.count / n_groups;
  for (int group = lane; group < n_groups; group += 32)
    scratch.group_ranks[group] = group_rank(args, experts, group, size);
  if (lane < MEMRA_TOPK_MAX_GROUPS / 32) scratch.group_stays[lane] = 0;
  __syncwarp();
  take_best(scratch.group_ranks, n_groups, static_cast<int>(args.top_k_groups), lane,
            [&](int, uint32_t group) {
              if (lane == 0) scratch.group_stays[group / 32] |= 1u << group % 32;
            });
  __syncwarp();
  for (int e = lane; e < experts.count; e += 32) {
    const int group = e / size;
    if ((scratch.group_stays[group / 32] >> group % 32 & 1u) == 0) experts.ranks[e] = 0;
  }
  __syncwarp();
}

// Slot s is lane s % 32's.
__device__ inline void choose(const memra_moe_topk_args& args, int64_t token,
                              const Experts& experts, int lane) {
  constexpr int kLaneSlots = MEMRA_MAX_TOP_K / 32;
  uint32_t chosen[kLaneSlots] = {};
  float sum = 0.0f;
  take_best(experts.ranks, experts.count, static_cast<int>(args.top_k), lane,
            [&](int slot, uint32_t expert) {
              sum = numerics::add(sum, experts.scores[expert]);
#pragma unroll
              for (int i = 0; i < kLaneSlots; ++i)
                chosen[i] = slot == i * 32 + lane ? expert : chosen[i];
            });
#pragma unroll
  for (int i = 0; i < kLaneSlots; ++i) {
    const int slot = i * 32 + lane;
    if (slot >= args.top_k) continue;
    args.topk_ids[token * args.top_k + slot] = static_cast<int32_t>(chosen[i]);
    args.topk_weights[token * args.top_k + slot] = numerics::slot_weight(
        experts.scores[chosen[i]], args.renormalize != 0, sum, args.scaling_factor);
  }
}

template <class Type, int kTeamWarps>
__global__ void __launch_bounds__(kThreads) topk_kernel(memra_moe_topk_args args) {
  using Team = TeamOf<kTeamWarps>;
  extern __shared__ uint64_t shared[];
  __shared__ Scratch scratches[Team::kTeams];
  dependency_wait();
  dependency_release();
  const int team = Team::index();
  const int64_t token = static_cast<int64_t>(blockIdx.x) * Team::kTeams + team;
  if (token >= args.tokens) return;

  const auto count = static_cast<int>(args.n_experts);
  Scratch& scratch = scratches[team];
  const Experts experts{shared + team * count,
                        reinterpret_cast<float*>(shared + Team::kTeams * count) + team * count,
                        count};
  score_experts<Type, Team>(args, token, experts, scratch);
  const int lane = Team::thread();
  if (lane >= 32) return;
  if (args.n_groups != 0) mask_groups(args, experts, scratch, lane);
  choose(args, token, experts, lane);
}

using Kernel = void (*)(memra_moe_topk_args);

template <int kTeamWarps>
Kernel choose_kernel(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return topk_kernel<numerics::F16, kTeamWarps>;
    case MEMRA_BF16:
      return topk_kernel<numerics::Bf16, kTeamWarps>;
    default:
      return topk_kernel<numerics::F32, kTeamWarps>;
  }
}

}  // namespace

Status topk(const Device& device, const memra_moe_topk_args& args, const Launch& launch) {
  const int64_t n_experts = args.n_experts;
  if (n_experts <= kFewExperts || (n_experts <= kWarpExperts && args.tokens >= kManyTokens)) {
    const auto blocks = static_cast<unsigned>((args.tokens + kWarps - 1) / kWarps);
    return launch_kernel(device, launch, Grid{blocks, kThreads, kWarps * shared_bytes(n_experts)},
                         choose_kernel<1>(args.logits_dtype), args);
  }
  return launch_kernel(device, launch,
                       Grid{static_cast<unsigned>(args.tokens), kThreads, shared_bytes(n_experts)},
                       choose_kernel<kWarps>(args.logits_dtype), args);
}

Status topk_load() {
  for (const memra_dtype dtype : {MEMRA_F32, MEMRA_F16, MEMRA_BF16}) {
    MEMRA_TRY(load_kernel(choose_kernel<1>(dtype), kWarps * shared_bytes(kWarpExperts)));
    MEMRA_TRY(load_kernel(choose_kernel<kWarps>(dtype), shared_bytes(MEMRA_TOPK_MAX_EXPERTS)));
  }
  return MEMRA_OK;
}

}  // namespace memra::cuda
