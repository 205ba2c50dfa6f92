#pragma once

// What the weight conversions share: slices, the walk over a bank, groups of 32 codes, vectors of 8
// values.

#include <algorithm>
#include <cstdint>

#include "launch.h"
#include "numerics/half.h"
#include "numerics/nvfp4_layout.h"
#include "numerics/ue4m3.h"
#include "ptx.cuh"
#include "weights_report.h"

namespace memra::cuda {

using numerics::LayoutV1;
using numerics::LayoutV2;

// ---- The part of every matrix that is converted

struct Part {
  int64_t source_rows, source_columns;
  int64_t row_begin, column_begin;
  int64_t rows, columns;
  int64_t n_experts;

  // Of the whole bank, for the report.
  __device__ int64_t scale_index(int64_t expert, int64_t row, int64_t group) const {
    return (expert * source_rows + row_begin + row) * (source_columns / numerics::kScaleBlock) +
           column_begin / numerics::kScaleBlock + group * 2;
  }
};

inline Part make_part(int64_t rows, int64_t columns, int64_t n_experts, const memra_slice& slice) {
  return Part{.source_rows = rows,
              .source_columns = columns,
              .row_begin = slice.row_begin,
              .column_begin = slice.column_begin,
              .rows = slice.row_count,
              .columns = slice.column_count,
              .n_experts = n_experts};
}

// ---- The walk: x over a block of 8 rows, y over the row blocks, z over the experts

inline constexpr int kConvertThreads = 256;
inline constexpr int64_t kMaxGridYZ = 65535;

inline Grid part_grid(const Part& part, int64_t items, int64_t items_per_block, dim3 threads) {
  const int64_t row_blocks = part.rows / numerics::kRowMultiple;
  const auto x = static_cast<unsigned>((items + items_per_block - 1) / items_per_block);
  const auto y = static_cast<unsigned>(std::min(row_blocks, kMaxGridYZ));
  const auto z = static_cast<unsigned>(std::min(part.n_experts, kMaxGridYZ));
  return Grid{dim3(x, y, z), threads};
}

// Groups of a block of 8 rows in the order of the slots of V2, so that a warp takes a tile.
inline Grid group_grid(const Part& part) {
  return part_grid(part, part.columns / numerics::kGroupValues * numerics::kV2TileRows,
                   kConvertThreads, kConvertThreads);
}

struct GroupPlace {
  int row;  // in the block of 8
  int group;
  bool exists;
};

__device__ inline GroupPlace group_place(const Part& part) {
  const int slot = static_cast<int>(blockIdx.x) * kConvertThreads + static_cast<int>(threadIdx.x);
  const int groups = static_cast<int>(part.columns / numerics::kGroupValues);
  const int tile = slot / 32;
  const int lane = slot % 32;
  const bool half = LayoutV2::tile_groups(part.columns, tile) != numerics::kV2TileGroups;
  const int row = half ? lane / 2 : lane / 4;
  const int group = tile * 4 + (half ? lane % 2 : lane % 4);
  return {row, group, slot < groups * 8};
}

// Units of 8 columns; a warp takes 32 units of a row, a block 8 rows.
inline constexpr int kUnitColumns = 8;

inline Grid unit_grid(const Part& part) {
  return part_grid(part, part.columns / kUnitColumns, 32, dim3(32, 8));
}

template <typename Body>
__device__ void for_each_row_block(const Part& part, Body&& body) {
  for (int64_t expert = blockIdx.z; expert < part.n_experts; expert += gridDim.z) {
    for (int64_t block = blockIdx.y; block < part.rows / numerics::kRowMultiple;
         block += gridDim.y) {
      body(expert, block * numerics::kRowMultiple);
    }
  }
}

// ---- Groups

struct GroupBits {
  uint32_t codes[4];  // in the order that both formats share
  uint32_t scales;    // two bytes
};

__device__ inline void store_group(LayoutV1, uint8_t* codes, uint8_t* scales,
                                   const GroupBits& bits) {
  auto* words = reinterpret_cast<uint32_t*>(codes);
  for (int i = 0; i < 4; ++i)
    words[i] = bits.codes[i];
  *reinterpret_cast<uint16_t*>(scales) = static_cast<uint16_t>(bits.scales);
}

__device__ inline void store_group(LayoutV2, uint8_t* codes, uint8_t* scales,
                                   const GroupBits& bits) {
  *reinterpret_cast<uint4*>(codes) =
      make_uint4(bits.codes[0], bits.codes[1], bits.codes[2], bits.codes[3]);
  *reinterpret_cast<uint16_t*>(scales) = static_cast<uint16_t>(bits.scales);
}

// Counts invalid codes among two scale bytes and returns what V2 stores for them; `index` is that
// of the first of the two.
__device__ inline uint32_t check_scales(uint32_t scales, int64_t index,
                                        memra_weight_report* report) {
  const uint32_t first = scales & 0xFFu;
  const uint32_t second = scales >> 8;
  const bool first_legal = numerics::ue4m3_is_legal(first);
  const bool second_legal = numerics::ue4m3_is_legal(second);
  if (report != nullptr && !(first_legal && second_legal)) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&report->invalid_scales),
              first_legal || second_legal ? 1ull : 2ull);
    atomicMin(reinterpret_cast<unsigned long long*>(&report->first_expert),
              static_cast<unsigned long long>(first_legal ? index + 1 : index));
  }
  return numerics::ue4m3_sanitize(first) | numerics::ue4m3_sanitize(second) << 8;
}

// ---- Units of 8 floats

// Whether rows of 8 elements begin at multiples of 16 bytes everywhere.
inline bool rows_aligned(const void* base, int64_t row_stride, int64_t stride, int64_t n_experts,
                         memra_dtype dtype) {
  const int64_t per_vector = dtype == MEMRA_F32 ? 4 : 8;
  return reinterpret_cast<uintptr_t>(base) % 16 == 0 && row_stride % per_vector == 0 &&
         (n_experts == 1 || stride % per_vector == 0);
}

template <typename Storage>
struct alignas(16) Unit {
  Storage values[kUnitColumns];
};

template <typename Storage>
__device__ Unit<Storage> load_unit(const Storage* p, bool aligned) {
  Unit<Storage> unit;
  if (aligned) {
    constexpr int kVectors = sizeof(unit) / 16;
    uint4 vectors[kVectors];
    for (int i = 0; i < kVectors; ++i)
      vectors[i] = reinterpret_cast<const uint4*>(p)[i];
    __builtin_memcpy(&unit, vectors, sizeof(unit));
  } else {
    for (int i = 0; i < kUnitColumns; ++i)
      unit.values[i] = p[i];
  }
  return unit;
}

template <typename Storage>
__device__ void store_unit(Storage* p, const Unit<Storage>& unit, bool aligned) {
  if (aligned) {
    constexpr int kVectors = sizeof(unit) / 16;
    uint4 vectors[kVectors];
    __builtin_memcpy(vectors, &unit, sizeof(unit));
    for (int i = 0; i < kVectors; ++i)
      reinterpret_cast<uint4*>(p)[i] = vectors[i];
  } else {
    for (int i = 0; i < kUnitColumns; ++i)
      p[i] = unit.values[i];
  }
}

}  // namespace memra::cuda
