// Ids to pairs sorted by expert: a stable counting sort.
//
// Few pairs: one block does it all. More: one launch counts the pairs of each bin in each block's
// chunk of pairs; in the next, each block adds up what comes before its own and places its chunk.
// Bins are experts and, last, skipped pairs; where there are more than fit, the same two launches
// sort by one digit after the other, and a last one finds where experts begin.

#include <cub/block/block_scan.cuh>

#include "grouped.h"
#include "launch.h"
#include "ptx.cuh"
#include "route_plan.cuh"
#include "rows_route.cuh"

namespace memra::cuda {
namespace {

constexpr int kThreads = kRouteThreads;
constexpr int kWarps = kRouteWarps;
constexpr uint32_t kNoBin = 0xFFFFFFFFu;

// Two sums at once: pairs in the low half, experts in the high one. Pairs are fewer than 2^31.
using Scan = CUB_NS_QUALIFIER::BlockScan<uint64_t, kThreads>;
constexpr uint64_t kOneExpert = uint64_t{1} << 32;

struct Params {
  Route route;
  int64_t n_pairs;
  int64_t chunk;     // pairs of a block, a multiple of kTilePairs
  uint32_t* counts;  // [blocks][n_bins]
  int32_t n_bins;
  // A bin is a digit of an expert's index, (index >> shift) & mask.
  int32_t shift;
  uint32_t mask;
  const int32_t* from;  // pairs as sorted so far, or null: not yet
  int32_t* to;
  // Outputs over experts, of a sort by the whole index.
  bool whole;
  int32_t* n_active;
  int32_t* active_experts;
  int32_t* offsets;
  int32_t* inverse;  // or null
};

// Local index of an id's expert, n_local where its pair is skipped. Without branches around loads,
// so that those of many pairs are under way together.
__device__ inline uint32_t index_of(const Route& r, int32_t id) {
  const bool is_local = numerics::is_local_expert(id, r.n_experts, r.local_offset, r.n_local);
  const int64_t expert = is_local ? id - r.local_offset : 0;
  const bool exists = r.expert_ptrs == nullptr || has_slabs(r, expert);
  return static_cast<uint32_t>(is_local && exists ? expert : r.n_local);
}

// By whole warps.
__device__ inline void count_invalid(const Route& r, uint32_t invalid, int lane) {
  if (r.invalid_ids == nullptr) return;
  invalid = __reduce_add_sync(~0u, invalid);
  if (lane == 0 && invalid != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(r.invalid_ids),
              static_cast<unsigned long long>(invalid));
  }
}

// Neighbouring pairs of a block, kItems a thread: warps follow one another, and in a warp its
// lanes.
template <int kItems>
struct Tile {
  int32_t pair[kItems];
  uint32_t bin[kItems];   // kNoBin: no pair
  uint32_t rank[kItems];  // among the warp's pairs of the bin

  // Returns how many of the thread's ids are invalid.
  __device__ uint32_t load(const Params& p, int64_t begin, int64_t end) {
    const int64_t first =
        begin + static_cast<int64_t>(threadIdx.x) / 32 * (32 * kItems) + threadIdx.x % 32;
    int32_t id[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int64_t position = first + i * 32;
      const bool exists = position < end;
      pair[i] = static_cast<int32_t>(position);
      if (p.from != nullptr && exists) pair[i] = p.from[position];
      id[i] = exists ? p.route.topk_ids[pair[i]] : -1;
    }
    uint32_t invalid = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      invalid += numerics::is_invalid_id(id[i], p.route.n_experts) ? 1 : 0;
      const uint32_t index = index_of(p.route, id[i]);
      bin[i] = first + i * 32 < end ? (index >> p.shift) & p.mask : kNoBin;
    }
    return invalid;
  }
  // Adds the warp's pairs to its counters, one for each bin.
  __device__ void rank_pairs(uint32_t* counters, int lane) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const uint32_t same = __match_any_sync(~0u, bin[i]);
      const uint32_t before = __popc(same & ((1u << lane) - 1u));
      uint32_t counted = 0;
      if (bin[i] != kNoBin) counted = counters[bin[i]];
      rank[i] = counted + before;
      __syncwarp();
      if (bin[i] != kNoBin && before == 0) counters[bin[i]] = counted + __popc(same);
      __syncwarp();
    }
  }
};

struct Shared {
  uint32_t* counters;  // [kWarps][n_bins]
  uint32_t* starts;    // [n_bins]: the place of a bin's next pair
};
constexpr size_t shared_bytes(int64_t n_bins) {
  return static_cast<size_t>(n_bins) * (kWarps + 1) * sizeof(uint32_t);
}

__device__ inline void clear_counters(const Shared& s, int n_bins) {
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * n_bins; i += kThreads)
    s.counters[i] = 0;
}

// Pairs of a bin: all, and those in blocks before this one.
struct BinCount {
  uint32_t all, before;
};
template <bool kOneBlock>
__device__ inline BinCount count_of(const Params& p, const Shared& s, int bin) {
  BinCount count{0, 0};
  if constexpr (kOneBlock) {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      count.all += s.counters[warp * p.n_bins + bin];
  } else {
    const int blocks = static_cast<int>(gridDim.x), mine = static_cast<int>(blockIdx.x);
#pragma unroll 16
    for (int block = 0; block < blocks; ++block) {
      const uint32_t pairs = p.counts[static_cast<int64_t>(block) * p.n_bins + bin];
      count.all += pairs;
      count.before += block < mine ? pairs : 0;
    }
  }
  return count;
}

// What follows the active experts in the outputs; `sums` as Scan makes them.
__device__ inline void end_experts(const Params& p, uint64_t sums) {
  const auto n_active = static_cast<int32_t>(sums >> 32), live = static_cast<int32_t>(sums);
  if (threadIdx.x == 0) *p.n_active = n_active;
  const int64_t n_local = p.route.n_local;
  for (int64_t i = n_active + static_cast<int64_t>(threadIdx.x); i <= n_local; i += kThreads) {
    if (i < n_local) p.active_experts[i] = -1;
    p.offsets[i] = live;
  }
}

// starts, and the outputs over experts. A thread has the same bins here and in place_tile().
template <bool kOneBlock>
__device__ inline void start_bins(const Params& p, const Shared& s) {
  __shared__ typename Scan::TempStorage scan;
  __shared__ uint64_t live;
  const bool writes_experts = p.whole && blockIdx.x == 0;
  uint64_t sums = 0;
  for (int first = 0; first < p.n_bins; first += kThreads) {
    const int bin = first + static_cast<int>(threadIdx.x);
    BinCount count{0, 0};
    if (bin < p.n_bins) count = count_of<kOneBlock>(p, s, bin);
    const bool is_expert = bin < p.route.n_local;
    uint64_t place = 0, added = 0;
    Scan(scan).ExclusiveSum(count.all + (is_expert && count.all != 0 ? kOneExpert : 0), place,
                            added);
    place += sums;
    sums += added;
    if (bin < p.n_bins) s.starts[bin] = static_cast<uint32_t>(place) + count.before;
    if (writes_experts && is_expert && count.all != 0) {
      p.active_experts[place >> 32] = bin;
      p.offsets[place >> 32] = static_cast<int32_t>(place);
    }
    if (writes_experts && bin == p.route.n_local) live = place;
    __syncthreads();
  }
  if (writes_experts) end_experts(p, live);
}

template <int kItems>
__device__ inline void place_tile(const Params& p, const Shared& s, const Tile<kItems>& tile) {
  for (int bin = static_cast<int>(threadIdx.x); bin < p.n_bins; bin += kThreads) {
    uint32_t place = s.starts[bin];
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      uint32_t& counter = s.counters[warp * p.n_bins + bin];
      const uint32_t pairs = counter;
      counter = place;
      place += pairs;
    }
    s.starts[bin] = place;
  }
  __syncthreads();
  const uint32_t* const places = s.counters + static_cast<int>(threadIdx.x) / 32 * p.n_bins;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const uint32_t bin = tile.bin[i];
    if (bin == kNoBin) continue;
    const auto place = static_cast<int32_t>(places[bin] + tile.rank[i]);
    const int32_t pair = tile.pair[i];
    p.to[place] = pair;
    if (p.whole && p.inverse != nullptr) p.inverse[pair] = bin == p.route.n_local ? -1 : place;
  }
}

template <bool kOneBlock, int kItems>
__global__ void __launch_bounds__(kThreads) place_kernel(Params p) {
  MEMRA_DYNAMIC_SHARED(uint32_t, words);
  const Shared s{words, words + kWarps * p.n_bins};
  uint32_t* const counters = s.counters + static_cast<int>(threadIdx.x) / 32 * p.n_bins;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  clear_counters(s, p.n_bins);
  dependency_wait();
  dependency_release();
  Tile<kItems> tile;
  if constexpr (kOneBlock) {
    count_invalid(p.route, tile.load(p, 0, p.n_pairs), lane);
    __syncthreads();
    tile.rank_pairs(counters, lane);
    __syncthreads();
    start_bins<true>(p, s);
    place_tile(p, s, tile);
  } else {
    start_bins<false>(p, s);
    const int64_t begin = blockIdx.x * p.chunk, end = min(begin + p.chunk, p.n_pairs);
    for (int64_t at = begin; at < end; at += kTilePairs) {
      if (at != begin) {
        __syncthreads();
        clear_counters(s, p.n_bins);
        __syncthreads();
      }
      tile.load(p, at, end);
      tile.rank_pairs(counters, lane);
      __syncthreads();
      place_tile(p, s, tile);
    }
  }
}

__global__ void __launch_bounds__(kThreads) count_kernel(Params p, bool first_pass) {
  MEMRA_DYNAMIC_SHARED(uint32_t, counters);
  for (int bin = static_cast<int>(threadIdx.x); bin < p.n_bins; bin += kThreads)
    counters[bin] = 0;
  __syncthreads();
  dependency_wait();
  dependency_release();
  const int64_t begin = blockIdx.x * p.chunk, end = min(begin + p.chunk, p.n_pairs);
  uint32_t invalid = 0;
  for (int64_t at = begin; at < end; at += kTilePairs) {
    Tile<kTileItems> tile;
    invalid += tile.load(p, at, end);
#pragma unroll
    for (const uint32_t bin : tile.bin) {
      if (bin != kNoBin) atomicAdd(&counters[bin], 1u);
    }
  }
  if (first_pass) count_invalid(p.route, invalid, static_cast<int>(threadIdx.x) % 32);
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < p.n_bins; bin += kThreads)
    p.counts[static_cast<int64_t>(blockIdx.x) * p.n_bins + bin] = counters[bin];
}

// The outputs over experts and `inverse` from sorted pairs, by one block.
__global__ void __launch_bounds__(kThreads) experts_kernel(Params p) {
  __shared__ typename Scan::TempStorage scan;
  dependency_wait();
  dependency_release();
  const Route& r = p.route;
  uint64_t sums = 0;
  for (int64_t first = 0; first < p.n_pairs; first += kThreads) {
    const int64_t place = first + threadIdx.x;
    const bool exists = place < p.n_pairs;
    const int32_t pair = exists ? p.to[place] : 0;
    const auto skipped = static_cast<uint32_t>(r.n_local);
    const uint32_t expert = exists ? index_of(r, r.topk_ids[pair]) : skipped;
    const bool is_live = expert != skipped;
    const bool begins =
        is_live && (place == 0 || index_of(r, r.topk_ids[p.to[place - 1]]) != expert);
    uint64_t before = 0, added = 0;
    Scan(scan).ExclusiveSum((is_live ? 1 : 0) + (begins ? kOneExpert : 0), before, added);
    before += sums;
    sums += added;
    if (begins) {
      p.active_experts[before >> 32] = static_cast<int32_t>(expert);
      p.offsets[before >> 32] = static_cast<int32_t>(place);
    }
    if (exists && p.inverse != nullptr) {
      p.inverse[pair] = is_live ? static_cast<int32_t>(place) : -1;
    }
    __syncthreads();
  }
  end_experts(p, sums);
}

Params make_params(const memra_moe_route_args& args, const RoutePlan& plan) {
  Params p{};
  p.route = Route{args.topk_ids,
                  nullptr,
                  args.expert_ptrs,
                  nullptr,
                  nullptr,
                  args.invalid_ids,
                  args.n_experts,
                  args.local_expert_offset,
                  args.n_local_experts};
  p.n_pairs = plan.n_pairs;
  p.chunk = plan.chunk;
  p.counts = static_cast<uint32_t*>(args.workspace);
  p.n_bins = plan.n_bins;
  p.mask = plan.by_digits ? kDigitBins - 1 : ~0u;
  p.to = args.pair_order;
  p.whole = !plan.by_digits;
  p.n_active = args.n_active;
  p.active_experts = args.active_experts;
  p.offsets = args.offsets;
  p.inverse = args.inverse;
  return p;
}

// The launches of one call, of which all but the first are chained.
struct Sort {
  const Device& device;
  const RoutePlan plan;
  Launch launch;

  template <typename... Wanted, typename... Args>
  Status run(const Grid& grid, void (*kernel)(Wanted...), const Args&... args) {
    MEMRA_TRY(launch_kernel(device, launch, grid, kernel, args...));
    launch.chained = true;
    return MEMRA_OK;
  }
  template <int kItems>
  Status in_one_block(const Params& p) {
    return run(Grid{1, kThreads, shared_bytes(p.n_bins)}, place_kernel<true, kItems>, p);
  }
  Status pass(const Params& p, bool first) {
    const auto blocks = static_cast<unsigned>(plan.blocks);
    MEMRA_TRY(run(Grid{blocks, kThreads, p.n_bins * sizeof(uint32_t)}, count_kernel, p, first));
    return run(Grid{blocks, kThreads, shared_bytes(p.n_bins)}, place_kernel<false, kTileItems>, p);
  }
  // From the lowest digit up, to and fro; the last pass leaves the pairs in pair_order.
  Status by_digits(Params p, int32_t* other) {
    int32_t* const order = p.to;
    for (int digit = 0; digit < plan.n_digits; ++digit) {
      p.shift = digit * kDigitBits;
      p.to = (plan.n_digits - digit) % 2 != 0 ? order : other;
      MEMRA_TRY(pass(p, digit == 0));
      p.from = p.to;
    }
    return run(Grid{1, kThreads}, experts_kernel, p);
  }
};

}  // namespace

uint64_t route_workspace(int64_t n_pairs, int64_t n_local_experts) {
  return RoutePlan::of(n_pairs, n_local_experts).workspace_bytes();
}

Status route(const Device& device, const memra_moe_route_args& args, const Launch& launch) {
  const RoutePlan plan = RoutePlan::of(args.tokens * args.top_k, args.n_local_experts);
  const Params p = make_params(args, plan);
  Sort sort{device, plan, launch};
  if (plan.by_digits) {
    uint8_t* const other = static_cast<uint8_t*>(args.workspace) + plan.counts_bytes();
    return sort.by_digits(p, reinterpret_cast<int32_t*>(other));
  }
  if (!plan.one_block()) return sort.pass(p, true);
  return plan.n_pairs <= kFewPairs ? sort.in_one_block<kFewItems>(p)
                                   : sort.in_one_block<kOneBlockItems>(p);
}

Status route_load() {
  MEMRA_TRY(load_kernel(count_kernel));
  MEMRA_TRY(load_kernel(experts_kernel));
  MEMRA_TRY(load_kernel(place_kernel<true, kFewItems>, shared_bytes(kMaxBins)));
  MEMRA_TRY(load_kernel(place_kernel<true, kOneBlockItems>, shared_bytes(kMaxBins)));
  return load_kernel(place_kernel<false, kTileItems>, shared_bytes(kMaxBins));
}

}  // namespace memra::cuda
