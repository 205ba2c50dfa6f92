// From ids and router weights to tables over pairs.

#include "launch.h"
#include "numerics/dot.h"
#include "numerics/routing.h"
#include "ptx.cuh"
#include "stages.h"

namespace memra::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileKeys = 1024;  // a multiple of kThreads: a block's pairs lie in one tile
constexpr int kMaxFlags = 4096;  // experts whose flag is kept in shared memory
constexpr uint32_t kSkipped = 0x7FFFFFFFu;  // the sort key behind all experts
constexpr int kPlanes = 3;

struct Shared {
  alignas(16) uint32_t keys[kTileKeys];
  uint8_t has_slabs[kMaxFlags];
};

__device__ inline bool has_slabs(const PreparePairsArgs& args, uint32_t expert) {
  bool all = true;
  for (int plane = 0; plane < kPlanes; ++plane) {
    all = all && args.expert_ptrs[plane * args.n_local_experts + expert] != nullptr;
  }
  return all;
}

__device__ inline uint32_t local_expert(const PreparePairsArgs& args, int32_t id) {
  // As numerics::is_local_expert has it; the call there costs this kernel a spill.
  const int64_t expert = id - args.local_expert_offset;
  const bool is_local = id < args.n_experts && expert >= 0 && expert < args.n_local_experts;
  return is_local ? static_cast<uint32_t>(expert) : kSkipped;
}

// The place of `pair` among all pairs sorted by (key, pair): how many come before it. Every block
// counts over all pairs; n_pairs is at most 65536, and nothing has to be kept between blocks.
__device__ inline int32_t rank_of(const PreparePairsArgs& args, int64_t n_pairs, int64_t pair,
                                  uint32_t key, Shared& shared) {
  const bool one_block = gridDim.x == 1;
  if (!one_block) {
    for (int64_t e = threadIdx.x; e < min(args.n_local_experts, int64_t{kMaxFlags});
         e += kThreads) {
      shared.has_slabs[e] = has_slabs(args, static_cast<uint32_t>(e));
    }
  }
  int32_t rank = 0;
  for (int64_t begin = 0; begin < n_pairs; begin += kTileKeys) {
    __syncthreads();
    if (one_block) {
      shared.keys[threadIdx.x] = key;
    } else {
      for (int i = threadIdx.x; i < kTileKeys; i += kThreads) {
        uint32_t other = kSkipped;
        if (begin + i < n_pairs) other = local_expert(args, args.topk_ids[begin + i]);
        if (other != kSkipped &&
            !(other < kMaxFlags ? shared.has_slabs[other] != 0 : has_slabs(args, other))) {
          other = kSkipped;
        }
        shared.keys[i] = other;
      }
    }
    __syncthreads();
    // Keys of earlier pairs count where they are equal, too.
    const int64_t earlier = pair - begin;
    const int count = static_cast<int>(min(n_pairs - begin, int64_t{kTileKeys}));
    for (int i = 0; i < count; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(&shared.keys[i]);
      rank += four.x < key + (i + 0 < earlier ? 1 : 0);
      rank += four.y < key + (i + 1 < earlier ? 1 : 0);
      rank += four.z < key + (i + 2 < earlier ? 1 : 0);
      rank += four.w < key + (i + 3 < earlier ? 1 : 0);
    }
  }
  return rank;
}

__global__ void __launch_bounds__(kThreads)
    prepare_pairs_kernel(PreparePairsArgs args, int64_t n_pairs, bool prefetch) {
  __shared__ Shared shared;
  // Everything read here is an id, a router weight or a table.
  if (!prefetch) dependency_wait();
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool exists = pair < n_pairs;

  const int32_t id = exists ? args.topk_ids[pair] : -1;
  const float topk_weight = exists ? args.topk_weights[pair] : 0.0f;
  const uint32_t expert = local_expert(args, id);
  const void* ptrs[kPlanes] = {};
  float scales[kPlanes] = {};
  const float* bias[kPlanes] = {};
  bool is_skipped = true;
  if (expert != kSkipped) {
    is_skipped = false;
    for (int plane = 0; plane < kPlanes; ++plane) {
      const int64_t entry = plane * args.n_local_experts + expert;
      ptrs[plane] = args.expert_ptrs[entry];
      scales[plane] = args.expert_scales[entry];
      if (args.expert_bias != nullptr) bias[plane] = args.expert_bias[entry];
      is_skipped = is_skipped || ptrs[plane] == nullptr;
    }
    scales[2] = numerics::pair_scale(topk_weight, scales[2]);
  }
  int32_t rank = 0;
  if (args.order != nullptr) {
    rank = rank_of(args, n_pairs, pair, is_skipped ? kSkipped : expert, shared);
  }

  if (prefetch) dependency_wait();
  dependency_release();
  if (args.invalid_ids != nullptr) {
    const uint32_t invalid = __ballot_sync(~0u, numerics::is_invalid_id(id, args.n_experts));
    if (threadIdx.x % 32 == 0 && invalid != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(args.invalid_ids),
                static_cast<unsigned long long>(__popc(invalid)));
    }
  }
  if (!exists) return;
  for (int plane = 0; plane < kPlanes; ++plane) {
    const int64_t entry = plane * n_pairs + pair;
    args.ptrs[entry] = is_skipped ? nullptr : ptrs[plane];
    args.scales[entry] = is_skipped ? 0.0f : numerics::canon(scales[plane]);
    if (args.bias != nullptr) args.bias[entry] = is_skipped ? nullptr : bias[plane];
  }
  if (args.order != nullptr) args.order[rank] = static_cast<int32_t>(pair);
}

}  // namespace

Status prepare_pairs(const Device& device, const PreparePairsArgs& args, const Launch& launch) {
  const int64_t n_pairs = args.tokens * args.top_k;
  const auto blocks = static_cast<unsigned>((n_pairs + kThreads - 1) / kThreads);
  const auto threads = blocks > 1 ? kThreads : static_cast<unsigned>((n_pairs + 31) / 32 * 32);
  return launch_kernel(device, launch, Grid{blocks, threads}, prepare_pairs_kernel, args, n_pairs,
                       may_prefetch(device, launch));
}

Status stages_pairs_load(int* ptx_version) {
  cudaFuncAttributes attributes{};
  MEMRA_CUDA_TRY(cudaFuncGetAttributes(&attributes, prepare_pairs_kernel));
  *ptx_version = attributes.ptxVersion;
  return MEMRA_OK;
}

}  // namespace memra::cuda
