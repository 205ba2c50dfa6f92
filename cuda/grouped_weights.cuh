#pragma once

// A warp's weights on their way through shared memory. No two warps need the same ones, so each
// copies its own into a ring of its own, a lane the bytes that it will decode itself: no barrier,
// and no descriptor, of which a table of slabs would need one for each expert.

#include "grouped_shared.cuh"

namespace memra::cuda {

// Where a lane's weights are in shared memory: those of set s and row r kFragmentBytes * (2 * s +
// r) further, or for scales kScaleWords.
struct LaneWeights {
  uint32_t codes, scales;

  // At the first place of the ring; others are kBlockBytes apart.
  template <class Shared>
  static __device__ __forceinline__ LaneWeights of(const SharedView& shared) {
    const uint32_t lane = thread_index_here() & 31, warp = thread_index_here() >> 5;
    const uint32_t first = shared.address + Shared::kWeights + warp * Shared::kWarpBytes;
    return {first + lane * 16, first + 4 * Shared::kFragmentBytes + lane * 4};
  }
  __device__ __forceinline__ LaneWeights at(uint32_t offset) const {
    return {codes + offset, scales + offset};
  }
};

template <class Shared, class Fragments, class Rows, bool kFused>
class WarpWeights {
 public:
  // columns: of a slab.
  __device__ __forceinline__ explicit WarpWeights(int64_t columns)
      : columns_(static_cast<int32_t>(columns)) {}

  // Begins a tile.
  __device__ __forceinline__ void open(const TileEntry& entry) {
    blocks_left_ = blocks_of(columns_);
    live_ = 0;
    open_set<0>(entry);
    open_set<1>(entry);
    rest_ = live_ != 3 ? blocks_left_ : columns_ % kBlockColumns != 0 ? 1 : 0;
  }
  __device__ __forceinline__ int32_t blocks_left() const { return blocks_left_; }

  // Starts copying the next block of 128 columns to where the lane will read them.
  __device__ __forceinline__ void copy(const LaneWeights& to) {
    if (blocks_left_ > rest_) {
      copy_whole<0>(to);
      copy_whole<1>(to);
    } else {
      copy_rest<0>(to);
      copy_rest<1>(to);
    }
    --blocks_left_;
    codes_[0] += Set<0>::kCodeStep;
    codes_[1] += Set<1>::kCodeStep;
    scales_[0] += Set<0>::kScaleStep;
    scales_[1] += Set<1>::kScaleStep;
  }

 private:
  template <int kSet>
  using Set = typename Fragments::template Of<kSet>;

  template <class Fragment>
  __device__ __forceinline__ LaneOffsets lane_offsets(bool half) const {
    const int lane = thread_index_here() & 31;
    return Fragment::lane(columns_, Rows::row(lane >> 2), lane & 3, half);
  }

  template <int kSet>
  __device__ __forceinline__ void open_set(const TileEntry& entry) {
    const LaneOffsets first = lane_offsets<Set<kSet>>(false);
    const int row = warp_row<kFused>(thread_index_here() >> 5, entry.outputs[kSet]);
    const bool live = (entry.flags & kTileLive) != 0 && row < entry.outputs[kSet];
    live_ |= (live ? 1u : 0u) << kSet;
    codes_[kSet] = entry.codes[kSet] + Set<kSet>::codes(columns_, row) + first.codes;
    scales_[kSet] = entry.scales[kSet] + Set<kSet>::scale_rows(columns_, row) + first.scales;
  }

  template <int kSet>
  __device__ __forceinline__ void copy_whole(const LaneWeights& to) const {
    const LaneOffsets second = Set<kSet>::second_row(columns_, Rows::kDistance, false);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int fragment = 2 * kSet + row;
      const uint32_t codes = to.codes + fragment * Shared::kFragmentBytes;
      const uint8_t* const from = codes_[kSet] + row * second.codes;
      if constexpr (Set<kSet>::kAligned) {
        copy_async_16(codes, from);
      } else {
#pragma unroll
        for (int byte = 0; byte < 16; byte += 4)
          copy_async_4(codes + byte, from + byte);
      }
      copy_async_4(to.scales + fragment * Shared::kScaleWords, scales_[kSet] + row * second.scales);
    }
  }

  // Sets without weights, which get zeroes, and a last block of 64 columns.
  template <int kSet>
  __device__ __forceinline__ void copy_rest(const LaneWeights& to) const {
    const bool half = columns_ % kBlockColumns != 0 && blocks_left_ == 1;
    const bool live = (live_ >> kSet & 1) != 0;
    const LaneOffsets whole = lane_offsets<Set<kSet>>(false), first = lane_offsets<Set<kSet>>(half);
    const LaneOffsets second = Set<kSet>::second_row(columns_, Rows::kDistance, half);
#pragma unroll 1
    for (int row = 0; row < 2; ++row) {
      const int fragment = 2 * kSet + row;
      const uint32_t codes = to.codes + fragment * Shared::kFragmentBytes;
      const uint8_t* const from = codes_[kSet] - whole.codes + first.codes + row * second.codes;
#pragma unroll 1
      for (int byte = 0; byte < (half ? 8 : 16); byte += 4)
        copy_async_4(codes + byte, from + byte, live);
      copy_async_4(to.scales + fragment * Shared::kScaleWords,
                   scales_[kSet] - whole.scales + first.scales + row * second.scales, live);
    }
  }

  const uint8_t* codes_[2];
  const uint8_t* scales_[2];
  int32_t columns_;
  int32_t blocks_left_ = 0;
  int32_t rest_ = 0;   // of them, the last ones that are not copied whole
  uint32_t live_ = 0;  // bit s: set s has weights
};

// A lane's codes and scales of a block.
struct BlockWeights {
  uint4 words[2][2];  // set, row
  uint32_t scales[2][2];

  // Decodes word w, 0 to 3, of a set: fragments of its two steps.
  template <int kWord>
  __device__ __forceinline__ void fragments(int set, uint32_t (&steps)[2][4]) const {
    const DecodedWord low = decode<kWord>(set, 0), high = decode<kWord>(set, 1);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      steps[step][0] = low.steps[step][0];
      steps[step][1] = high.steps[step][0];
      steps[step][2] = low.steps[step][1];
      steps[step][3] = high.steps[step][1];
    }
  }

 private:
  template <int kWord>
  __device__ __forceinline__ DecodedWord decode(int set, int row) const {
    const uint4& of = words[set][row];
    const uint32_t word = kWord == 0 ? of.x : kWord == 1 ? of.y : kWord == 2 ? of.z : of.w;
    return decode_word(word, broadcast_f16<kWord / 2>(scales[set][row]));
  }
};

template <class Shared, class Fragments, int kSet>
__device__ __forceinline__ void read_set(BlockWeights& block, const LaneWeights& from,
                                         uint32_t selector) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int fragment = 2 * kSet + row;
    block.words[kSet][row] = load_shared_u32x4(from.codes + fragment * Shared::kFragmentBytes);
    block.scales[kSet][row] = decode_scales<Fragments::template Of<kSet>::kChecked>(
        load_shared(from.scales + fragment * Shared::kScaleWords), selector);
  }
}

// half: a last block that has one slab alone, words 0 and 1.
template <class Shared, class Fragments>
__device__ __forceinline__ BlockWeights read_block(const LaneWeights& from, bool half) {
  const uint32_t selector = scale_selector(thread_index_here() & 3, half);
  BlockWeights block;
  read_set<Shared, Fragments, 0>(block, from, selector);
  read_set<Shared, Fragments, 1>(block, from, selector);
  return block;
}

}  // namespace memra::cuda
