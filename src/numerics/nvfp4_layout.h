// Where every byte of an NVFP4 slab lies. Kernels and validators take their constants from here.
//
// LayoutV1 and LayoutV2 have the same static members, so that code can be a template over them.
// A slab is one expert's matrix [rows, in] of one plane; `in` is the inner dimension, the columns.
// Dimensions are expected to be legal; nothing here checks. All index arithmetic is 64-bit.
#pragma once

#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

inline constexpr std::int64_t kRowMultiple = 8;
inline constexpr std::int64_t kColMultiple = 64;
// Keeps every product of two dimensions inside int64.
inline constexpr std::int64_t kMaxDim = 0x7FFFFFFF;

inline constexpr std::int64_t kScaleBlock = 16;      // values under one scale byte
inline constexpr std::int64_t kGroupValues = 32;     // values under one activation scale
inline constexpr std::int64_t kGroupCodeBytes = 16;  // two halves of 8 bytes
inline constexpr std::int64_t kGroupScaleBytes = 2;

// Block of 64 values.
inline constexpr std::int64_t kV1BlockValues = 64;
inline constexpr std::int64_t kV1BlockBytes = 36;
inline constexpr std::int64_t kV1BlockScaleBytes = 4;
inline constexpr std::int64_t kV1SlabAlignment = 4;

// Tile of 8 rows by 128 columns.
inline constexpr std::int64_t kV2TileRows = 8;
inline constexpr std::int64_t kV2TileColumns = 128;
inline constexpr std::int64_t kV2TileGroups = kV2TileColumns / kGroupValues;
inline constexpr std::int64_t kV2TileCodeBytes = kV2TileRows * kV2TileColumns / 2;
inline constexpr std::int64_t kV2TileScaleBytes = kV2TileRows * kV2TileColumns / kScaleBlock;
inline constexpr std::int64_t kV2SlabAlignment = 16;

MEMRA_HD constexpr bool rows_legal(std::int64_t rows) {
  return rows > 0 && rows <= kMaxDim && rows % kRowMultiple == 0;
}

MEMRA_HD constexpr bool columns_legal(std::int64_t in) {
  return in > 0 && in <= kMaxDim && in % kColMultiple == 0;
}

MEMRA_HD constexpr bool slab_dims_legal(std::int64_t rows, std::int64_t in) {
  return rows_legal(rows) && columns_legal(in);
}

// Rows [row_begin, row_begin + rows) and columns likewise, as slices of a slab are cut.
MEMRA_HD constexpr bool slice_legal(std::int64_t slab_rows, std::int64_t slab_in,
                                    std::int64_t row_begin, std::int64_t rows,
                                    std::int64_t column_begin, std::int64_t columns) {
  return slab_dims_legal(slab_rows, slab_in) && slab_dims_legal(rows, columns) && row_begin >= 0 &&
         row_begin % kRowMultiple == 0 && row_begin <= slab_rows - rows && column_begin >= 0 &&
         column_begin % kColMultiple == 0 && column_begin <= slab_in - columns;
}

MEMRA_HD constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Codes and scales of a slab; the same in both formats.
MEMRA_HD constexpr std::int64_t slab_bytes(std::int64_t rows, std::int64_t in) {
  return rows * (in / kV1BlockValues * kV1BlockBytes);
}

// The place of one code: bits [shift, shift + 4) of the byte at `byte`.
struct CodePlace {
  std::int64_t byte;
  std::int32_t shift;
};

// Inside the 16 bytes of a group both formats agree: value w of a half is in byte w % 8 of the
// half's eight, low nibble where w < 8.
MEMRA_HD constexpr std::int64_t code_byte_in_group(std::int64_t column) {
  return column / kScaleBlock % 2 * 8 + column % 8;
}

MEMRA_HD constexpr std::int32_t code_shift(std::int64_t column) {
  return column % kScaleBlock < 8 ? 0 : 4;
}

struct LayoutV1 {
  static constexpr std::int64_t kSlabAlignment = kV1SlabAlignment;

  static MEMRA_HD constexpr std::int64_t row_bytes(std::int64_t in) {
    return in / kV1BlockValues * kV1BlockBytes;
  }

  // The distance of experts in a bank; blocks are whole words, so no padding is needed.
  static MEMRA_HD constexpr std::int64_t expert_stride(std::int64_t rows, std::int64_t in) {
    return round_up(slab_bytes(rows, in), kSlabAlignment);
  }

  // The 16 code bytes of a group; aligned to 4.
  static MEMRA_HD constexpr std::int64_t group_codes([[maybe_unused]] std::int64_t rows,
                                                     std::int64_t in, std::int64_t row,
                                                     std::int64_t group) {
    return row * row_bytes(in) + group / 2 * kV1BlockBytes + kV1BlockScaleBytes +
           group % 2 * kGroupCodeBytes;
  }

  // The two scale bytes of a group.
  static MEMRA_HD constexpr std::int64_t group_scales([[maybe_unused]] std::int64_t rows,
                                                      std::int64_t in, std::int64_t row,
                                                      std::int64_t group) {
    return row * row_bytes(in) + group / 2 * kV1BlockBytes + group % 2 * kGroupScaleBytes;
  }

  // The scale byte of values 16 * block .. 16 * block + 15 of a row.
  static MEMRA_HD constexpr std::int64_t scale_byte(std::int64_t rows, std::int64_t in,
                                                    std::int64_t row, std::int64_t block) {
    return group_scales(rows, in, row, block / 2) + block % 2;
  }

  static MEMRA_HD constexpr CodePlace code_place(std::int64_t rows, std::int64_t in,
                                                 std::int64_t row, std::int64_t column) {
    return {group_codes(rows, in, row, column / kGroupValues) + code_byte_in_group(column),
            code_shift(column)};
  }
};

struct LayoutV2 {
  static constexpr std::int64_t kSlabAlignment = kV2SlabAlignment;

  // Tiles of a block of 8 rows, a half tile counted.
  static MEMRA_HD constexpr std::int64_t tiles(std::int64_t in) {
    return (in + kV2TileColumns - 1) / kV2TileColumns;
  }

  // Groups to a row of a tile: 4, or 2 in the half tile at the end.
  static MEMRA_HD constexpr std::int64_t tile_groups(std::int64_t in, std::int64_t tile) {
    return (tile + 1) * kV2TileColumns <= in ? kV2TileGroups : kV2TileGroups / 2;
  }

  static MEMRA_HD constexpr std::int64_t codes_bytes(std::int64_t rows, std::int64_t in) {
    return rows * (in / 2);
  }

  // Offset of the codes, and of the scales, of a block of 8 rows: one contiguous run each.
  static MEMRA_HD constexpr std::int64_t row_block_codes(std::int64_t in, std::int64_t row_block) {
    return row_block * (kV2TileRows * in / 2);
  }

  static MEMRA_HD constexpr std::int64_t row_block_scales(std::int64_t rows, std::int64_t in,
                                                          std::int64_t row_block) {
    return codes_bytes(rows, in) + row_block * (kV2TileRows * in / kScaleBlock);
  }

  static MEMRA_HD constexpr std::int64_t expert_stride(std::int64_t rows, std::int64_t in) {
    return round_up(slab_bytes(rows, in), kSlabAlignment);
  }

  // The 16 code bytes of a group; aligned to 16.
  static MEMRA_HD constexpr std::int64_t group_codes([[maybe_unused]] std::int64_t rows,
                                                     std::int64_t in, std::int64_t row,
                                                     std::int64_t group) {
    const std::int64_t tile = group / kV2TileGroups;
    return row_block_codes(in, row / kV2TileRows) + tile * kV2TileCodeBytes +
           slot(in, tile, row, group) * kGroupCodeBytes;
  }

  // The two scale bytes of a group; aligned to 2.
  static MEMRA_HD constexpr std::int64_t group_scales(std::int64_t rows, std::int64_t in,
                                                      std::int64_t row, std::int64_t group) {
    const std::int64_t tile = group / kV2TileGroups;
    return row_block_scales(rows, in, row / kV2TileRows) + tile * kV2TileScaleBytes +
           slot(in, tile, row, group) * kGroupScaleBytes;
  }

  static MEMRA_HD constexpr std::int64_t scale_byte(std::int64_t rows, std::int64_t in,
                                                    std::int64_t row, std::int64_t block) {
    return group_scales(rows, in, row, block / 2) + block % 2;
  }

  static MEMRA_HD constexpr CodePlace code_place(std::int64_t rows, std::int64_t in,
                                                 std::int64_t row, std::int64_t column) {
    return {group_codes(rows, in, row, column / kGroupValues) + code_byte_in_group(column),
            code_shift(column)};
  }

  // [row % 8][group % 4], in a full tile the lane of a warp that owns the group.
  static MEMRA_HD constexpr std::int64_t slot(std::int64_t in, std::int64_t tile, std::int64_t row,
                                              std::int64_t group) {
    return row % kV2TileRows * tile_groups(in, tile) + group % kV2TileGroups;
  }
};

}  // namespace memra::numerics
