#pragma once

// Weights of a tile in shared memory: how threads copy them there, and what a lane takes of them.

#include <type_traits>

#include "grouped_shared.cuh"

namespace memra::cuda {

template <class Fragment>
__device__ __forceinline__ void copy_codes(uint32_t to, const uint8_t* from, bool half) {
  if (Fragment::kStrips && !half) {
    copy_async_16(to, from);
    return;
  }
#pragma unroll
  for (int byte = 0; byte < 16; byte += 4)
    if (byte < 8 || !half) copy_async_4(to + byte, from + byte);
}

// Starts copying a block of a set; by kThreads threads, the first of which is kFirst.
template <class Fragment, int kThreads, int kFirst>
__device__ __forceinline__ void copy_set(uint32_t to, const TileEntry& entry, int set,
                                         int64_t columns, int block, bool half) {
  constexpr int kRows = kThreads / 4;  // at once
  static_assert(kRows % WeightSet::kStripRows == 0);
  // What many instructions compute from it should not take registers between blocks.
  const int thread = thread_index_here() - kFirst;
  const int t = thread & 3, first = thread >> 2;
  const LaneOffsets from = Fragment::lane(columns, first, t, half);
  const uint8_t* codes = entry.codes[set] + block * Fragment::kCodeStep + from.codes;
  const uint8_t* scales = entry.scales[set] + block * Fragment::kScaleStep + from.scales;
  const bool has_scales = half ? t == 0 : t % 2 == 0;
#pragma unroll 1
  for (int row = first; row < entry.outputs[set]; row += kRows) {
    copy_codes<Fragment>(to + WeightSet::codes(row, t, half), codes, half);
    if (has_scales) copy_async_4(to + WeightSet::scales(row, t, half), scales);
    codes += Fragment::codes(columns, kRows);
    scales += Fragment::scale_rows(columns, kRows);
  }
}

// Both sets; what a tile does not have stays what it is.
template <class Shared, class Fragments, int kThreads, int kFirst>
__device__ __forceinline__ void copy_weights(uint32_t to, const TileEntry& entry, int64_t columns,
                                             int block) {
  if ((entry.flags & kTileLive) == 0) return;
  const bool half = (block + 1) * kBlockColumns > columns;
  copy_set<typename Fragments::template Of<0>, kThreads, kFirst>(to, entry, 0, columns, block,
                                                                 half);
  copy_set<typename Fragments::template Of<1>, kThreads, kFirst>(to + Shared::kSetBytes, entry, 1,
                                                                 columns, block, half);
}

// Where a lane's weights are, of the first set and row, in the first place of the ring.
struct LaneWeights {
  uint32_t codes, scales;

  // row: the first of the warp's 16.
  template <class Shared, class Rows>
  static __device__ __forceinline__ LaneWeights of(const SharedView& shared, int row, bool half) {
    const int lane = thread_index_here() & 31, t = lane & 3;
    const int own = row + Rows::row(lane >> 2);
    const uint32_t first = shared.address + Shared::kWeights;
    using Set = typename Shared::Set;
    return {first + Set::codes(own, t, half), first + Set::scales(own, t, half)};
  }
};

// A lane's codes and scales of a block.
struct BlockWeights {
  uint4 words[2][2];      // set, row
  uint32_t scales[2][2];  // as read, and then those of the two slabs, and those as f16

  // Decodes step 0 to 7 of a set; a word has two.
  template <int kStep>
  __device__ __forceinline__ void fragment(int set, uint32_t (&a)[4]) const {
    const DecodedStep low = decode<kStep>(set, 0), high = decode<kStep>(set, 1);
    a[0] = low.pairs[0];
    a[1] = high.pairs[0];
    a[2] = low.pairs[1];
    a[3] = high.pairs[1];
  }

 private:
  template <int kStep>
  __device__ __forceinline__ DecodedStep decode(int set, int row) const {
    constexpr int kWord = kStep / 2;
    const uint4& of = words[set][row];
    const uint32_t word = kWord == 0 ? of.x : kWord == 1 ? of.y : kWord == 2 ? of.z : of.w;
    return decode_step<kStep % 2>(word, broadcast_f16<kWord / 2>(scales[set][row]));
  }
};

// The codes that a lane has of a row; of half a block words 0 and 1. Rows of NVFP4_V1 have them at
// multiples of 4 bytes.
template <class Set, bool kHalf>
__device__ __forceinline__ uint4 load_words(uint32_t address) {
  if constexpr (std::is_same_v<Set, RowSet>) {
    return make_uint4(load_shared(address), load_shared(address + 4), load_shared(address + 8),
                      load_shared(address + 12));
  }
  if constexpr (!kHalf) return load_shared_u32x4(address);
  const uint2 words = load_shared_u32x2(address);
  return make_uint4(words.x, words.y, 0, 0);
}

// And its scales; of half a block that of its slab.
template <bool kHalf>
__device__ __forceinline__ uint32_t load_scales(uint32_t address) {
  return kHalf ? load_shared_u8(address) : load_shared_u16(address);
}

// offset: of the place in the ring. kSets: of them, the first ones.
template <class Shared, class Rows, int kSets, bool kHalf>
__device__ __forceinline__ void read_weights(BlockWeights& block, const LaneWeights& from,
                                             uint32_t offset) {
  using Set = typename Shared::Set;
  constexpr bool kRows = std::is_same_v<Set, RowSet>;
  // The other row's bits of a strip's place are none that the first one's has.
  constexpr uint32_t kOther = Set::codes(Rows::kDistance, 0, kHalf) - Set::codes(0, 0, kHalf),
                     kScales = Set::scales(Rows::kDistance, 0, kHalf) - Set::scales(0, 0, kHalf);
  const uint32_t codes = from.codes + offset;
#pragma unroll
  for (int set = 0; set < kSets; ++set)
#pragma unroll
    for (int row = 0; row < 2; ++row)
      block.words[set][row] = load_words<Set, kHalf>((row == 0 ? codes
                                                      : kRows  ? codes + kOther
                                                               : codes ^ kOther) +
                                                     set * Shared::kSetBytes);
#pragma unroll
  for (int set = 0; set < kSets; ++set)
#pragma unroll
    for (int row = 0; row < 2; ++row)
      block.scales[set][row] =
          load_scales<kHalf>(from.scales + offset + set * Shared::kSetBytes + row * kScales);
}

// Of words as they lie in memory.
__device__ __forceinline__ void pick_scales(BlockWeights& block, uint32_t selector) {
#pragma unroll
  for (int set = 0; set < 2; ++set)
#pragma unroll
    for (int row = 0; row < 2; ++row)
      block.scales[set][row] = byte_permute(block.scales[set][row], 0, selector);
}

// Apart from reading, so that other work can come between the two.
template <class Fragments, int kSets>
__device__ __forceinline__ void widen_scales(BlockWeights& block) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    block.scales[0][row] = decode_scales<Fragments::template Of<0>::kChecked>(block.scales[0][row]);
    if constexpr (kSets == 2)
      block.scales[1][row] =
          decode_scales<Fragments::template Of<1>::kChecked>(block.scales[1][row]);
  }
}

}  // namespace memra::cuda
