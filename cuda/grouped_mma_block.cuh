#pragma once

// A block of the grouped products on warp matrix instructions, sm_80 and later: the same tiles,
// weights and outputs as on sm_90a (grouped_ring.cuh), with activations copied by all threads, a
// block of 128 columns ahead of the product.

#include "grouped_shared.cuh"
#include "grouped_weights.cuh"

namespace memra::cuda {

template <class Shared, class Fragments, class Rows, bool kFused>
class MmaConsumer {
 public:
  static constexpr bool kExact = false;  // all tiles have one width

  __device__ __forceinline__ explicit MmaConsumer(const ProductParams& params) : params_(params) {}

  __device__ __forceinline__ auto tile(const SharedView& shared) const -> const TileEntry& {
    return entries<Shared>(shared)[0];
  }

  template <int kColumns>
  __device__ __forceinline__ void multiply(const SharedView& shared, const TileEntry& tile,
                                           float (&sums)[2][kColumns / 2]) {
    static_assert(kColumns == Shared::kColumns && Shared::kBlocks == 2 && Shared::kZBlocks == 2);
#pragma unroll
    for (int set = 0; set < 2; ++set)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i)
        sums[set][i] = 0.0f;
    const int row = warp_row<kFused>(thread_index_here() >> 5, tile.outputs[0]);
    const LaneWeights lane = LaneWeights::of<Shared, Rows>(shared, row, false);
    const auto place = [](int slab) { return (slab >> 1 & 1) * Shared::kBlockBytes; };
    const int slabs = static_cast<int>(n_slabs(params_.columns));
    int copied = 0;
    const auto copy = [&] {
      if (copied < slabs) {
        copy_weights<Shared, Fragments, kGroupedConsumers, 0>(
            shared.address + Shared::kWeights + place(copied), tile, params_.columns, copied / 2);
        copy_rows(shared, tile, copied);
        if (copied + 1 < slabs) copy_rows(shared, tile, copied + 1);
        copied += 2;
      }
      copy_async_commit();
    };
    copy();
#pragma unroll 1
    for (int slab = 0; slab < slabs; slab += 2) {
      __syncthreads();  // the other place has been read
      copy();
      copy_async_wait<1>();
      __syncthreads();
      const bool half = slab + 1 == slabs;
      BlockWeights block;
      if (half) {
        read_weights<Shared, Rows, 2, true>(block, LaneWeights::of<Shared, Rows>(shared, row, true),
                                            place(slab));
      } else {
        read_weights<Shared, Rows, 2, false>(block, lane, place(slab));
      }
      widen_scales<Fragments, 2>(block);
      multiply_word<0, kColumns>(shared, tile, slab, block, sums);
      multiply_word<1, kColumns>(shared, tile, slab, block, sums);
      if (half) break;
      multiply_word<2, kColumns>(shared, tile, slab + 1, block, sums);
      multiply_word<3, kColumns>(shared, tile, slab + 1, block, sums);
    }
  }

 private:
  static __device__ __forceinline__ uint32_t slab_address(const SharedView& shared, int slab) {
    return shared.address + Shared::kZ + (slab & 3) * Shared::kSlabBytes;
  }

  // Chunks stay where they are in their row: the swizzle serves reading as well.
  __device__ __forceinline__ void copy_rows(const SharedView& shared, const TileEntry& tile,
                                            int slab) const {
    constexpr int kChunkBytes = 2 * kChunkColumns, kChunks = kSlabColumns / kChunkColumns;
    const uint32_t to = slab_address(shared, slab);
    const uint16_t* const from = params_.z + slab_row(params_.rows, slab, tile.row);
    const int64_t there = params_.rows - tile.row;
    const int wanted = kTileUnit * tile.units;
    const int chunks = kChunks * (there < wanted ? static_cast<int>(there) : wanted);
    for (int i = thread_index_here(); i < chunks; i += kGroupedConsumers)
      copy_async_16(to + i * kChunkBytes, from + i * kChunkColumns);
  }

  template <int kWord, int kColumns>
  __device__ __forceinline__ void multiply_word(const SharedView& shared, const TileEntry& tile,
                                                int slab, const BlockWeights& weights,
                                                float (&sums)[2][kColumns / 2]) const {
    const int lane = thread_index_here() & 31, row = lane & 7;
    const uint32_t swizzle = static_cast<uint32_t>(tile.row + row) & 7;
    const uint32_t rows = slab_address(shared, slab) + row * kSlabRowBytes;
    const uint32_t chunk = static_cast<uint32_t>(4 * (kWord & 1) + (lane >> 3)) ^ swizzle;
    uint32_t a[2][2][4];  // set, step
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      weights.fragment<2 * kWord>(set, a[set][0]);
      weights.fragment<2 * kWord + 1>(set, a[set][1]);
    }
#pragma unroll
    for (int j = 0; j < kColumns / kTileUnit; ++j) {
      if (j >= tile.units) break;
      const uint4 b = load_matrices(rows + j * (kTileUnit * kSlabRowBytes) + chunk * 16);
#pragma unroll
      for (int set = 0; set < 2; ++set) {
        mma_m16n8k16(&sums[set][4 * j], a[set][0], b.x, b.y);
        mma_m16n8k16(&sums[set][4 * j], a[set][1], b.z, b.w);
      }
    }
  }

  const ProductParams& params_;
};

template <class Shared, class Fragments, class Rows, bool kFused, class Tile>
__device__ __forceinline__ void run_mma_block(uint8_t* raw, const ProductParams& params,
                                              const Tile& tile) {
  const SharedView shared = SharedView::of<Shared>(raw);
  dependency_wait();
  dependency_release();
  TileSource<Fragments, kFused> source(params);
  MmaConsumer<Shared, Fragments, Rows, kFused> consumer(params);
#pragma unroll 1
  for (;;) {
    if (threadIdx.x == 0) source.take(&entries<Shared>(shared)[0]);
    __syncthreads();
    if (consumer.tile(shared).units == 0) return;
    tile.template run<Shared::kColumns>(consumer, shared);
    __syncthreads();
  }
}

}  // namespace memra::cuda
