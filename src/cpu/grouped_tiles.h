#pragma once

// The GEMM of the grouped path: rows of f16 activations, tiles of experts, and the loop over k that
// both stages of a layer and the stage entry share.

#include <algorithm>
#include <cstdint>

#include "cpu/grouped_kernels.h"
#include "cpu/thread_pool.h"
#include "numerics/f16_rows.h"

namespace memra::cpu {

// Rows of z, and what they were divided by: one f32 a row, or exponents, one a row or one to a
// block of columns. The row that a pair takes may be another one than the pair's.
struct F16Rows {
  static constexpr std::int64_t kBlock = 64;

  const std::uint16_t* z;
  std::int64_t columns;
  const float* zs = nullptr;               // [rows], or null:
  const std::int8_t* exponents = nullptr;  // [rows, exponents_per_row]
  std::int64_t exponents_per_row = 1;      // or columns / kBlock
  const std::int32_t* index = nullptr;     // row r is row index[r] / top_k; or null
  std::int64_t top_k = 1;

  std::int64_t source(std::int64_t row) const {
    return index != nullptr ? index[row] / top_k : row;
  }
  // Of a source row: the largest exponent, or kNotFinite if there is any.
  std::int32_t exponent(std::int64_t source_row) const;
  float scale(std::int64_t row) const;
  // Columns [begin, begin + count) of `rows` rows, divided by their scale(), to [row][kTileDepth].
  void widen(const GroupedKernels& kernels, std::int64_t first_row, std::int64_t rows,
             std::int64_t begin, std::int64_t count, float* out) const;
};

// Which rows belong to which expert: the outputs of memra_moe_route, or a caller's own.
struct ExpertRows {
  const std::int32_t* n_active;
  const std::int32_t* active_experts;
  const std::int32_t* offsets;
  std::int64_t n_experts;
  std::int64_t rows;  // offsets are cut there

  std::int64_t active() const { return std::clamp<std::int64_t>(*n_active, 0, n_experts); }
  std::int64_t begin(std::int64_t i) const { return std::clamp<std::int64_t>(offsets[i], 0, rows); }
};

// Rows of one expert, by outputs.
struct Tile {
  std::int64_t expert;  // as active_experts has it
  std::int64_t row, rows;
  std::int64_t output, outputs;
};

// One plane of a GEMM on a tile.
struct TilePlane {
  const std::uint8_t* slab;
  memra_format format;
  std::int64_t slab_rows;
};

// Calls body(tile) for every tile of outputs [0, outputs) of all experts with rows.
template <class Body>
void for_tiles(const ExpertRows& experts, std::int64_t outputs, ThreadPool& pool,
               const Body& body) {
  // Experts at a time: their tiles are counted on the stack.
  constexpr std::int64_t kBatch = 256;
  const std::int64_t output_tiles = (outputs + kTileOutputs - 1) / kTileOutputs;
  const std::int64_t active = experts.active();
  for (std::int64_t first = 0; first < active; first += kBatch) {
    const std::int64_t count = std::min(kBatch, active - first);
    std::int64_t ends[kBatch];  // of each expert's row tiles
    std::int64_t tiles = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t rows = experts.begin(first + i + 1) - experts.begin(first + i);
      tiles += std::max<std::int64_t>(0, (rows + kTileTokens - 1) / kTileTokens);
      ends[i] = tiles;
    }
    pool.parallel_for(tiles * output_tiles, [&](std::int64_t unit) {
      // Tiles of the same weights come together: these are in cache after the first.
      const std::int64_t i = std::upper_bound(ends, ends + count, unit / output_tiles) - ends;
      const std::int64_t row_tiles_before = i > 0 ? ends[i - 1] : 0;
      const std::int64_t row_tiles = ends[i] - row_tiles_before;
      const std::int64_t place = unit - row_tiles_before * output_tiles;
      const std::int64_t begin = experts.begin(first + i), end = experts.begin(first + i + 1);
      const std::int64_t row = begin + place % row_tiles * kTileTokens;
      const std::int64_t output = place / row_tiles * kTileOutputs;
      body(Tile{experts.active_experts[first + i], row, std::min(kTileTokens, end - row), output,
                std::min(kTileOutputs, outputs - output)});
    });
  }
}

// Sums of a tile for some planes of one shape: acc[plane][row][output].
template <std::int64_t kPlanes>
class TileSums {
 public:
  // Outputs of the slabs from `first_output` on; the tile's own are counted from there.
  void compute(const GroupedKernels& kernels, const F16Rows& x, const Tile& tile,
               const TilePlane (&planes)[kPlanes], std::int64_t first_output) {
    std::fill_n(&acc_[0][0], kPlanes * kTileTokens * kTileOutputs, 0.0f);
    for (std::int64_t k = 0; k < x.columns; k += kTileDepth) {
      const std::int64_t k_count = std::min(kTileDepth, x.columns - k);
      x.widen(kernels, tile.row, tile.rows, k, k_count, z_);
      for (std::int64_t p = 0; p < kPlanes; ++p) {
        kernels.multiply({planes[p].slab, planes[p].format, planes[p].slab_rows, x.columns,
                          first_output + tile.output, tile.outputs, k, k_count, z_, tile.rows,
                          acc_[p]});
      }
    }
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float scale = x.scale(tile.row + r);
      for (std::int64_t p = 0; p < kPlanes; ++p) {
        float* const sums = acc_[p] + r * kTileOutputs;
        for (std::int64_t i = 0; i < tile.outputs; ++i)
          sums[i] = numerics::mul(sums[i], scale);
      }
    }
  }

  const float* row(std::int64_t plane, std::int64_t r) const {
    return acc_[plane] + r * kTileOutputs;
  }

 private:
  alignas(64) float z_[kTileTokens * kTileDepth];
  alignas(64) float acc_[kPlanes][kTileTokens * kTileOutputs];
};

}  // namespace memra::cpu
