#pragma once

// Outputs of gate and up: the activation, as rows of the next product. Of experts that have
// weights, for routing gives others no rows.

#include "grouped_outputs.cuh"
#include "grouped_pairs.cuh"

namespace memra::cuda {

template <class Shared>
struct GateUpTile {
  const ProductParams& params;
  ActivationOut out;

  template <int kColumns, class Consumer>
  __device__ __forceinline__ void run(Consumer& consumer, const SharedView& shared) const {
    const TileEntry& entry = consumer.tile(shared);
    RowScales<Shared> scales;
    scales.ask(params, entry);
    float sums[2][kColumns / 2];
    consumer.template multiply<kColumns>(shared, entry, sums);
    const TilePlace tile(entry);
    scales.store(shared);
    // Of a half tile the second warpgroup has nothing.
    if (warpgroup() * 64 >= tile.outputs) return;
    const int64_t output = tile.output + warp_row<true>(thread_index_here() >> 5, tile.outputs) +
                           ActivationRows::row((thread_index_here() & 31) >> 2);
    store_units<0>(shared, tile, Planes(entry, output), sums);
  }

 private:
  static constexpr int kChunks = 8;  // of 8 outputs, in a slab of 64
  static constexpr int kPassUnits = Shared::kStageRows / kTileUnit;
  static constexpr int kOwners = 8;  // lanes with the same t
  static_assert(kPassUnits <= kOwners);
  static constexpr unsigned kAllLanes = 0xFFFFFFFFu;

  // Of a lane's two outputs.
  struct Planes {
    OutputRow gate[2], up[2];
    __device__ __forceinline__ Planes(const TileEntry& entry, int64_t output)
        : gate{OutputRow(entry, 0, output, true),
               OutputRow(entry, 0, output + ActivationRows::kDistance, true)},
          up{OutputRow(entry, 1, output, true),
             OutputRow(entry, 1, output + ActivationRows::kDistance, true)} {}
  };

  // Eights of rows from kFirst on; one pass after another, because a loop with barriers in it would
  // not be unrolled and the sums would have to lie in memory.
  template <int kFirst, int kSums>
  __device__ __forceinline__ void store_units(const SharedView& shared, const TilePlace& tile,
                                              const Planes& planes,
                                              const float (&sums)[2][kSums]) const {
    constexpr int kLeft = kSums / 4 - kFirst, kCount = kLeft < kPassUnits ? kLeft : kPassUnits;
    warpgroup_sync();
    activate<kFirst, kCount>(shared, tile, planes, sums);
    warpgroup_sync();
    copy_out<kFirst, kCount>(shared, tile);
    if constexpr (kCount < kLeft) store_units<kFirst + kCount>(shared, tile, planes, sums);
  }

  static __device__ __forceinline__ uint32_t stage(const SharedView& shared) {
    return shared.address + Shared::kStage + warpgroup() * Shared::kStageBytes;
  }
  // Of a row of the stage: two outputs of a chunk, of a quarter of it. Rows lie a multiple of all
  // banks apart; the quarters trade places so that rows 2 and 4 apart do not meet.
  static __device__ __forceinline__ uint32_t pair_offset(int row, int chunk, int quarter) {
    return row * (kChunks * 16) + chunk * 16 + (quarter ^ (row >> 1 & 3)) * 4;
  }

  template <int kFirst, int kCount, int kSums>
  __device__ __forceinline__ void activate(const SharedView& shared, const TilePlace& tile,
                                           const Planes& planes,
                                           const float (&sums)[2][kSums]) const {
    const int lane = thread_index_here() & 31, g = lane >> 2, t = lane & 3;
    const int quarter = thread_index_here() >> 5 & 3;
    const ActivationForm form(out.activation, out.params);
    float y[kCount][2][2];           // unit, row, output
    uint32_t largest[kOwners] = {};  // magnitudes of a unit's two rows
#pragma unroll
    for (int unit = 0; unit < kCount; ++unit) {
      const int j = kFirst + unit;
      const float2 scales =
          load_shared_f32x2(RowScales<Shared>::address(shared) + 4 * (kTileUnit * j + 2 * t));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float scale = e == 0 ? scales.x : scales.y;
#pragma unroll
        for (int other = 0; other < 2; ++other)
          y[unit][e][other] =
              form(planes.gate[other](__fmul_rn(sums[0][4 * j + 2 * other + e], scale)),
                   planes.up[other](__fmul_rn(sums[1][4 * j + 2 * other + e], scale)));
      }
      largest[unit] = upper_halves(larger_magnitude(y[unit][0][0], y[unit][0][1]),
                                   larger_magnitude(y[unit][1][0], y[unit][1][1]));
    }
    const uint32_t own = largest_of_unit(largest, g);
    const PartExponent exponents[2] = {PartExponent(own & 0xFFFFu), PartExponent(own >> 16)};
    const int64_t part = (tile.output / kSlabColumns + warpgroup()) * kSlabParts + quarter;
    const int row = kTileUnit * (kFirst + g) + 2 * t;
    int8_t* const kept = out.exponents + part * params.rows + tile.row + row;
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (g < kCount && row + e < tile.count) kept[e] = exponents[e].kept;
    const uint32_t own_factors = exponents[0].factor | exponents[1].factor << 16;
#pragma unroll
    for (int unit = 0; unit < kCount; ++unit) {
      const uint32_t factors = __shfl_sync(kAllLanes, own_factors, 4 * unit + t);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float factor = __uint_as_float(e == 0 ? factors << 16 : factors & 0xFFFF0000u);
        store_shared(stage(shared) + pair_offset(kTileUnit * unit + 2 * t + e, g, quarter),
                     f16_pair(__fmul_rn(y[unit][e][0], factor), __fmul_rn(y[unit][e][1], factor)));
      }
    }
  }

  // Of each unit the largest over the lanes with the same t; lane 4 * g + t has unit g's.
  static __device__ __forceinline__ uint32_t largest_of_unit(uint32_t (&largest)[kOwners], int g) {
#pragma unroll
    for (int half = kOwners / 2; half != 0; half /= 2) {
      const bool upper = (g & half) != 0;
#pragma unroll
      for (int unit = 0; unit < half; ++unit) {
        const uint32_t given = upper ? largest[unit] : largest[unit + half];
        const uint32_t kept = upper ? largest[unit + half] : largest[unit];
        largest[unit] = max_u16x2(kept, __shfl_xor_sync(kAllLanes, given, 4 * half));
      }
    }
    return largest[0];
  }

  template <int kFirst, int kCount>
  __device__ __forceinline__ void copy_out(const SharedView& shared, const TilePlace& tile) const {
    constexpr int kRows = 128 / kChunks;  // at once
    const int first = (thread_index_here() & 127) / kChunks, chunk = thread_index_here() % kChunks;
    const int64_t slab = tile.output / kSlabColumns + warpgroup();
    const int64_t at = tile.row + kTileUnit * kFirst + first;
    uint16_t* const to = out.act + slab_row(params.rows, slab, at) + swizzled_chunk(at, chunk);
    const int left = tile.count - kTileUnit * kFirst - first;
#pragma unroll
    for (int row = 0; row < kTileUnit * kCount; row += kRows) {
      if (row >= left) break;
      uint32_t pairs[4];
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter)
        pairs[quarter] =
            load_shared(stage(shared) + pair_offset(first, chunk, quarter) + row * (kChunks * 16));
      *reinterpret_cast<uint4*>(to + row * kSlabColumns) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
};

}  // namespace memra::cuda
