#pragma once

// The persistent kernel of the grouped products on sm_90a: its shared memory, its producer, and the
// product of one tile.
//
// Weights are the A operand, decoded in registers; rows of activations are N, in any multiple of 8 up
// to 128. A tile has two sets of 128 weight rows, gate and up or neighbours of one plane, because two
// accumulators to one read of B halve the traffic of activations, which is what limits. Two warpgroups
// share a tile, 64 rows of each set, and with them one producer.
//
// No two warps need the same weights, so each warp copies its own into a ring of its own, a lane the
// bytes that it will decode itself: no barrier, and no descriptor that a table of slabs would need
// one of for each expert. Activations come by bulk copies: a slab of 64 columns of a tile is one run.

#include <cstdint>

#include "grouped_fragment.cuh"
#include "grouped_params.cuh"
#include "wgmma.cuh"

namespace memra::cuda {

inline constexpr int kGroupedConsumers = 256;
inline constexpr int kGroupedThreads = kGroupedConsumers + 128;  // registers move by warpgroups
inline constexpr int kSetRows = 128;
inline constexpr int kTileQueue = 4;
inline constexpr uint32_t kSlabRowBytes = kSlabColumns * 2;

// A tile on its way from the producer to the warps.
struct TileEntry {
  const uint8_t* codes[2];   // of the sets' first rows
  const uint8_t* scales[2];
  int32_t row, count, units;  // units 0: no more
  int32_t expert;
  int32_t output;   // the first
  int32_t outputs[2];  // of the sets, at most kSetRows; multiples of 64
  int32_t live;     // 0: no weights, and outputs of 0
};

// kUnits: the widest tile. kBlocks: blocks of weights on their way, kSlabs: slabs of activations.
template <int kUnits_, int kBlocks_, int kSlabs_>
struct GroupedShared {
  static constexpr int kUnits = kUnits_, kBlocks = kBlocks_, kSlabs = kSlabs_;
  static constexpr int kColumns = kTileUnit * kUnits;
  // Up to 7 rows more: a tile begins where its first row is in the swizzle's period of 8.
  static constexpr int kSlabBytes = (kColumns + 8) * static_cast<int>(kSlabRowBytes);
  static constexpr int kFragmentBytes = 32 * 16, kScaleWords = 32 * 4;
  static constexpr int kWarpBytes = 4 * (kFragmentBytes + kScaleWords);
  static constexpr int kBlockBytes = kGroupedConsumers / 32 * kWarpBytes;
  // Outputs of a warpgroup on their way out, 32 rows at a time.
  static constexpr int kStageRows = 32;
  static constexpr int kStageBytes = kStageRows * 64 * 4;

  static constexpr int kZ = 0;
  static constexpr int kWeights = kZ + kSlabs * kSlabBytes;
  static constexpr int kStage = kWeights + kBlocks * kBlockBytes;
  static constexpr int kRowScales = kStage + 2 * kStageBytes;
  static constexpr int kQueue = kRowScales + 2 * kColumns * 4;
  static constexpr int kBarriers = kQueue + kTileQueue * static_cast<int>(sizeof(TileEntry));
  static constexpr int kBytes = kBarriers + 16 * (kSlabs + kTileQueue) + 1024;  // and its alignment
  static_assert(kSlabBytes % 1024 == 0 && sizeof(TileEntry) % 16 == 0);

  // Barriers by address: filled, then emptied.
  static __device__ __forceinline__ uint32_t slab_barrier(uint32_t shared, int slab) {
    return shared + kBarriers + 16 * slab;
  }
  static __device__ __forceinline__ uint32_t entry_barrier(uint32_t shared, int entry) {
    return shared + kBarriers + 16 * (kSlabs + entry);
  }
};
inline constexpr uint32_t kEmptied = 8;

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

// The block's view of its shared memory.
struct SharedView {
  uint32_t address;
  uint8_t* bytes;
};

template <class Shared>
__device__ __forceinline__ TileEntry* entries(const SharedView& shared) {
  return reinterpret_cast<TileEntry*>(shared.bytes + Shared::kQueue);
}

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
    for (int i = 0; i < kTileQueue; ++i) {
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

struct TileRows {
  int32_t row, units;
};

template <class Fragment, bool kFused>
struct TileSource {
  const ProductParams& params;
  int32_t row_tiles;  // tiles of weight rows over one tile of rows

  __device__ __forceinline__ explicit TileSource(const ProductParams& p) : params(p) {
    constexpr int kRows = kFused ? kSetRows : 2 * kSetRows;
    row_tiles = static_cast<int32_t>((p.outputs + kRows - 1) / kRows);
  }

  // Into shared memory at once: the producer has few registers.
  __device__ __forceinline__ TileRows take(TileEntry* entry) const {
    const int32_t index = atomicAdd(&params.list->next[params.counter], 1);
    const int32_t tile = index / row_tiles;
    if (tile >= params.list->n_tiles) {
      entry->units = 0;
      return {0, 0};
    }
    const RowTile cut = reinterpret_cast<const RowTile*>(params.list + 1)[tile];
    const int32_t output = (index - tile * row_tiles) * (kFused ? kSetRows : 2 * kSetRows);
    entry->row = static_cast<int32_t>(cut.row());
    entry->count = cut.count();
    entry->units = cut.units();
    entry->expert = cut.expert();
    entry->output = output;
    bool live = cut.expert() < params.n_experts;
#pragma unroll 1
    for (int set = 0; set < 2; ++set) {
      const int64_t first = output + (kFused ? 0 : set * kSetRows);
      const int64_t left = params.outputs - first;
      entry->outputs[set] = static_cast<int32_t>(left < 0 ? 0 : left < kSetRows ? left : kSetRows);
      const void* const slab =
          live ? params.planes[kFused ? set : 0].slabs[cut.expert()] : nullptr;
      live = slab != nullptr;
      const auto* const base = static_cast<const uint8_t*>(slab);
      entry->codes[set] = base + Fragment::codes(params.columns, first);
      entry->scales[set] = base + Fragment::scales(params.outputs, params.columns, first);
    }
    entry->live = live ? 1 : 0;
    return {static_cast<int32_t>(cut.row()), cut.units()};
  }
};

template <class Shared, class Fragment, bool kFused>
__device__ __forceinline__ void produce(const ProductParams& params, const SharedView& shared) {
  const TileSource<Fragment, kFused> source(params);
  RingPlace<kTileQueue> queue(1);
  RingPlace<Shared::kSlabs> ring(1);
  const auto publish = [&] {
    const uint32_t barrier = Shared::entry_barrier(shared.address, queue.place);
    barrier_wait(barrier + kEmptied, queue.parity);
    const TileRows rows = source.take(&entries<Shared>(shared)[queue.place]);
    barrier_arrive(barrier);
    queue.advance();
    return rows;
  };
  const int slabs = slabs_of(params.columns);
  TileRows rows = publish();
  while (rows.units != 0) {
    // Warps copy weights of the next tile while they multiply this one.
    const TileRows following = publish();
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

// First of a warp's 16 rows in each set. Where both halves of a set are there, they are the two slabs
// of the next product's columns: halves of every 32 rows.
template <bool kFused>
__device__ __forceinline__ int warp_row(int warp, int outputs) {
  const int group = warp >> 2, quarter = warp & 3;
  if (kFused && outputs == kSetRows) return 32 * quarter + 16 * group;
  return 64 * group + 16 * quarter;
}

// Copies a warp's weights, block by block over tile after tile, kBlocks - 1 ahead of the product.
template <class Shared, class Fragment, class Rows, bool kFused>
class WeightCopies {
 public:
  __device__ __forceinline__ WeightCopies(const SharedView& shared, const ProductParams& params)
      : columns_(static_cast<int32_t>(params.columns)), queue_(0) {
    open(shared);
    for (int i = 1; i < Shared::kBlocks; ++i) copy(shared);
  }

  // The next block; always one group of copies.
  __device__ __forceinline__ void copy(const SharedView& shared) {
    if (blocks_left_ != 0) {
      if (live_ == 3 && (blocks_left_ != 1 || columns_ % kBlockColumns == 0)) {
        copy_whole(target(shared));
      } else {
        copy_rest(target(shared));
      }
      if (--blocks_left_ == 0) {
        queue_.advance();
        open(shared);
      }
    }
    copy_async_commit();
    if (++place_ == Shared::kBlocks) place_ = 0;
  }

 private:
  // Of a lane's codes of set s and row r: kFragmentBytes * (2 * s + r) further, and likewise scales.
  struct Target {
    uint32_t codes, scales;
  };
  __device__ __forceinline__ Target target(const SharedView& shared) const {
    const int thread = thread_index_here(), lane = thread & 31;
    const uint32_t to = shared.address + Shared::kWeights + place_ * Shared::kBlockBytes +
                        (thread >> 5) * Shared::kWarpBytes;
    return {to + lane * 16, to + 4 * Shared::kFragmentBytes + lane * 4};
  }

  __device__ __forceinline__ void copy_whole(const Target& to) {
    const LaneOffsets second = Fragment::second_row(columns_, Rows::kDistance, false);
#pragma unroll
    for (int set = 0; set < 2; ++set) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int fragment = 2 * set + row;
        const uint32_t codes = to.codes + fragment * Shared::kFragmentBytes;
        const uint8_t* const from = codes_[set] + row * second.codes;
        if constexpr (Fragment::kAligned) {
          copy_async_16(codes, from);
        } else {
#pragma unroll
          for (int byte = 0; byte < 16; byte += 4) copy_async_4(codes + byte, from + byte);
        }
        copy_async_4(to.scales + fragment * Shared::kScaleWords,
                     scales_[set] + row * second.scales);
      }
      codes_[set] += Fragment::kCodeStep;
      scales_[set] += Fragment::kScaleStep;
    }
  }

  // Sets without weights, which get zeroes, and a last block of 64 columns.
  __device__ __forceinline__ void copy_rest(const Target& to) {
    const int lane = thread_index_here() & 31;
    const bool half = columns_ % kBlockColumns != 0 && blocks_left_ == 1;
    const LaneOffsets whole = Fragment::lane(columns_, Rows::row(lane >> 2), lane & 3, false);
    const LaneOffsets first = Fragment::lane(columns_, Rows::row(lane >> 2), lane & 3, half);
    const LaneOffsets second = Fragment::second_row(columns_, Rows::kDistance, half);
#pragma unroll 1
    for (int fragment = 0; fragment < 4; ++fragment) {
      const int set = fragment >> 1, row = fragment & 1;
      const bool live = (live_ >> set & 1) != 0;
      const uint32_t codes = to.codes + fragment * Shared::kFragmentBytes;
      const uint8_t* const from = (set == 0 ? codes_[0] : codes_[1]) - whole.codes + first.codes + row * second.codes;
#pragma unroll 1
      for (int byte = 0; byte < (half ? 8 : 16); byte += 4)
        copy_async_4(codes + byte, from + byte, live);
      copy_async_4(to.scales + fragment * Shared::kScaleWords,
                   (set == 0 ? scales_[0] : scales_[1]) - whole.scales + first.scales + row * second.scales, live);
    }
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      codes_[set] += Fragment::kCodeStep;
      scales_[set] += Fragment::kScaleStep;
    }
  }

  __device__ __forceinline__ void open(const SharedView& shared) {
    barrier_wait(Shared::entry_barrier(shared.address, queue_.place), queue_.parity);
    const TileEntry& entry = entries<Shared>(shared)[queue_.place];
    if (entry.units == 0) return;
    blocks_left_ = blocks_of(columns_);
    live_ = 0;
    const int thread = thread_index_here(), lane = thread & 31;
    const LaneOffsets first = Fragment::lane(columns_, Rows::row(lane >> 2), lane & 3, false);
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      const int row = warp_row<kFused>(thread >> 5, entry.outputs[set]);
      const bool live = entry.live != 0 && row < entry.outputs[set];
      live_ |= (live ? 1u : 0u) << set;
      codes_[set] = entry.codes[set] + Fragment::codes(columns_, row) + first.codes;
      scales_[set] = entry.scales[set] + Fragment::scale_rows(columns_, row) + first.scales;
    }
  }

  const uint8_t* codes_[2];
  const uint8_t* scales_[2];
  int32_t columns_;
  int32_t blocks_left_ = 0;
  uint32_t live_ = 0;
  int32_t place_ = 0;
  RingPlace<kTileQueue> queue_;
};

// A consumer warp: its places in the rings, and the product of a tile.
template <class Shared, class Fragment, class Rows, bool kFused>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const SharedView& shared, const ProductParams& params)
      : copies_(shared, params), slabs_(slabs_of(params.columns)), ring_(0), queue_(0) {}

  // Waits for the next tile.
  __device__ __forceinline__ const TileEntry& tile(const SharedView& shared) const {
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
  __device__ __forceinline__ void multiply(const SharedView& shared, int32_t row,
                                           float (&sums)[2][kColumns / 2]) {
    // Written here although the first product could ignore them: what is only read and modified
    // counts as live from the kernel's entry, for all widths at once, and the products would be
    // serialised.
#pragma unroll
    for (int set = 0; set < 2; ++set)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i)
        asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sums[set][i]));
    uint32_t a[2][2][2][4];  // word of the slab, set, step: a word is decoded while the other runs
    const uint32_t phase = (static_cast<uint32_t>(row) & 7) * kSlabRowBytes;
    uint32_t done = 0;  // barrier of the slab before, once there is one
#pragma unroll 1
    for (int slab = 0; slab < slabs_; ++slab) {
      const int h = slab & 1;
      if (h == 0) {
        copy_async_wait<Shared::kBlocks - 2>();
        copies_.copy(shared);
      }
      const uint32_t barrier = Shared::slab_barrier(shared.address, ring_.place);
      barrier_wait(barrier, ring_.parity);
      const uint32_t weights = shared.address + Shared::kWeights + block_ * Shared::kBlockBytes +
                               (thread_index_here() >> 5) * Shared::kWarpBytes;
      const int lane = thread_index_here() & 31;
      const uint32_t byte = scale_byte(lane & 3, h, h == 0 && slab + 1 == slabs_);
      uint2 words[2][2];
      uint32_t scales[2][2];
#pragma unroll
      for (int set = 0; set < 2; ++set)
#pragma unroll
        for (int other = 0; other < 2; ++other) {
          const int fragment = 2 * set + other;
          words[set][other] = load_shared_u32x2(weights + fragment * Shared::kFragmentBytes +
                                                lane * 16 + h * 8);
          scales[set][other] = decode_scale<Fragment::kChecked>(
              load_shared(weights + 4 * Shared::kFragmentBytes + fragment * Shared::kScaleWords +
                          lane * 4),
              byte);
        }
      const uint64_t b = swizzled_rows(shared.address + Shared::kZ +
                                       ring_.place * Shared::kSlabBytes + phase);
#pragma unroll
      for (int word = 0; word < 2; ++word) {
#pragma unroll
        for (int set = 0; set < 2; ++set) {
          const DecodedWord low = decode_word(word == 0 ? words[set][0].x : words[set][0].y,
                                              scales[set][0]);
          const DecodedWord high = decode_word(word == 0 ? words[set][1].x : words[set][1].y,
                                               scales[set][1]);
#pragma unroll
          for (int step = 0; step < 2; ++step) {
            a[word][set][step][0] = low.steps[step][0];
            a[word][set][step][1] = high.steps[step][0];
            a[word][set][step][2] = low.steps[step][1];
            a[word][set][step][3] = high.steps[step][1];
          }
        }
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
          for (int set = 0; set < 2; ++set)
            Wgmma<kColumns>::multiply(sums[set], a[word][set][step], b + 2 * (2 * word + step));
        wgmma_commit();
        wgmma_wait<1>();
        if (word == 0 && done != 0 && lane == 0) barrier_arrive(done + kEmptied);
      }
      done = barrier;
      ring_.advance();
      if (h == 1 || slab + 1 == slabs_)
        if (++block_ == Shared::kBlocks) block_ = 0;
    }
    wgmma_wait<0>();
    if ((thread_index_here() & 31) == 0) barrier_arrive(done + kEmptied);
  }

 private:
  WeightCopies<Shared, Fragment, Rows, kFused> copies_;
  int32_t slabs_;
  int32_t block_ = 0;
  RingPlace<Shared::kSlabs> ring_;
  RingPlace<kTileQueue> queue_;
};

// Runs `tile(consumer, entry)` for every tile, by its width. Tiles come widest first, so one loop for
// each width after another replaces a switch inside one loop, for which the accumulators of all
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

template <class Shared, class Fragment, class Rows, bool kFused, class Tile>
__device__ __forceinline__ void run_block(uint8_t* raw, const ProductParams& params,
                                          const Tile& tile) {
  const SharedView shared = open_shared<Shared>(raw);
  dependency_wait();
  dependency_release();
  if (threadIdx.x >= kGroupedConsumers) {
    give_registers<40>();
    if (threadIdx.x == kGroupedConsumers) produce<Shared, Fragment, kFused>(params, shared);
  } else {
    take_registers<232>();
    Consumer<Shared, Fragment, Rows, kFused> consumer(shared, params);
    consume<Shared::kUnits>(consumer, shared, tile);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace memra::cuda
