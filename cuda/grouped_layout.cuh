#pragma once

// How the intermediates of the grouped path lie in memory.
//
// Activations z: f16 [columns / 64][rows][64], a slab of 64 columns after the other. Inside, both
// the order of k and the place of 16-byte chunks are the tensor cores': a thread of a quad takes
// its 16 bytes of NVFP4_V2 codes as they come, low nibbles of a word and then the high ones, and z
// has k in the order that this makes; chunks are swizzled as 128-byte rows of shared memory are, so
// that plain bulk copies bring them in. A step is what one instruction takes, 16 of k.

#include <cstdint>

#include "numerics/platform.h"

namespace memra::cuda {

inline constexpr int kSlabColumns = 64;    // of a row of a slab: 128 bytes
inline constexpr int kBlockColumns = 128;  // permuted among themselves; 64 may be left at the end
inline constexpr int kChunkColumns = 8;    // 16 bytes
inline constexpr int kSlabSteps = 4;
inline constexpr int kStepColumns = 16;
inline constexpr int kStepRuns = 4;  // one for each thread of a quad
inline constexpr int kRunColumns = 4;

MEMRA_HD constexpr int64_t n_slabs(int64_t columns) {
  return columns / kSlabColumns;
}

// Whether the slab is alone in its block, as the last one of an odd number is.
MEMRA_HD constexpr bool is_lone_slab(int64_t columns, int64_t slab) {
  return slab % 2 == 0 && slab + 1 == n_slabs(columns);
}

// A step's columns are four runs of four neighbours: the first column of run `run`. A thread's V2
// word has 32 columns, or 16 where the block has one slab alone.
MEMRA_HD constexpr int64_t run_column(int64_t columns, int64_t slab, int step, int run) {
  const int64_t block = slab / 2 * kBlockColumns;
  const int in_half = 8 * (step & 1) + 4 * (step >> 1);
  if (is_lone_slab(columns, slab)) return block + 16 * run + in_half;
  return block + 32 * run + static_cast<int>(slab % 2) * 16 + in_half;
}

// Nibbles of four bytes decode in pairs: bytes 0 and 2, then 1 and 3.
MEMRA_HD constexpr int decode_order(int q) {
  return (q & 1) * 2 + (q >> 1);
}

// The column at `position`, 0 .. columns - 1, of the order of k.
MEMRA_HD constexpr int64_t column_at(int64_t columns, int64_t position) {
  const int in_slab = static_cast<int>(position % kSlabColumns);
  const int k = in_slab % kStepColumns;
  return run_column(columns, position / kSlabColumns, in_slab / kStepColumns, (k & 7) >> 1) +
         decode_order((k & 1) + 2 * (k >> 3));
}

// Where a slab of a row begins in z, and where a chunk of it lies from there; in f16 values.
MEMRA_HD constexpr int64_t slab_row(int64_t rows, int64_t slab, int64_t row) {
  return (slab * rows + row) * kSlabColumns;
}
MEMRA_HD constexpr int swizzled_chunk(int64_t row, int chunk) {
  return (chunk ^ static_cast<int>(row & 7)) * kChunkColumns;
}

// Of the value at a position.
MEMRA_HD constexpr int64_t z_index(int64_t rows, int64_t row, int64_t position) {
  const int in_slab = static_cast<int>(position % kSlabColumns);
  return slab_row(rows, position / kSlabColumns, row) +
         swizzled_chunk(row, in_slab / kChunkColumns) + in_slab % kChunkColumns;
}

}  // namespace memra::cuda
