#pragma once

// Weights of a tile straight from memory into the registers of the warps that decode them, a block
// ahead. NVFP4_V1's rows are aligned to 4 bytes, and copies that small into shared memory are slow;
// as loads, words may go anywhere, and no warp is needed to copy them.

#include "grouped_weights.cuh"

namespace memra::cuda {

// What a lane takes of tiles of NVFP4_V1, block after block.
template <class Rows, bool kFused>
class DirectWeights {
 public:
  // From a block on, which with `half` is a last one of 64 columns. The tile's experts have
  // weights.
  __device__ __forceinline__ void start(const TileEntry& entry, int64_t columns, int block,
                                        bool half) {
    const int thread = thread_index_here(), lane = thread & 31;
    const int own = warp_row<kFused>(thread >> 5, entry.outputs[0]);
    const LaneOffsets in_row = FragmentV1::lane(columns, 0, lane & 3, half);
    scales_back_ = in_row.codes - in_row.scales;
    row_bytes_ = static_cast<uint32_t>(FragmentV1::codes(columns, 1));
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      // In place of rows that a tile does not have, any that it has.
      const int row = own < entry.outputs[set] ? own : 0;
      const uint8_t* const first = entry.codes[row < entry.outputs[set] ? set : 0];
      codes_[set] = first + block * FragmentV1::kCodeStep + in_row.codes +
                    (row + Rows::row(lane >> 2)) * row_bytes_;
    }
  }

  // Loads a block and moves on. left: whole blocks from this one on.
  template <bool kHalf>
  __device__ __forceinline__ void load(BlockWeights& to, int left) {
    if (!kHalf && left > kAhead) prefetch(kAhead);
#pragma unroll
    for (int set = 0; set < 2; ++set) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const uint8_t* const codes = row_codes(set, row);
        uint4& words = to.words[set][row];
        words.x = load_constant(codes);
        words.y = load_constant(codes + 4);
        if constexpr (!kHalf) {
          words.z = load_constant(codes + 8);
          words.w = load_constant(codes + 12);
        }
        to.scales[set][row] = load_constant(codes - scales_back_);
      }
      codes_[set] += FragmentV1::kCodeStep;
    }
  }

  // Of a tile's first blocks, after start().
  __device__ __forceinline__ void prefetch_first(int blocks) const {
#pragma unroll
    for (int block = 1; block < kAhead; ++block)
      if (block < blocks) prefetch(block);
  }

 private:
  // A load's way is longer than a block takes, and registers hold no more than one.
  static constexpr int kAhead = 3;

  __device__ __forceinline__ auto row_codes(int set, int row) const -> const uint8_t* {
    return codes_[set] + row * Rows::kDistance * row_bytes_;
  }
  // Lanes of a quad begin 16 bytes apart or a little more, so that they ask for all of their block.
  __device__ __forceinline__ void prefetch(int block) const {
#pragma unroll
    for (int set = 0; set < 2; ++set)
#pragma unroll
      for (int row = 0; row < 2; ++row)
        prefetch_l2(row_codes(set, row) + block * FragmentV1::kCodeStep);
  }

  const uint8_t* codes_[2];
  uint32_t scales_back_, row_bytes_;
};

}  // namespace memra::cuda
