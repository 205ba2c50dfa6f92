#pragma once

// A block of the grouped products: its tiles, its warps, its shared memory.
//
// Weights are the A operand, decoded in registers; rows of activations are N. A tile has two sets
// of 128 weight rows, gate and up or neighbours of one plane, because two accumulators to one read
// of B halve the traffic of activations, which is what limits. Eight warps share a tile, 16 rows of
// each set.

#include <cstdint>
#include <type_traits>

#include "grouped_fragment.cuh"
#include "grouped_kernels.h"
#include "grouped_params.cuh"
#include "ptx.cuh"

namespace memra::cuda {

inline constexpr int kGroupedConsumers = 256;
inline constexpr int kGroupedThreads = kGroupedConsumers + 128;  // registers move by warpgroups
inline constexpr uint32_t kSlabRowBytes = kSlabColumns * 2;

// A tile on its way from the producer to the warps.
struct alignas(16) TileEntry {
  const uint8_t* codes[2];  // of the sets' first rows
  const uint8_t* scales[2];
  int32_t row, count, units;  // units 0: no more
  int32_t output;             // the first
  int32_t outputs[2];         // of the sets, at most kSetRows; multiples of 64
  uint32_t flags;
  const float* bias[2];  // of the sets' expert, or null
  float plane_scales[2];
};
// Has weights; without, outputs are 0. Its activations are not wanted any more after it.
inline constexpr uint32_t kTileLive = 1, kTileFrees = 2;

// kUnits: the widest tile. kBlocks: blocks of 128 columns of weights on their way, none where they
// go straight into registers; kZBlocks: of activations. kStaged: outputs go through shared memory.
// kResident: blocks of threads on an SM. Set: how weights lie.
template <int kUnits_, int kBlocks_, int kZBlocks_, bool kStaged, int kResident_ = 1,
          class Set_ = WeightSet>
struct GroupedShared {
  using Set = Set_;
  static constexpr int kUnits = kUnits_, kBlocks = kBlocks_, kZBlocks = kZBlocks_;
  static constexpr int kResident = kResident_;
  static constexpr int kColumns = kTileUnit * kUnits;
  static constexpr bool kDirect = kBlocks == 0;
  // Weights of kBlocks blocks ahead may be those of as many tiles; direct ones are of the next,
  // behind which activations of one more are on their way.
  static constexpr int kTileQueue = (kDirect ? 2 : kBlocks) + 1;
  // Up to 7 rows more: a tile begins where its first row is in the swizzle's period of 8.
  static constexpr int kSlabBytes = (kColumns + 8) * static_cast<int>(kSlabRowBytes);
  static constexpr int kZBlockBytes = 2 * kSlabBytes;
  static constexpr int kSetBytes = Set::kBytes;
  static constexpr int kBlockBytes = 2 * kSetBytes;
  // Outputs of a warpgroup on their way out, so many rows at a time.
  static constexpr int kStageRows = kColumns < 64 ? kColumns : 64;
  static constexpr int kStageBytes = kStaged ? kStageRows * static_cast<int>(kSlabRowBytes) : 0;

  static constexpr int kZ = 0;
  static constexpr int kWeights = kZ + kZBlocks * kZBlockBytes;
  static constexpr int kStage = kWeights + kBlocks * kBlockBytes;
  static constexpr int kRowScales = kStage + 2 * kStageBytes;
  static constexpr int kQueue = kRowScales + 2 * kColumns * 4;
  static constexpr int kBarriers = kQueue + kTileQueue * static_cast<int>(sizeof(TileEntry));
  static constexpr int kAlignment = 1024;
  static constexpr int kBytes = kBarriers + 16 * (kZBlocks + kBlocks + kTileQueue) + kAlignment;
  static_assert(kSlabBytes % kAlignment == 0 && kAlignment % Set::kAlignment == 0);

  // Barriers by address: filled, then emptied.
  static __device__ __forceinline__ uint32_t z_barrier(uint32_t shared, int block) {
    return shared + kBarriers + 16 * block;
  }
  static __device__ __forceinline__ uint32_t weights_barrier(uint32_t shared, int block) {
    return shared + kBarriers + 16 * (kZBlocks + block);
  }
  static __device__ __forceinline__ uint32_t entry_barrier(uint32_t shared, int entry) {
    return shared + kBarriers + 16 * (kZBlocks + kBlocks + entry);
  }
};
// On sm_90a. Full tiles are bound by the tensor cores, which want them wide. Where experts have few
// rows, time is that of reading and decoding weights, and twice the warps hide each other's waits.
// Of one plane tiles are a little less wide, so that all slabs of 640 columns fit.
using WideGateUp = GroupedShared<kMaxTileUnits, 4, 4, true>;
using WidePlane = GroupedShared<kWidePlaneUnits, 3, 5, false>;
// The same for NVFP4_V1, and for rows that the copy engine cannot take.
using WideRowsGateUp = GroupedShared<kMaxTileUnits, 3, 4, true, 1, RowSet>;
using WideRowsPlane = GroupedShared<kWidePlaneUnits, 3, 5, false, 1, RowSet>;
using DirectGateUp = GroupedShared<kMaxTileUnits, 0, 5, true>;
using DirectPlane = GroupedShared<kWidePlaneUnits, 0, 5, false>;
using NarrowGateUp = GroupedShared<kNarrowTileUnits, 3, 3, true, 2>;
using NarrowPlane = GroupedShared<kNarrowTileUnits, 4, 3, false, 2>;
using NarrowRowsGateUp = GroupedShared<kNarrowTileUnits, 3, 3, true, 2, RowSet>;
using NarrowRowsPlane = GroupedShared<kNarrowTileUnits, 3, 3, false, 2, RowSet>;
// Gate and up of different formats, for which half the registers are not enough.
using MixedGateUp = GroupedShared<kNarrowTileUnits, 6, 6, true>;

// Who brings weights: a thread those in NVFP4_V2, a warp rows of NVFP4_V1, one thread of it where
// they are aligned, and beside NVFP4_V2 all threads that are left those in NVFP4_V1, 4 bytes at a
// time.
template <class Shared, class Fragments>
struct WeightProducers {
  static constexpr bool kRows = std::is_same_v<typename Shared::Set, RowSet>;
  static constexpr bool kStrips =
      !kRows && !Shared::kDirect && (Fragments::kFirstV2 || Fragments::kSecondV2);
  static constexpr int kCopying =
      !kRows && !Shared::kDirect && !(Fragments::kFirstV2 && Fragments::kSecondV2) ? 96 : 0;
  static constexpr int kThreads = kRows ? 32 : kCopying != 0 ? kCopying : kStrips ? 1 : 0;
  static constexpr int kWarps = (kThreads + 31) / 32;
  static constexpr int kArrivals = kCopying + (kRows || kStrips ? 1 : 0);  // of a block
  static constexpr WeightMaps kMaps = kRows     ? WeightMaps::kRows
                                      : kStrips ? WeightMaps::kStrips
                                                : WeightMaps::kNone;
};
inline constexpr int kFirstWeightThread = kGroupedConsumers + 32;

inline constexpr uint32_t kEmptied = 8;

// What a warp needs of its tile to put outputs where they belong, in registers.
struct TilePlace {
  int32_t row, count, output;
  int32_t outputs;  // of the first set
  bool live;

  __device__ __forceinline__ explicit TilePlace(const TileEntry& entry)
      : row(entry.row),
        count(entry.count),
        output(entry.output),
        outputs(entry.outputs[0]),
        live((entry.flags & kTileLive) != 0) {}
};

// The block's view of its shared memory.
struct SharedView {
  uint32_t address;
  uint8_t* bytes;

  template <class Shared>
  static __device__ __forceinline__ SharedView of(uint8_t* raw) {
    const uint32_t begin = shared_address(raw),
                   address = (begin + Shared::kAlignment - 1) & ~(Shared::kAlignment - 1u);
    return {address, raw + (address - begin)};
  }
};

template <class Shared>
__device__ __forceinline__ TileEntry* entries(const SharedView& shared) {
  return reinterpret_cast<TileEntry*>(shared.bytes + Shared::kQueue);
}

__device__ __forceinline__ int warpgroup() {
  return thread_index_here() >> 7;
}
__device__ __forceinline__ void warpgroup_sync() {
  named_sync(1 + warpgroup(), 128);
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
  bool loads;
};

// Hands out runs: neighbouring tiles of weight rows over the same rows of activations.
template <class Fragments, bool kFused>
class TileSource {
 public:
  __device__ __forceinline__ explicit TileSource(const ProductParams& params)
      : params_(params),
        row_tiles_(static_cast<int32_t>((params.outputs + kTileRows - 1) / kTileRows)),
        runs_((row_tiles_ + params.run - 1) / params.run) {}

  // Into shared memory at once: the producer has few registers.
  __device__ __forceinline__ TileRows take(TileEntry* entry) {
    const bool begins = next_ == end_;
    if (begins && !take_run()) {
      entry->units = 0;
      return {0, 0, false};
    }
    entry->row = static_cast<int32_t>(rows_.row());
    entry->count = rows_.count();
    entry->units = rows_.units();
    entry->output = next_ * kTileRows;
    ++next_;
    const bool listed = rows_.expert() < params_.n_experts;
    const bool first = take_set<0>(entry, listed), second = take_set<1>(entry, listed);
    entry->flags = (first && second ? kTileLive : 0) | (next_ == end_ ? kTileFrees : 0);
    return {static_cast<int32_t>(rows_.row()), rows_.units(), begins};
  }

 private:
  static constexpr int kTileRows = kFused ? kSetRows : 2 * kSetRows;

  __device__ __forceinline__ bool take_run() {
    const int32_t index = atomicAdd(&params_.list->next[params_.counter], 1);
    const int32_t tile = index / runs_;
    if (tile >= params_.list->n_tiles) return false;
    rows_ = reinterpret_cast<const RowTile*>(params_.list + 1)[tile];
    next_ = (index - tile * runs_) * params_.run;
    end_ = min(next_ + params_.run, row_tiles_);
    return true;
  }

  template <int kSet>
  __device__ __forceinline__ bool take_set(TileEntry* entry, bool listed) const {
    using Fragment = typename Fragments::template Of<kSet>;
    const int64_t first = entry->output + (kFused ? 0 : kSet * kSetRows);
    const int64_t left = params_.outputs - first;
    const ExpertPlane& plane = params_.planes[kFused ? kSet : 0];
    entry->outputs[kSet] = static_cast<int32_t>(left < 0 ? 0 : left < kSetRows ? left : kSetRows);
    entry->plane_scales[kSet] =
        listed && plane.scales != nullptr ? plane.scales[rows_.expert()] : 1.0f;
    entry->bias[kSet] = listed && plane.bias != nullptr ? plane.bias[rows_.expert()] : nullptr;
    const auto* const slab =
        static_cast<const uint8_t*>(listed ? plane.slabs[rows_.expert()] : nullptr);
    entry->codes[kSet] = slab + Fragment::codes(params_.columns, first);
    entry->scales[kSet] = slab + Fragment::scales(params_.outputs, params_.columns, first);
    return slab != nullptr;
  }

  const ProductParams& params_;
  int32_t row_tiles_;  // tiles of weight rows
  int32_t runs_;       // of them, over one tile of rows
  RowTile rows_{0};
  int32_t next_ = 0, end_ = 0;  // of the run
};

}  // namespace memra::cuda
