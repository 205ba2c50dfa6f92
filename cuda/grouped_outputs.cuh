#pragma once

// What the kernels of the grouped products do with a tile's sums. Of lane 4 * g + t,
// sums[set][4 * j + 2 * other + e] is weight row Rows::row(g) + other * kDistance of the warp's 16,
// and row 8 * j + 2 * t + e of the tile.

#include "grouped_activation.cuh"
#include "grouped_shared.cuh"

namespace memra::cuda {

// Scales of a tile's rows: asked for before the product, in shared memory after it.
template <class Shared>
class RowScales {
 public:
  __device__ __forceinline__ void ask(const ProductParams& params, const TileEntry& tile) {
    const int i = thread_index_here() & 127;
    read_ = i < tile.count && params.zs != nullptr ? params.zs[tile.row + i] : 0.0f;
  }
  // All of the warpgroup's threads; the next sync shows them to each other.
  __device__ __forceinline__ void store(const SharedView& shared) const {
    const int i = thread_index_here() & 127;
    if (i < Shared::kColumns) store_shared(address(shared) + 4 * i, __fmul_rn(read_, kWeightUnit));
  }
  static __device__ __forceinline__ uint32_t address(const SharedView& shared) {
    return shared.address + Shared::kRowScales + warpgroup() * Shared::kColumns * 4;
  }

 private:
  float read_;  // as it is in memory: what would be made of it now would wait for it now
};

// Scale and bias of one weight row. No bias is the zero whose addition changes nothing.
struct OutputRow {
  float scale, bias;

  __device__ __forceinline__ OutputRow(const TileEntry& entry, int set, int64_t output, bool there)
      : scale(entry.plane_scales[set]),
        bias(there && entry.bias[set] != nullptr ? entry.bias[set][output] : -0.0f) {}
  __device__ __forceinline__ float operator()(float dot) const {
    return numerics::plane_value(dot, scale, true, bias);
  }
};

}  // namespace memra::cuda
