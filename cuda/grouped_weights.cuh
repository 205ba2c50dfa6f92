#pragma once

// A warp's weights on their way through shared memory. No two warps need the same ones, so each
// copies its own into a ring of its own, a lane the bytes that it will decode itself: no barrier,
// and no descriptor, of which a table of slabs would need one for each expert.

#include "grouped_shared.cuh"

namespace memra::cuda {

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
  }
  __device__ __forceinline__ int32_t blocks_left() const { return blocks_left_; }

  // Starts copying the next block of 128 columns into a place of the ring.
  __device__ __forceinline__ void copy(const SharedView& shared, int place) {
    const Target to = target(shared, place);
    if (live_ == 3 && (blocks_left_ != 1 || columns_ % kBlockColumns == 0)) {
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

  // Of a lane's codes of set s and row r: kFragmentBytes * (2 * s + r) further, and likewise
  // scales.
  struct Target {
    uint32_t codes, scales;
  };
  static __device__ __forceinline__ Target target(const SharedView& shared, int place) {
    const uint32_t to = Shared::warp_weights(shared.address, place),
                   lane = thread_index_here() & 31;
    return {to + lane * 16, to + 4 * Shared::kFragmentBytes + lane * 4};
  }

  template <int kSet>
  __device__ __forceinline__ void copy_whole(const Target& to) const {
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
  __device__ __forceinline__ void copy_rest(const Target& to) const {
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
  uint32_t live_ = 0;  // bit s: set s has weights
};

// A lane's codes and scales of one slab of 64 columns.
struct SlabWeights {
  uint2 words[2][2];  // set, row
  uint32_t scales[2][2];

  // Decodes word w, 0 or 1, of a set: fragments of its two steps.
  __device__ __forceinline__ void fragments(int set, int w, uint32_t (&steps)[2][4]) const {
    const DecodedWord low = decode_word(w == 0 ? words[set][0].x : words[set][0].y, scales[set][0]);
    const DecodedWord high =
        decode_word(w == 0 ? words[set][1].x : words[set][1].y, scales[set][1]);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      steps[step][0] = low.steps[step][0];
      steps[step][1] = high.steps[step][0];
      steps[step][2] = low.steps[step][1];
      steps[step][3] = high.steps[step][1];
    }
  }
};

template <class Shared, class Fragments, int kSet>
__device__ __forceinline__ void read_set(SlabWeights& slab, uint32_t from, int h, bool half) {
  const int lane = thread_index_here() & 31;
  const uint32_t byte = scale_byte(lane & 3, h, half);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int fragment = 2 * kSet + row;
    slab.words[kSet][row] =
        load_shared_u32x2(from + fragment * Shared::kFragmentBytes + lane * 16 + h * 8);
    const uint32_t scales =
        load_shared(from + 4 * Shared::kFragmentBytes + fragment * Shared::kScaleWords + lane * 4);
    slab.scales[kSet][row] = decode_scale<Fragments::template Of<kSet>::kChecked>(scales, byte);
  }
}

// Slab h of the block at a place; half: the only one of a last block.
template <class Shared, class Fragments>
__device__ __forceinline__ SlabWeights read_slab(const SharedView& shared, int place, int h,
                                                 bool half) {
  const uint32_t from = Shared::warp_weights(shared.address, place);
  SlabWeights slab;
  read_set<Shared, Fragments, 0>(slab, from, h, half);
  read_set<Shared, Fragments, 1>(slab, from, h, half);
  return slab;
}

}  // namespace memra::cuda
