#pragma once

// A block of the grouped products: its tiles, its warps, its shared memory.
//
// Weights are the A operand, decoded in registers; rows of activations are N. A tile has two sets
// of 128 weight rows, gate and up or neighbours of one plane, because two accumulators to one read
// of B halve the traffic of activations, which is what limits. Eight warps share a tile, 16 rows of
// each set.

#include <cstdint>

#include "grouped_fragment.cuh"
#include "grouped_params.cuh"
#include "ptx.cuh"

namespace memra::cuda {

inline constexpr int kGroupedConsumers = 256;
inline constexpr int kGroupedThreads = kGroupedConsumers + 128;  // registers move by warpgroups
inline constexpr uint32_t kSlabRowBytes = kSlabColumns * 2;

// A tile on its way from the producer to the warps.
struct TileEntry {
  const uint8_t* codes[2];  // of the sets' first rows
  const uint8_t* scales[2];
  int32_t row, count, units;  // units 0: no more
  int32_t expert;
  int32_t output;      // the first
  int32_t outputs[2];  // of the sets, at most kSetRows; multiples of 64
  int32_t live;        // 0: no weights, and outputs of 0
};

// kUnits: the widest tile. kBlocks: blocks of weights on their way, kSlabs: slabs of activations.
template <int kUnits_, int kBlocks_, int kSlabs_>
struct GroupedShared {
  static constexpr int kUnits = kUnits_, kBlocks = kBlocks_, kSlabs = kSlabs_;
  static constexpr int kColumns = kTileUnit * kUnits;
  // Weights of kBlocks - 1 blocks ahead may be those of as many tiles, and the next one is opened
  // behind the last of them. To make that known the producer must have found room for the slabs of
  // the tiles before: at most two for each of these blocks.
  static constexpr int kTileQueue = kBlocks + 1;
  static_assert(kSlabs >= 2 * (kBlocks - 1));
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

  // Of this warp, at a place of its ring.
  static __device__ __forceinline__ uint32_t warp_weights(uint32_t shared, int place) {
    return shared + kWeights + place * kBlockBytes + (thread_index_here() >> 5) * kWarpBytes;
  }
  // Barriers by address: filled, then emptied.
  static __device__ __forceinline__ uint32_t slab_barrier(uint32_t shared, int slab) {
    return shared + kBarriers + 16 * slab;
  }
  static __device__ __forceinline__ uint32_t entry_barrier(uint32_t shared, int entry) {
    return shared + kBarriers + 16 * (kSlabs + entry);
  }
};
// On sm_90a. Full tiles are bound by the tensor cores, which want them wide. Where experts have few
// rows, time is that of reading weights, and what is not needed for activations keeps more of them
// on their way.
using WideTiles = GroupedShared<kMaxTileUnits, 3, 8>;
using NarrowTiles = GroupedShared<kNarrowTileUnits, 7, 12>;

inline constexpr uint32_t kEmptied = 8;

// What a warp needs of its tile, in registers: the entry is another's as soon as it is given back.
struct TilePlace {
  int32_t row, count, units, expert, output;
  int32_t outputs;  // of the first set
  bool live;

  __device__ __forceinline__ explicit TilePlace(const TileEntry& entry)
      : row(entry.row),
        count(entry.count),
        units(entry.units),
        expert(entry.expert),
        output(entry.output),
        outputs(entry.outputs[0]),
        live(entry.live != 0) {}
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

// First of a warp's 16 rows in each set. Where both halves of a set are there, they are the two
// slabs of the next product's columns: halves of every 32 rows.
template <bool kFused>
__device__ __forceinline__ int warp_row(int warp, int outputs) {
  const int group = warp >> 2, quarter = warp & 3;
  if (kFused && outputs == kSetRows) return 32 * quarter + 16 * group;
  return 64 * group + 16 * quarter;
}

// ---- From the list

struct TileRows {
  int32_t row, units;
};

template <class Fragments, bool kFused>
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
    const bool listed = cut.expert() < params.n_experts;
    const bool first = take_set<0>(entry, listed), second = take_set<1>(entry, listed);
    entry->live = first && second ? 1 : 0;
    return {static_cast<int32_t>(cut.row()), cut.units()};
  }

 private:
  template <int kSet>
  __device__ __forceinline__ bool take_set(TileEntry* entry, bool listed) const {
    using Fragment = typename Fragments::template Of<kSet>;
    const int64_t first = entry->output + (kFused ? 0 : kSet * kSetRows);
    const int64_t left = params.outputs - first;
    entry->outputs[kSet] = static_cast<int32_t>(left < 0 ? 0 : left < kSetRows ? left : kSetRows);
    const auto* const slab = static_cast<const uint8_t*>(
        listed ? params.planes[kFused ? kSet : 0].slabs[entry->expert] : nullptr);
    entry->codes[kSet] = slab + Fragment::codes(params.columns, first);
    entry->scales[kSet] = slab + Fragment::scales(params.outputs, params.columns, first);
    return slab != nullptr;
  }
};

}  // namespace memra::cuda
