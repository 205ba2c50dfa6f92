#pragma once

// The GEMM of the grouped path over vectors, whatever their width. An instruction set is a class
// `Simd`, local to a file that is compiled for it; see rows_simd.h. It has
//   Floats, kLanes      a vector of outputs
//   kVectors            vectors of a panel; kLanes * kVectors outputs, 8, 16 or 32
//   kTokens             tokens at once: kTokens * kVectors sums in registers
//   load, store, all(x), fma
//   decode<kPanel>, scales    see decode_half_plainly() and scales_plainly() below
//
// A panel is the decoded weights of some outputs, [k][outputs]: a lane is an output, so that its
// sum is one chain in the order of k, and no transposition is needed where results are stored.

#include <cstdint>

#include "cpu/grouped_common.h"
#include "cpu/grouped_kernels.h"
#include "numerics/e2m1.h"
#include "numerics/nvfp4_layout.h"
#include "numerics/ue4m3.h"

namespace memra::cpu {

namespace nv = memra::numerics;

// decode(): 16 columns, 8 code bytes, of 8 rows that lie `step` bytes apart, times the rows'
// scales, to panel[column * kPanel + row]. Here without vectors.
template <std::int64_t kPanel>
MEMRA_HD void decode_half_plainly(const std::uint8_t* codes, std::int64_t step, const float* scales,
                                  float* panel) {
  for (std::int64_t r = 0; r < nv::kRowMultiple; ++r) {
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::uint32_t byte = codes[r * step + i];
      panel[i * kPanel + r] = static_cast<float>(nv::e2m1_doubled(byte & 15u)) * scales[r];
      panel[(i + 8) * kPanel + r] = static_cast<float>(nv::e2m1_doubled(byte >> 4)) * scales[r];
    }
  }
}

// scales(): the two scales of 32 columns of such rows, halved, because codes come doubled.
MEMRA_HD void scales_plainly(const std::uint8_t* codes, std::int64_t step,
                             float (&scales)[nv::kGroupScaleBytes][nv::kRowMultiple]) {
  for (std::int64_t r = 0; r < nv::kRowMultiple; ++r) {
    for (std::int64_t half = 0; half < nv::kGroupScaleBytes; ++half)
      scales[half][r] = nv::ue4m3_decode(codes[r * step + half]) * 0.5f;
  }
}

template <class Simd>
struct GroupedVectors {
  using Floats = typename Simd::Floats;
  static constexpr std::int64_t kPanel = Simd::kLanes * Simd::kVectors;
  static constexpr std::int64_t kRows = nv::kRowMultiple;

  // 32 columns of a block of 8 rows. Within a block, in both layouts, rows are a constant distance
  // apart.
  template <class Layout>
  static MEMRA_HD void decode_group(const MultiplyTile& tile, std::int64_t row, std::int64_t group,
                                    float* panel) {
    const std::int64_t codes = Layout::group_codes(tile.rows, tile.in, row, group);
    const std::int64_t scales = Layout::group_scales(tile.rows, tile.in, row, group);
    const std::int64_t code_step = Layout::group_codes(tile.rows, tile.in, row + 1, group) - codes;
    const std::int64_t scale_step =
        Layout::group_scales(tile.rows, tile.in, row + 1, group) - scales;
    alignas(32) float scale[nv::kGroupScaleBytes][kRows];
    Simd::scales(tile.slab + scales, scale_step, scale);
    for (std::int64_t half = 0; half < nv::kGroupScaleBytes; ++half) {
      Simd::template decode<kPanel>(tile.slab + codes + half * nv::kGroupCodeBytes / 2, code_step,
                                    scale[half], panel + half * nv::kScaleBlock * kPanel);
    }
  }

  template <class Layout>
  static MEMRA_HD void decode_panel(const MultiplyTile& tile, std::int64_t row, float* panel) {
    for (std::int64_t r = 0; r < kPanel; r += kRows) {
      for (std::int64_t k = 0; k < tile.k_count; k += nv::kGroupValues) {
        decode_group<Layout>(tile, row + r, (tile.k_begin + k) / nv::kGroupValues,
                             panel + k * kPanel + r);
      }
    }
  }

  template <std::int64_t kTokens>
  static MEMRA_HD void multiply(const float* panel, const float* z, std::int64_t k_count,
                                float* acc) {
    Floats sums[kTokens][Simd::kVectors];
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t v = 0; v < Simd::kVectors; ++v)
        sums[t][v] = Simd::load(acc + t * kTileOutputs + v * Simd::kLanes);
    }
    for (std::int64_t k = 0; k < k_count; ++k) {
      Floats w[Simd::kVectors];
      for (std::int64_t v = 0; v < Simd::kVectors; ++v)
        w[v] = Simd::load(panel + k * kPanel + v * Simd::kLanes);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const Floats x = Simd::all(z[t * kTileDepth + k]);
        for (std::int64_t v = 0; v < Simd::kVectors; ++v)
          sums[t][v] = Simd::fma(w[v], x, sums[t][v]);
      }
    }
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t v = 0; v < Simd::kVectors; ++v)
        Simd::store(acc + t * kTileOutputs + v * Simd::kLanes, sums[t][v]);
    }
  }

  // The last tokens, fewer than Simd::kTokens.
  template <std::int64_t kTokens>
  static MEMRA_HD void multiply_rest(std::int64_t tokens, const float* panel, const float* z,
                                     std::int64_t k_count, float* acc) {
    if constexpr (kTokens > 0) {
      if (tokens == kTokens) return multiply<kTokens>(panel, z, k_count, acc);
      multiply_rest<kTokens - 1>(tokens, panel, z, k_count, acc);
    }
  }

  template <class Layout>
  static MEMRA_HD void run(const MultiplyTile& tile) {
    alignas(64) float panel[kTileDepth * kPanel];
    for (std::int64_t r = 0; r < tile.row_count; r += kPanel) {
      decode_panel<Layout>(tile, tile.row_begin + r, panel);
      std::int64_t t = 0;
      for (; t + Simd::kTokens <= tile.tokens; t += Simd::kTokens) {
        multiply<Simd::kTokens>(panel, tile.z + t * kTileDepth, tile.k_count,
                                tile.acc + t * kTileOutputs + r);
      }
      multiply_rest<Simd::kTokens - 1>(tile.tokens - t, panel, tile.z + t * kTileDepth,
                                       tile.k_count, tile.acc + t * kTileOutputs + r);
    }
  }
};

template <class Simd>
void grouped_multiply(const MultiplyTile& tile) {
  if (tile.format == MEMRA_NVFP4) return GroupedVectors<Simd>::template run<nv::LayoutV1>(tile);
  GroupedVectors<Simd>::template run<nv::LayoutV2>(tile);
}

template <class Simd>
std::int8_t grouped_narrow(const NarrowRun& run) {
  return narrow_loop(run);
}
template <class Simd>
void grouped_widen(const std::uint16_t* z, float factor, float* out, std::int64_t count) {
  widen_loop(z, factor, out, count);
}
template <class Simd>
void grouped_topk(const TopkRow& row) {
  topk_loop(row);
}

template <class Simd>
constexpr GroupedKernels make_grouped(const char* name) {
  return {name, grouped_multiply<Simd>, grouped_narrow<Simd>, grouped_widen<Simd>,
          grouped_topk<Simd>};
}

}  // namespace memra::cpu
