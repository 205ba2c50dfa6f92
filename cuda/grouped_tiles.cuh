#pragma once

// How the rows of experts are cut into tiles for the tensor cores, and the list in which the tiles
// wait. A row here is a pair's, sorted by expert: a column of the product.
//
// The list is made on the device from the CSR of routing, widest tiles first, so that what is left
// at the end is small; tiles of one expert stay neighbours, because they read the same weights.

#include <cstdint>

#include "numerics/platform.h"

namespace memra::cuda {

// A tensor core takes rows by eights.
inline constexpr int kTileUnit = 8;
inline constexpr int kMaxTileUnits = 16;
inline constexpr int kWidePlaneUnits = 15;
inline constexpr int kNarrowTileUnits = 4;  // where experts have few rows
// Rows of weights of each of a tile's two sets.
inline constexpr int kSetRows = 128;

// An expert's rows in eights, dealt to as few tiles as will do, whose widths differ by one eight at
// most: `wide` tiles of units + 1, then the others of units.
struct TileCut {
  int32_t tiles;
  int32_t wide;
  int32_t units;
};

MEMRA_HD constexpr TileCut cut_rows(int32_t rows, int32_t max_units) {
  const int32_t eights = (rows + kTileUnit - 1) / kTileUnit;
  const int32_t tiles = (eights + max_units - 1) / max_units;
  if (tiles == 0) return {0, 0, 0};
  return {tiles, eights % tiles, eights / tiles};
}

// How many of a cut's tiles have this width, and the first of them.
struct TileRun {
  int32_t first;
  int32_t count;
};
MEMRA_HD constexpr TileRun tiles_of_width(const TileCut& cut, int32_t units) {
  if (units == cut.units + 1) return {0, cut.wide};
  if (units == cut.units) return {cut.wide, cut.tiles - cut.wide};
  return {0, 0};
}
MEMRA_HD constexpr int32_t first_row(const TileCut& cut, int32_t tile) {
  return kTileUnit * (tile * cut.units + (tile < cut.wide ? tile : cut.wide));
}

// One tile: `count` rows from `row` on, of an expert, as `units` eights.
struct RowTile {
  uint64_t word;

  static MEMRA_HD constexpr RowTile of(int64_t row, int32_t expert, int32_t count, int32_t units) {
    return {static_cast<uint64_t>(row) | static_cast<uint64_t>(expert) << 31 |
            static_cast<uint64_t>(count - 1) << 52 | static_cast<uint64_t>(units - 1) << 60};
  }
  MEMRA_HD constexpr int64_t row() const { return static_cast<int64_t>(word & 0x7FFFFFFF); }
  MEMRA_HD constexpr int32_t expert() const { return static_cast<int32_t>(word >> 31 & 0x1FFFFF); }
  MEMRA_HD constexpr int32_t count() const { return static_cast<int32_t>(word >> 52 & 0xFF) + 1; }
  MEMRA_HD constexpr int32_t units() const { return static_cast<int32_t>(word >> 60) + 1; }
};

// As a list names it: what the tables do not hold is one beyond them.
MEMRA_HD constexpr int32_t listed_expert(int32_t expert, int64_t n_experts) {
  return expert >= 0 && expert < n_experts ? expert : static_cast<int32_t>(n_experts);
}

// The head of a list; the tiles follow it.
struct TileList {
  int32_t n_tiles;
  int32_t next[3];  // of each product that takes from the list: what has been taken
};
inline constexpr uint64_t kTileListHead = 16;
static_assert(sizeof(TileList) == kTileListHead);

// An expert with rows has at least one tile, and one more for each full width.
MEMRA_HD constexpr int64_t most_tiles(int64_t rows, int64_t n_experts, int32_t max_units) {
  const int64_t active = rows < n_experts ? rows : n_experts;
  return active + rows / (static_cast<int64_t>(kTileUnit) * max_units);
}
MEMRA_HD constexpr uint64_t tile_list_bytes(int64_t rows, int64_t n_experts, int32_t max_units) {
  return kTileListHead + static_cast<uint64_t>(most_tiles(rows, n_experts, max_units)) * 8;
}

// Up to so many rows to an expert on average, tiles are narrow, and one list serves all products.
// Of wide tiles there are two lists.
inline constexpr int64_t kNarrowRows = 24;
MEMRA_HD constexpr uint64_t wide_list_bytes(int64_t rows, int64_t n_experts) {
  const uint64_t bytes = tile_list_bytes(rows, n_experts, kMaxTileUnits);
  return (bytes + kTileListHead - 1) / kTileListHead * kTileListHead;
}
// Whichever a call has, and rising with both: gate and up of two formats are narrow with any number
// of rows, and with fewer experts tiles may be wide.
MEMRA_HD constexpr uint64_t tile_plans_bytes(int64_t rows, int64_t n_experts) {
  const uint64_t narrow = tile_list_bytes(rows, n_experts, kNarrowTileUnits);
  const int64_t most = rows > 0 ? (rows - 1) / kNarrowRows : 0;
  const int64_t experts = n_experts < most ? n_experts : most;
  const uint64_t wide =
      wide_list_bytes(rows, experts) + tile_list_bytes(rows, experts, kWidePlaneUnits);
  return experts == 0 || narrow > wide ? narrow : wide;
}

}  // namespace memra::cuda
