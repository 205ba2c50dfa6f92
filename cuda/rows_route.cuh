#pragma once

// From ids to the pairs of a call inside a kernel: what prepare_pairs does, without its launch.

#include <cstdint>

#include "numerics/routing.h"
#include "ptx.cuh"

namespace memra::cuda {

// The ids of a call and the tables over local experts, entry plane * n_local + e; or no ids.
struct Route {
  const int32_t* topk_ids;
  const float* topk_weights;
  const void* const* expert_ptrs;
  const float* expert_scales;
  const float* const* expert_bias;  // or null
  uint64_t* invalid_ids;            // or null
  int64_t n_experts;
  int64_t local_offset;
  int64_t n_local;
};

inline constexpr int64_t kNotLocal = -1;

__device__ __forceinline__ int64_t local_expert(const Route& r, int64_t pair) {
  const int32_t id = r.topk_ids[pair];
  return numerics::is_local_expert(id, r.n_experts, r.local_offset, r.n_local) ? id - r.local_offset
                                                                               : kNotLocal;
}

// A pair counts only where all three slabs of its expert are there.
__device__ __forceinline__ bool has_slabs(const Route& r, int64_t expert) {
  // One trip for all three.
  const void* slabs[3];
#pragma unroll
  for (int plane = 0; plane < 3; ++plane)
    slabs[plane] = r.expert_ptrs[plane * r.n_local + expert];
  return (slabs[0] != nullptr) & (slabs[1] != nullptr) & (slabs[2] != nullptr);
}

// By one warp.
__device__ __forceinline__ void count_invalid_ids(const Route& r, int64_t n_pairs, int lane) {
  if (r.invalid_ids == nullptr) return;
  unsigned long long count = 0;
  for (int64_t pair = lane; pair < n_pairs; pair += 32) {
    count += numerics::is_invalid_id(r.topk_ids[pair], r.n_experts) ? 1 : 0;
  }
  count = __reduce_add_sync(~0u, static_cast<uint32_t>(count));
  if (lane == 0 && count != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(r.invalid_ids), count);
  }
}

// Pairs in the order of their experts, and the runs of those that share slabs, none longer than
// kRun. Lives in shared memory.
inline constexpr int kMaxRoutedPairs = 1024;
inline constexpr int kMaxRoutedExperts = 1024;

template <int kPairs>
struct RunTable {
  uint16_t order[kPairs];
  uint16_t first[kPairs + 1];  // position of each run, and the end of the last
  int32_t n_runs;
};

// Room that building needs for a while.
struct RunScratch {
  uint16_t key[kMaxRoutedPairs];
  uint16_t rank[kMaxRoutedPairs];
  uint32_t count[kMaxRoutedExperts + 1];
  uint16_t start[kMaxRoutedExperts + 1];
  uint16_t run_start[kMaxRoutedExperts + 1];
};

// Exclusive prefix sum over one value a lane.
__device__ __forceinline__ uint32_t warp_exclusive_sum(uint32_t value, int lane) {
  uint32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += other;
  }
  return sum - value;
}

// From ids, by the whole block. Stable, so that all blocks make the same runs; pairs that are
// skipped are in none.
template <int kRun, int kPairs>
__device__ __forceinline__ void build_runs(const Route& r, int n_pairs, RunTable<kPairs>& t,
                                           RunScratch& s) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % 32;
  const int n_keys = static_cast<int>(r.n_local) + 1;  // the last: skipped
  for (int i = thread; i < n_keys; i += threads)
    s.count[i] = 0;
  for (int i = thread; i < n_pairs; i += threads) {
    const int64_t expert = local_expert(r, i);
    s.key[i] =
        static_cast<uint16_t>(expert != kNotLocal && has_slabs(r, expert) ? expert : n_keys - 1);
  }
  __syncthreads();
  if (thread < 32) {
    for (int base = 0; base < n_pairs; base += 32) {
      const bool exists = base + lane < n_pairs;
      const uint32_t key = exists ? s.key[base + lane] : 0x10000u;
      const uint32_t same = __match_any_sync(~0u, key);
      const uint32_t before = exists ? s.count[key] : 0;
      __syncwarp();
      if (exists) {
        s.rank[base + lane] = static_cast<uint16_t>(before + __popc(same & ((1u << lane) - 1u)));
        if (lane == __ffs(static_cast<int>(same)) - 1) s.count[key] = before + __popc(same);
      }
      __syncwarp();
    }
    const int share = (n_keys + 31) / 32;
    const int begin = min(lane * share, n_keys), end = min(begin + share, n_keys);
    uint32_t pairs = 0, runs = 0;
    for (int i = begin; i < end; ++i) {
      pairs += s.count[i];
      runs += (s.count[i] + kRun - 1) / kRun;
    }
    pairs = warp_exclusive_sum(pairs, lane);
    runs = warp_exclusive_sum(runs, lane);
    for (int i = begin; i < end; ++i) {
      s.start[i] = static_cast<uint16_t>(pairs);
      s.run_start[i] = static_cast<uint16_t>(runs);
      pairs += s.count[i];
      runs += (s.count[i] + kRun - 1) / kRun;
    }
  }
  __syncthreads();
  for (int i = thread; i < n_pairs; i += threads) {
    const uint32_t key = s.key[i], rank = s.rank[i], at = s.start[key] + rank;
    t.order[at] = static_cast<uint16_t>(i);
    if (rank % kRun == 0 && key != static_cast<uint32_t>(n_keys - 1)) {
      t.first[s.run_start[key] + rank / kRun] = static_cast<uint16_t>(at);
    }
  }
  if (thread == 0) {
    t.n_runs = s.run_start[n_keys - 1];
    t.first[t.n_runs] = s.start[n_keys - 1];
  }
  __syncthreads();
}

// From an order that a caller made (or none), by the whole block: same(a, b) says whether two pairs
// share their slabs.
template <int kRun, int kPairs, class Same>
__device__ __forceinline__ void build_runs(const int32_t* order, int n_pairs, Same same,
                                           RunTable<kPairs>& t, RunScratch& s) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = thread; i < n_pairs; i += threads)
    t.order[i] = static_cast<uint16_t>(order != nullptr ? order[i] : i);
  __syncthreads();
  // rank: 1 where a run begins
  for (int i = thread; i < n_pairs; i += threads)
    s.rank[i] = i == 0 || !same(t.order[i - 1], t.order[i]);
  __syncthreads();
  if (thread < 32) {
    int n_runs = 0, begin = 0;
    for (int base = 0; base < n_pairs; base += 32) {
      const int i = base + thread;
      const uint32_t starts = __ballot_sync(~0u, i < n_pairs && s.rank[i] != 0);
      const uint32_t upto = starts & (0xFFFFFFFFu >> (31 - thread));
      const int mine = upto != 0 ? base + 31 - __clz(static_cast<int>(upto)) : begin;
      const bool first = i < n_pairs && (i - mine) % kRun == 0;
      const uint32_t firsts = __ballot_sync(~0u, first);
      if (first)
        t.first[n_runs + __popc(firsts & ((1u << thread) - 1u))] = static_cast<uint16_t>(i);
      n_runs += __popc(firsts);
      if (starts != 0) begin = base + 31 - __clz(static_cast<int>(starts));
    }
    if (thread == 0) {
      t.n_runs = n_runs;
      t.first[n_runs] = static_cast<uint16_t>(n_pairs);
    }
  }
  __syncthreads();
}

}  // namespace memra::cuda
