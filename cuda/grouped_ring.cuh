#pragma once

// The persistent kernel of the grouped products on sm_90a: its producer, and the product of a tile.
// Activations come by bulk copies: a slab of 64 columns of a tile is one run.

#include "grouped_weights.cuh"
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

template <class Shared>
__device__ __forceinline__ SharedView open_shared(uint8_t* raw) {
  const uint32_t begin = shared_address(raw), address = (begin + 1023) & ~1023u;
  const SharedView shared{address, raw + (address - begin)};
  if (threadIdx.x == 0) {
    constexpr int kWarps = kGroupedConsumers / 32;
    for (int i = 0; i < Shared::kSlabs; ++i) {
      barrier_init(Shared::slab_barrier(address, i), 1);
      barrier_init(Shared::slab_barrier(address, i) + kEmptied, kWarps);
    }
    for (int i = 0; i < Shared::kTileQueue; ++i) {
      barrier_init(Shared::entry_barrier(address, i), 1);
      barrier_init(Shared::entry_barrier(address, i) + kEmptied, kWarps);
    }
    barrier_init_fence();
    copy_engine_fence();
  }
  __syncthreads();
  return shared;
}

// ---- Producer: one thread

template <class Shared, class Fragments, bool kFused>
__device__ __forceinline__ void produce(const ProductParams& params, const SharedView& shared) {
  TileSource<Fragments, kFused> source(params);
  RingPlace<Shared::kTileQueue> queue(1);
  RingPlace<Shared::kSlabs> ring(1);
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
    // Warps copy weights of the next tile while they multiply this one.
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
    for (int slab = 0; slab < slabs; ++slab) {
      const uint32_t barrier = Shared::slab_barrier(shared.address, ring.place);
      barrier_wait(barrier + kEmptied, ring.parity);
      barrier_arrive_expect(barrier, bytes);
      bulk_load(shared.address + Shared::kZ + ring.place * Shared::kSlabBytes + phase, from, bytes,
                barrier);
      from += params.rows * kSlabColumns;
      ring.advance();
    }
    rows = following;
  }
}

// ---- Consumers

// Keeps kBlocks - 1 blocks of a warp's weights on their way, over tile after tile.
template <class Shared, class Fragments, class Rows, bool kFused>
class WeightStream {
 public:
  __device__ __forceinline__ WeightStream(const SharedView& shared, int64_t columns)
      : weights_(columns), queue_(0) {
    open(shared);
    for (int i = 1; i < Shared::kBlocks; ++i)
      copy(shared);
  }

  // The next block; always one group of copies.
  __device__ __forceinline__ void copy(const SharedView& shared) {
    if (weights_.blocks_left() != 0) {
      weights_.copy(shared, place_);
      if (weights_.blocks_left() == 0) {
        queue_.advance();
        open(shared);
      }
    }
    copy_async_commit();
    if (++place_ == Shared::kBlocks) place_ = 0;
  }

 private:
  __device__ __forceinline__ void open(const SharedView& shared) {
    barrier_wait(Shared::entry_barrier(shared.address, queue_.place), queue_.parity);
    const TileEntry& entry = entries<Shared>(shared)[queue_.place];
    if (entry.units != 0) weights_.open(entry);
  }

  WarpWeights<Shared, Fragments, Rows, kFused> weights_;
  int32_t place_ = 0;
  RingPlace<Shared::kTileQueue> queue_;
};

// A consumer warp: its places in the rings, and the product of a tile.
template <class Shared, class Fragments, class Rows, bool kFused>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const SharedView& shared, const ProductParams& params)
      : copies_(shared, params.columns),
        slabs_(static_cast<int>(n_slabs(params.columns))),
        ring_(0),
        queue_(0) {}

  // Waits for the next tile.
  __device__ __forceinline__ auto tile(const SharedView& shared) const -> const TileEntry& {
    barrier_wait(Shared::entry_barrier(shared.address, queue_.place), queue_.parity);
    return entries<Shared>(shared)[queue_.place];
  }
  // Done with it.
  __device__ __forceinline__ void finish(const SharedView& shared) {
    __syncwarp();
    if ((thread_index_here() & 31) == 0)
      barrier_arrive(Shared::entry_barrier(shared.address, queue_.place) + kEmptied);
    queue_.advance();
  }

  template <int kColumns>
  __device__ __forceinline__ void multiply(const SharedView& shared, const TilePlace& tile,
                                           float (&sums)[2][kColumns / 2]) {
    // Written here although the first product could ignore them: what is only read and modified
    // counts as live from the kernel's entry, for all widths at once, and the products would be
    // serialised.
#pragma unroll
    for (int set = 0; set < 2; ++set)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i)
        sums[set][i] = written_zero();
    uint32_t a[2][2][2][4];  // word of the slab, set, step: a word is decoded while the other runs
    const uint32_t phase = (static_cast<uint32_t>(tile.row) & 7) * kSlabRowBytes;
    const RingPlace<Shared::kSlabs> first = ring_;
    uint32_t done = 0;  // barrier of the slab before, once there is one to be freed
#pragma unroll 1
    for (int slab = 0; slab < slabs_; ++slab) {
      const int h = slab & 1;
      if (h == 0) {
        copy_async_wait<Shared::kBlocks - 2>();
        copies_.copy(shared);
      }
      const uint32_t barrier = Shared::slab_barrier(shared.address, ring_.place);
      if (tile.loads) barrier_wait(barrier, ring_.parity);
      const SlabWeights weights =
          read_slab<Shared, Fragments>(shared, block_, h, h == 0 && slab + 1 == slabs_);
      const uint64_t b =
          swizzled_rows(shared.address + Shared::kZ + ring_.place * Shared::kSlabBytes + phase);
#pragma unroll
      for (int word = 0; word < 2; ++word) {
#pragma unroll
        for (int set = 0; set < 2; ++set)
          weights.fragments(set, word, a[word][set]);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
          for (int set = 0; set < 2; ++set)
            Wgmma<kColumns>::multiply(sums[set], a[word][set][step], b + 2 * (2 * word + step));
        wgmma_commit();
        wgmma_wait<1>();
        if (word == 0 && done != 0 && (thread_index_here() & 31) == 0)
          barrier_arrive(done + kEmptied);
      }
      if (tile.frees) done = barrier;
      ring_.advance();
      if (h == 1 || slab + 1 == slabs_)
        if (++block_ == Shared::kBlocks) block_ = 0;
    }
    wgmma_wait<0>();
    if (done != 0 && (thread_index_here() & 31) == 0) barrier_arrive(done + kEmptied);
    if (!tile.frees) ring_ = first;  // the next tile reads the same slabs
  }

 private:
  WeightStream<Shared, Fragments, Rows, kFused> copies_;
  int32_t slabs_;
  int32_t block_ = 0;
  RingPlace<Shared::kSlabs> ring_;
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

inline constexpr uint32_t kStagger = 2000;

template <class Shared, class Fragments, class Rows, bool kFused, class Tile>
__device__ __forceinline__ void run_block(uint8_t* raw, const ProductParams& params,
                                          const Tile& tile) {
  const SharedView shared = open_shared<Shared>(raw);
  dependency_wait();
  dependency_release();
  if (threadIdx.x >= kGroupedConsumers) {
    give_registers<40>();
    if (threadIdx.x == kGroupedConsumers) produce<Shared, Fragments, kFused>(params, shared);
  } else {
    take_registers<232>();
    // Apart by about an epilogue, one warpgroup multiplies while the other is in its own; they stay
    // apart because they share the tensor cores evenly where both multiply.
    if (warpgroup() != 0) wait_clocks(kStagger);
    Consumer<Shared, Fragments, Rows, kFused> consumer(shared, params);
    consume<Shared::kUnits>(consumer, shared, tile);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace memra::cuda
