#pragma once

// Pieces of the persistent kernels that read V2 weights through a ring of bulk copies.

#include <cstdint>

#include "rows_dot.cuh"

namespace memra::cuda {

// A place in a ring of stages, and the parity of the phase that its barrier is in.
struct RingPosition {
  int stage = 0;
  uint32_t parity;

  // Whoever waits for a stage to be filled begins with 0; whoever waits for it to be emptied with
  // 1, because the first pass finds the ring empty.
  __device__ __forceinline__ explicit RingPosition(uint32_t first_parity) : parity(first_parity) {}
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// Sums on their way from the consumer warps to the finisher: a ring of kDotSlots places. A place is
// full when all consumers have arrived at its named barrier, which is one instruction a warp; it is
// empty when the finisher's threads have arrived at `empty`.
inline constexpr int kDotSlots = 4;
inline constexpr int kFirstDotBarrier = 1;

// A block of 8 rows of a V2 slab, as it lies in a stage: codes, then scales.
__host__ __device__ constexpr int64_t block_codes_bytes(int64_t in) {
  return kRowBlock * in / 2;
}
__host__ __device__ constexpr int64_t block_scales_bytes(int64_t in) {
  return kRowBlock * in / numerics::kScaleBlock;
}
__host__ __device__ constexpr int64_t block_bytes(int64_t in) {
  return block_codes_bytes(in) + block_scales_bytes(in);
}

#if __CUDA_ARCH__ >= 900

// Piece 0 of a block is its codes, piece 1 its scales.
__device__ __forceinline__ void bulk_load_block_piece(uint8_t* to, const uint8_t* slab,
                                                      int64_t rows, int64_t in, int64_t row_block,
                                                      int piece, uint64_t* full) {
  bulk_load(piece == 0 ? to : to + block_codes_bytes(in),
            slab + (piece == 0 ? LayoutV2::row_block_codes(in, row_block)
                               : LayoutV2::row_block_scales(rows, in, row_block)),
            static_cast<uint32_t>(piece == 0 ? block_codes_bytes(in) : block_scales_bytes(in)),
            full);
}

#endif

// Reads a lane's group of a tile from shared memory. `codes` and `scales` are the lane's place in a
// first tile, `tile` counts from there.
template <RowsArm kArm>
__device__ __forceinline__ WeightGroup load_tile(const uint8_t* codes, const uint8_t* scales,
                                                 int tile) {
  if constexpr (kArm == RowsArm::kMathOnly) {
    return WeightSource<kArm>::v2(codes, scales, tile, 0);
  } else {
    WeightGroup w;
    w.codes = *reinterpret_cast<const uint4*>(codes + tile * numerics::kV2TileCodeBytes);
    w.scales = *reinterpret_cast<const uint16_t*>(scales + tile * numerics::kV2TileScaleBytes);
    return w;
  }
}

}  // namespace memra::cuda
