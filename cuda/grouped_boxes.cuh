#pragma once

// Weights by the copy engine, 128 columns of a set's rows at a time: of NVFP4_V2 strips of 8 rows,
// as boxes of two tensors, one of codes and one of scales, and of NVFP4_V1 rows, as boxes of one.
//
// A slab lies anywhere, and its address comes from a table on the device; making a map for each
// slab there would need another kernel and fences. But an address is a sum of coordinates times
// strides: the maps' tensors begin at address 0, and their last two dimensions are the bits of the
// slab's address. So one pair of maps, made on the host, serves all slabs of one shape.

#include "grouped_fragment.cuh"
#include "grouped_shared.cuh"
#include "numerics/nvfp4_layout.h"

namespace memra::cuda {

// An address as two coordinates: in steps of 16 bytes, and of 2^35.
struct AddressCoordinates {
  static constexpr int kLowBits = 31;  // coordinates are signed
  static constexpr uint64_t kLowStride = 16, kHighStride = kLowStride << kLowBits;
  static constexpr uint64_t kLowExtent = uint64_t{1} << kLowBits, kHighExtent = uint64_t{1} << 22;

  int32_t low, high;

  static MEMRA_HD AddressCoordinates of(const void* p) {
    const uint64_t steps = reinterpret_cast<uintptr_t>(p) / kLowStride;
    return {static_cast<int32_t>(steps % kLowExtent), static_cast<int32_t>(steps / kLowExtent)};
  }
};

inline constexpr uint32_t kLineBytes = 128;
inline constexpr uint32_t kStripLines = WeightSet::kStripCodes / kLineBytes;
inline constexpr uint32_t kStripScaleWords = WeightSet::kStripScales / 4;
static_assert(numerics::kV2SlabAlignment % AddressCoordinates::kLowStride == 0);

// Codes: word, line of 128 bytes, strip, and the address. A last half block has half the lines.
constexpr TensorShape strip_codes(int64_t rows, int64_t columns) {
  const auto strips = static_cast<uint64_t>(rows) / WeightSet::kStripRows;
  const auto strip_bytes = static_cast<uint64_t>(columns) * WeightSet::kStripRows / 2;
  using Address = AddressCoordinates;
  return {
      5,
      {kLineBytes / 4, strip_bytes / kLineBytes, strips, Address::kLowExtent, Address::kHighExtent},
      {kLineBytes, strip_bytes, Address::kLowStride, Address::kHighStride},
      {kLineBytes / 4, kStripLines, WeightSet::kStrips, 1, 1},
      true};
}

// Scales: word, strip, and the address.
constexpr TensorShape strip_scales(int64_t rows, int64_t columns) {
  const auto strips = static_cast<uint64_t>(rows) / WeightSet::kStripRows;
  const auto strip_bytes =
      static_cast<uint64_t>(columns) * WeightSet::kStripRows / numerics::kScaleBlock;
  using Address = AddressCoordinates;
  return {4,
          {strip_bytes / 4, strips, Address::kLowExtent, Address::kHighExtent, 0},
          {strip_bytes, Address::kLowStride, Address::kHighStride, 0},
          {kStripScaleWords, WeightSet::kStrips, 1, 1, 0},
          false};
}

// Rows of NVFP4_V1: word, row, and the address.
constexpr TensorShape slab_rows(int64_t rows, int64_t columns) {
  const auto row_bytes = static_cast<uint64_t>(FragmentV1::row_bytes(columns));
  using Address = AddressCoordinates;
  return {
      4,
      {row_bytes / 4, static_cast<uint64_t>(rows), Address::kLowExtent, Address::kHighExtent, 0},
      {row_bytes, Address::kLowStride, Address::kHighStride, 0},
      {RowSet::kRowBytes / 4, kSetRows, 1, 1, 0},
      false};
}
static_assert(FragmentV1::row_bytes(kRowSetColumns) % AddressCoordinates::kLowStride == 0);
static_assert(RowSet::kRowBytes % TensorShape::kChunkBytes == 0);
static_assert(RowSet::kOwnBytes % TensorShape::kChunkBytes == RowSet::shift(1));

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A set of a tile on its way into shared memory, block after block; by one thread.
class StripLoads {
 public:
  static constexpr uint32_t kBytes = WeightSet::kBytes;  // of a block, zeroes counted

  // first: the set's first row in its slab.
  __device__ __forceinline__ StripLoads(const ProductParams& params, const TileEntry& entry,
                                        int set, int32_t first)
      : strip_(first / WeightSet::kStripRows),
        codes_(AddressCoordinates::of(entry.codes[set] - FragmentV2::codes(params.columns, first))),
        scales_(AddressCoordinates::of(entry.scales[set] -
                                       FragmentV2::scale_rows(params.columns, first))) {}

  __device__ __forceinline__ void load(const ProductParams& params, uint32_t to, int block,
                                       uint32_t barrier) const {
    tensor_load(to, params.maps.codes,
                {0, block * static_cast<int32_t>(kStripLines), strip_, codes_.low, codes_.high},
                barrier);
    tensor_load(to + WeightSet::kCodes, params.maps.scales,
                {block * static_cast<int32_t>(kStripScaleWords), strip_, scales_.low, scales_.high},
                barrier);
  }

 private:
  int32_t strip_;
  AddressCoordinates codes_, scales_;
};

// The same of NVFP4_V1. A slab may begin at any word: where that is no multiple of 16, a warp
// copies word by word, slowly.
class RowLoads {
 public:
  static constexpr uint32_t kBytes = RowSet::kBytes;

  __device__ __forceinline__ RowLoads(const ProductParams& params, const TileEntry& entry, int set,
                                      int32_t first)
      : row_(first),
        slab_(AddressCoordinates::of(entry.codes[set] - FragmentV1::codes(params.columns, first))) {
  }

  static __device__ __forceinline__ bool aligned(const TileEntry& entry, int set) {
    return reinterpret_cast<uintptr_t>(entry.codes[set]) % AddressCoordinates::kLowStride == 0;
  }

  __device__ __forceinline__ void load(const ProductParams& params, uint32_t to, int block,
                                       uint32_t barrier) const {
    const int begin = block * RowSet::kOwnBytes - static_cast<int>(RowSet::shift(block));
    tensor_load(to, params.maps.codes, {begin / 4, row_, slab_.low, slab_.high}, barrier);
  }

  // By a warp, which waits for it.
  static __device__ __forceinline__ void copy(const ProductParams& params, const TileEntry& entry,
                                              int set, uint32_t to, int block) {
    constexpr int kWords = RowSet::kOwnBytes / 4;
    const uint8_t* const from = entry.codes[set] + block * RowSet::kOwnBytes;
    const auto row_bytes = static_cast<uint32_t>(FragmentV1::row_bytes(params.columns));
#pragma unroll 4
    for (int i = thread_index_here() & 31; i < entry.outputs[set] * kWords; i += 32) {
      const int row = i / kWords, word = i - row * kWords;
      copy_async_4(to + RowSet::shift(block) + row * RowSet::kRowBytes + word * 4,
                   from + row * row_bytes + word * 4);
    }
    copy_async_commit();
    copy_async_wait<0>();
    copy_engine_fence();  // before it fills the place the next time
  }

 private:
  int32_t row_;
  AddressCoordinates slab_;
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace memra::cuda
