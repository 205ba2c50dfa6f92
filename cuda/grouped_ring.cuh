#pragma once

// The persistent kernel of the grouped products on sm_90a: its producer, and the product of a tile.
// Activations come by bulk copies: a slab of 64 columns of a tile is one run. Weights in NVFP4_V2
// are two runs for every 8 rows, and come as boxes of a tensor: bulk copies begin every 45 clocks
// at best. So do rows in NVFP4_V1 whose bytes are multiples of 16; others are loaded by those that
// decode them, or beside NVFP4_V2 copied by three warps. All go by blocks of 128 columns.

#include <type_traits>

#include "grouped_boxes.cuh"
#include "grouped_direct.cuh"
#include "wgmma.cuh"

namespace memra::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int kPlaces>
struct RingPlace {
  int place = 0;
  uint32_t parity;
  __device__ __forceinline__ explicit RingPlace(uint32_t first_parity) : parity(first_parity) {}
  __device__ __forceinline__ void advance() {
    if (++place == kPlaces) place = 0, parity ^= 1;
  }
};

template <class Shared, class Fragments>
__device__ __forceinline__ SharedView open_shared(uint8_t* raw) {
  const SharedView shared = SharedView::of<Shared>(raw);
  const uint32_t address = shared.address;
  if (threadIdx.x == 0) {
    constexpr int kWarps = kGroupedConsumers / 32;
    for (int i = 0; i < Shared::kZBlocks; ++i) {
      barrier_init(Shared::z_barrier(address, i), 1);
      barrier_init(Shared::z_barrier(address, i) + kEmptied, kWarps);
    }
    for (int i = 0; i < Shared::kBlocks; ++i) {
      barrier_init(Shared::weights_barrier(address, i),
                   WeightProducers<Shared, Fragments>::kArrivals);
      barrier_init(Shared::weights_barrier(address, i) + kEmptied, kWarps);
    }
    for (int i = 0; i < Shared::kTileQueue; ++i) {
      barrier_init(Shared::entry_barrier(address, i), 1);
      barrier_init(Shared::entry_barrier(address, i) + kEmptied,
                   kWarps + WeightProducers<Shared, Fragments>::kWarps);
    }
    barrier_init_fence();
    copy_engine_fence();
  }
  __syncthreads();
  return shared;
}

// ---- Producer of tiles and activations: one thread

template <class Shared, class Fragments, bool kFused>
__device__ __forceinline__ void produce(const ProductParams& params, const SharedView& shared) {
  TileSource<Fragments, kFused> source(params);
  RingPlace<Shared::kTileQueue> queue(1);
  RingPlace<Shared::kZBlocks> ring(1);
  const auto publish = [&] {
    const uint32_t barrier = Shared::entry_barrier(shared.address, queue.place);
    barrier_wait(barrier + kEmptied, queue.parity);
    const TileRows rows = source.take(&entries<Shared>(shared)[queue.place]);
    barrier_arrive(barrier);
    queue.advance();
    return rows;
  };
  const int slabs = static_cast<int>(n_slabs(params.columns));
  TileRows rows = publish();
  while (rows.units != 0) {
    // Weights of the next tile are copied while this one is multiplied.
    const TileRows following = publish();
    if (!rows.loads) {
      rows = following;
      continue;
    }
    const int64_t there = params.rows - rows.row;
    const int wanted = kTileUnit * rows.units;
    const auto bytes = static_cast<uint32_t>(there < wanted ? there : wanted) * kSlabRowBytes;
    const uint32_t phase = (static_cast<uint32_t>(rows.row) & 7) * kSlabRowBytes;
    const uint16_t* from = params.z + static_cast<int64_t>(rows.row) * kSlabColumns;
#pragma unroll 1
    for (int slab = 0; slab < slabs; slab += 2) {
      const bool both = slab + 1 < slabs;
      const uint32_t barrier = Shared::z_barrier(shared.address, ring.place);
      const uint32_t to = shared.address + Shared::kZ + ring.place * Shared::kZBlockBytes + phase;
      barrier_wait(barrier + kEmptied, ring.parity);
      barrier_arrive_expect(barrier, both ? 2 * bytes : bytes);
      bulk_load(to, from, bytes, barrier);
      from += params.rows * kSlabColumns;
      if (both) bulk_load(to + Shared::kSlabBytes, from, bytes, barrier);
      from += params.rows * kSlabColumns;
      ring.advance();
    }
    rows = following;
  }
}

// ---- Producers of weights

template <class Shared, class Fragments, bool kFused>
__device__ __forceinline__ void produce_weights(const ProductParams& params,
                                                const SharedView& shared) {
  RingPlace<Shared::kTileQueue> queue(0);
  RingPlace<Shared::kBlocks> ring(1);
  using Producers = WeightProducers<Shared, Fragments>;
  constexpr bool kV2[2] = {Fragments::kFirstV2, Fragments::kSecondV2};
  const bool leads = thread_index_here() == kFirstWeightThread;
  const int blocks = blocks_of(params.columns);
#pragma unroll 1
  for (;;) {
    const uint32_t entry_barrier = Shared::entry_barrier(shared.address, queue.place);
    barrier_wait(entry_barrier, queue.parity);
    const TileEntry& entry = entries<Shared>(shared)[queue.place];
    if (entry.units == 0) break;
    const bool live = (entry.flags & kTileLive) != 0;
    const auto has_box = [&](int set) {
      if (!live || entry.outputs[set] == 0) return false;
      return Producers::kRows ? RowLoads::aligned(entry, set) : kV2[set];
    };
    const bool there[2] = {has_box(0), has_box(1)};
    using Loads = std::conditional_t<Producers::kRows, RowLoads, StripLoads>;
    const Loads loads[2] = {{params, entry, 0, entry.output},
                            {params, entry, 1, entry.output + (kFused ? 0 : kSetRows)}};
    const uint32_t bytes = (there[0] ? Loads::kBytes : 0) + (there[1] ? Loads::kBytes : 0);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      const uint32_t barrier = Shared::weights_barrier(shared.address, ring.place);
      const uint32_t to = shared.address + Shared::kWeights + ring.place * Shared::kBlockBytes;
      barrier_wait(barrier + kEmptied, ring.parity);
      if constexpr (Producers::kRows) {
#pragma unroll
        for (int set = 0; set < 2; ++set)
          if (live && !there[set])
            RowLoads::copy(params, entry, set, to + set * Shared::kSetBytes, block);
        __syncwarp();
      }
      if (leads) {
        barrier_arrive_expect(barrier, bytes);
        if (there[0]) loads[0].load(params, to, block, barrier);
        if (there[1]) loads[1].load(params, to + Shared::kSetBytes, block, barrier);
      }
      if constexpr (Producers::kCopying != 0) {
        constexpr int kSet = kV2[0] ? 1 : 0;
        static_assert(kV2[0] != kV2[1]);
        if (live)
          copy_set<typename Fragments::template Of<kSet>, Producers::kCopying, kFirstWeightThread>(
              to + kSet * Shared::kSetBytes, entry, kSet, params.columns, block,
              (block + 1) * kBlockColumns > params.columns);
        barrier_arrive_behind_copies(barrier);
      }
      ring.advance();
    }
    if constexpr (Producers::kThreads > 1) __syncwarp();
    barrier_arrive_if((thread_index_here() & 31) == 0, entry_barrier + kEmptied);
    queue.advance();
  }
  if constexpr (Producers::kCopying != 0) {
    copy_async_commit();
    copy_async_wait<0>();
  }
}

// ---- Consumers

// A consumer warp: its places in the rings, and the product of a tile.
template <class Shared, class Fragments, class Rows, bool kFused>
class Consumer {
 public:
  static constexpr bool kExact = true;  // tiles are as wide as their rows want

  __device__ __forceinline__ explicit Consumer(const ProductParams& params)
      : params_(params), weights_(0), ring_(0), queue_(0) {}

  // Before the first tile.
  __device__ __forceinline__ void start(const SharedView& shared) {
    if constexpr (Shared::kDirect) load_tile(shared, queue_);
  }

  // Waits for the next tile.
  __device__ __forceinline__ auto tile(const SharedView& shared) const -> const TileEntry& {
    barrier_wait(Shared::entry_barrier(shared.address, queue_.place), queue_.parity);
    return entries<Shared>(shared)[queue_.place];
  }
  // Done with it.
  __device__ __forceinline__ void finish(const SharedView& shared) {
    __syncwarp();
    // The address is worked out here and not kept meanwhile.
    barrier_arrive_if((thread_index_here() & 31) == 0,
                      Shared::entry_barrier(shared.address, value_here(queue_.place)) + kEmptied);
    queue_.advance();
  }

  // kSets: of them, the first ones, that the tile has; sums of the others are 0.
  template <int kColumns, int kSets = 2>
  __device__ __forceinline__ void multiply(const SharedView& shared, const TileEntry& tile,
                                           float (&sums)[2][kColumns / 2]) {
    // Written here although the first product could ignore them: what is only read and modified
    // counts as live from the kernel's entry, for all widths at once, and the products would be
    // serialised.
#pragma unroll
    for (int set = 0; set < 2; ++set)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i)
        sums[set][i] = written_zero();
    const auto lane_weights = [&](bool half) {
      return LaneWeights::of<Shared, Rows>(
          shared, warp_row<kFused>(thread_index_here() >> 5, tile.outputs[0]), half);
    };
    const LaneWeights lane = lane_weights(false);
    BlockWeights weights;
    // Of half a block, which is the last, addresses are worked out anew: registers are few. slabs:
    // that are left from the block on.
    const auto read = [&](bool half, [[maybe_unused]] int slabs) {
      if constexpr (Shared::kDirect) {
        weights = next_;
        return;
      }
      uint32_t offset = weights_.place * Shared::kBlockBytes;
      // Their number of blocks is even, and so is the block's where that of those left is.
      if constexpr (std::is_same_v<typename Shared::Set, RowSet>)
        offset += RowSet::shift(slabs / 2);
      barrier_wait(Shared::weights_barrier(shared.address, weights_.place), weights_.parity);
      if (Shared::Set::kHalfBlocks && half) {
        read_weights<Shared, Rows, kSets, true>(weights, lane_weights(true), offset);
      } else {
        read_weights<Shared, Rows, kSets, false>(weights, lane, offset);
      }
    };
    const bool frees = (tile.flags & kTileFrees) != 0;
    const uint32_t phase = (static_cast<uint32_t>(tile.row) & 7) * kSlabRowBytes;
    const RingPlace<Shared::kZBlocks> first = ring_;
    uint32_t before = 0;  // the barrier of the block before, once there is one to be freed
    // Of a word, step and set. A word is decoded while the one before is multiplied.
    uint32_t a[2][2][2][4];
    uint64_t b = 0;
    const auto decode = [&]<int kWord>(Word<kWord>) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        weights.template fragment<2 * kWord>(set, a[kWord % 2][0][set]);
        weights.template fragment<2 * kWord + 1>(set, a[kWord % 2][1][set]);
      }
    };
    // Starts the products of a word, and waits for those of the one before.
    const auto multiply = [&]<int kWord>(Word<kWord>) {
      constexpr uint32_t kStepUnits = kStepColumns * 2 / 16, kSlabUnits = Shared::kSlabBytes / 16;
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          Wgmma<kColumns>::multiply(
              sums[set], a[kWord % 2][step][set],
              b + kWord / 2 * kSlabUnits + (2 * (kWord % 2) + step) * kStepUnits);
      wgmma_commit();
      wgmma_wait<1>();
    };

    auto left = static_cast<int>(n_slabs(params_.columns));
    // Loads what follows the block at hand.
    const auto load_next = [&] {
      if (left <= 2) {
        auto next = queue_;
        next.advance();
        load_tile(shared, next);
      } else if ((tile.flags & kTileLive) == 0) {
        return;
      } else if (left > 3) {
        direct_.template load<false>(next_, left / 2 - 1);
      } else {
        direct_.start(tile, params_.columns, static_cast<int>(params_.columns / kBlockColumns),
                      true);
        direct_.template load<true>(next_, 0);
      }
    };
    // The first slab of a block, as soon as its activations are there.
    const auto begin = [&](bool half) {
      barrier_wait(Shared::z_barrier(shared.address, ring_.place), ring_.parity);
      b = swizzled_rows(shared.address + Shared::kZ + ring_.place * Shared::kZBlockBytes + phase);
      if constexpr (Shared::kDirect)
        pick_scales(weights, scale_selector(thread_index_here() & 3, half));
      widen_scales<Fragments, kSets>(weights);
      decode(Word<0>{});
      multiply(Word<0>{});
      // All weights are in registers, and the products of the block before are done.
      if constexpr (Shared::kDirect) load_next();
      __syncwarp();
      const bool leads = (thread_index_here() & 31) == 0;
      if constexpr (!Shared::kDirect) {
        barrier_arrive_if(leads,
                          Shared::weights_barrier(shared.address, weights_.place) + kEmptied);
        weights_.advance();
      }
      barrier_arrive_if(leads && before != 0, before + kEmptied);
      decode(Word<1>{});
      multiply(Word<1>{});
    };
    const auto end = [&] {
      if (frees) before = Shared::z_barrier(shared.address, ring_.place);
      ring_.advance();
    };
    read(left == 1, left);
#pragma unroll 1
    for (; left > 1; left -= 2) {
      begin(false);
      decode(Word<2>{});
      multiply(Word<2>{});
      decode(Word<3>{});
      // The next block's: they come while the last products are started.
      if (left > 3) {
        read(false, left - 2);
      } else if (left == 3) {
        read(true, 1);
      }
      multiply(Word<3>{});
      end();
    }
    if (Shared::Set::kHalfBlocks && left == 1) {
      begin(true);
      end();
    }
    wgmma_wait<0>();
    barrier_arrive_if((thread_index_here() & 31) == 0 && before != 0, before + kEmptied);
    if (!frees) ring_ = first;  // the next tile reads the same activations
  }

 private:
  template <int kWord>
  using Word = std::integral_constant<int, kWord>;

  // The first block of a tile, once the tile is known.
  __device__ __forceinline__ void load_tile(const SharedView& shared,
                                            const RingPlace<Shared::kTileQueue>& queue) {
    barrier_wait(Shared::entry_barrier(shared.address, queue.place), queue.parity);
    const TileEntry& entry = entries<Shared>(shared)[queue.place];
    if (entry.units == 0 || (entry.flags & kTileLive) == 0) return;
    const auto blocks = static_cast<int>(params_.columns / kBlockColumns);
    direct_.start(entry, params_.columns, 0, blocks == 0);
    if (blocks == 0) {
      direct_.template load<true>(next_, 0);
    } else {
      direct_.prefetch_first(blocks);
      direct_.template load<false>(next_, blocks);
    }
  }

  const ProductParams& params_;
  RingPlace<Shared::kBlocks> weights_;
  DirectWeights<Rows, kFused> direct_;
  BlockWeights next_;  // those that direct_ loads
  RingPlace<Shared::kZBlocks> ring_;
  RingPlace<Shared::kTileQueue> queue_;
};

// Runs `tile(consumer, entry)` for every tile, by its width. Tiles come widest first, so one loop
// for each width after another replaces a switch inside one loop, for which the accumulators of all
// widths would be live together.
template <int kUnits, class Consumer, class Tile>
__device__ __forceinline__ void consume(Consumer& consumer, const SharedView& shared,
                                        const Tile& tile) {
  while (consumer.tile(shared).units == kUnits) {
    tile.template run<kTileUnit * kUnits>(consumer, shared);
    consumer.finish(shared);
  }
  if constexpr (kUnits > 1) consume<kUnits - 1>(consumer, shared, tile);
}

template <class Shared, class Fragments, class Rows, bool kFused, class Tile>
__device__ __forceinline__ void run_block(uint8_t* raw, const ProductParams& params,
                                          const Tile& tile) {
  const SharedView shared = open_shared<Shared, Fragments>(raw);
  dependency_wait();
  dependency_release();
  // What a block may have of an SM's 64 K, dealt anew.
  constexpr int kProducer = Shared::kResident == 1 ? 40 : 48;
  constexpr int kConsumer = Shared::kResident == 1 ? 232 : 96;
  if (threadIdx.x >= kGroupedConsumers) {
    give_registers<kProducer>();
    if (threadIdx.x == kGroupedConsumers) produce<Shared, Fragments, kFused>(params, shared);
    if constexpr (!Shared::kDirect) {
      const int weight_thread = static_cast<int>(threadIdx.x) - kFirstWeightThread;
      if (weight_thread >= 0 && weight_thread < WeightProducers<Shared, Fragments>::kThreads)
        produce_weights<Shared, Fragments, kFused>(params, shared);
    }
  } else {
    take_registers<kConsumer>();
    Consumer<Shared, Fragments, Rows, kFused> consumer(params);
    consumer.start(shared);
    consume<Shared::kUnits>(consumer, shared, tile);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace memra::cuda
