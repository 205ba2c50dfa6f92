#pragma once

// What the kernels of the grouped products do with a tile's sums. Of lane 4 * g + t,
// sums[set][4 * j + 2 * other + e] is weight row Rows::row(g) + other * kDistance of the warp's 16,
// and row 8 * j + 2 * t + e of the tile.

#include "grouped_activation.cuh"
#include "grouped_pairs.cuh"
#include "grouped_shared.cuh"

namespace memra::cuda {

// Two neighbouring outputs of a row.
struct PlainSink {
  float* out;
  __device__ __forceinline__ void store(int64_t row, int64_t output, int64_t outputs, float a,
                                        float b) const {
    *reinterpret_cast<float2*>(out + row * outputs + output) =
        make_float2(numerics::canon(a), numerics::canon(b));
  }
};
struct PackedSink {
  uint32_t* out;
  __device__ __forceinline__ void store(int64_t row, int64_t output, int64_t outputs, float a,
                                        float b) const {
    out[(row * outputs + output) / 2] = pack_outputs(a, b);
  }
};

// Scales of a tile's rows: asked for before the product, in shared memory after it.
template <class Shared>
class RowScales {
 public:
  __device__ __forceinline__ RowScales(const ProductParams& params, const TilePlace& tile) {
    const int i = thread_index_here() & 127;
    if (i >= tile.count) {
      scale_ = 0.0f;
    } else if (params.zs != nullptr) {
      scale_ = params.zs[tile.row + i];
    } else {
      scale_ = row_scale(params.exponents[(tile.row + i) * params.exponent_stride]);
    }
  }
  // All of the warpgroup's threads; the next sync shows them to each other.
  __device__ __forceinline__ void store(const SharedView& shared) const {
    const int i = thread_index_here() & 127;
    if (i < Shared::kColumns) store_shared(address(shared) + 4 * i, __fmul_rn(scale_, kWeightUnit));
  }
  static __device__ __forceinline__ uint32_t address(const SharedView& shared) {
    return shared.address + Shared::kRowScales + warpgroup() * Shared::kColumns * 4;
  }

 private:
  float scale_;
};

// Scale and bias of one weight row.
struct OutputRow {
  float scale, bias;
  bool biased;

  __device__ __forceinline__ OutputRow(const ExpertPlane& plane, int32_t expert, int64_t output,
                                       bool there) {
    const float* const biases = there && plane.bias != nullptr ? plane.bias[expert] : nullptr;
    scale = there && plane.scales != nullptr ? plane.scales[expert] : 1.0f;
    biased = biases != nullptr;
    bias = biased ? biases[output] : 0.0f;
  }
  __device__ __forceinline__ float operator()(float dot) const {
    return numerics::plane_value(dot, scale, biased, bias);
  }
};

// ---- One plane

template <class Shared>
struct PlaneTile {
  const ProductParams& params;
  PlaneOut out;

  template <int kColumns, class Consumer>
  __device__ __forceinline__ void run(Consumer& consumer, const SharedView& shared) const {
    const TilePlace tile(consumer.tile(shared));
    const RowScales<Shared> scales(params, tile);
    float sums[2][kColumns / 2];
    consumer.template multiply<kColumns>(shared, tile, sums);
    warpgroup_sync();
    scales.store(shared);
    warpgroup_sync();
    if (out.packed != nullptr) {
      store(PackedSink{out.packed}, shared, tile, sums);
    } else {
      store(PlainSink{out.plain}, shared, tile, sums);
    }
  }

 private:
  template <class Sink, int kSums>
  __device__ __forceinline__ void store(const Sink& sink, const SharedView& shared,
                                        const TilePlace& tile,
                                        const float (&sums)[2][kSums]) const {
    const int lane = thread_index_here() & 31, g = lane >> 2, t = lane & 3;
    const int warp = thread_index_here() >> 5;
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      const int64_t output =
          tile.output + set * kSetRows + warp_row<false>(warp, kSetRows) + AdjacentRows::row(g);
      if (output >= params.outputs) continue;
      const OutputRow first(params.planes[0], tile.expert, output, tile.live);
      const OutputRow second(params.planes[0], tile.expert, output + 1, tile.live);
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int row = 8 * j + 2 * t + e;
          if (row >= tile.count) continue;
          const float scale =
              __uint_as_float(load_shared(RowScales<Shared>::address(shared) + 4 * row));
          const float a = first(__fmul_rn(sums[set][4 * j + e], scale));
          const float b = second(__fmul_rn(sums[set][4 * j + 2 + e], scale));
          sink.store(tile.row + row, output, params.outputs, tile.live ? a : 0.0f,
                     tile.live ? b : 0.0f);
        }
    }
  }
};

// ---- Gate and up

template <class Shared>
struct GateUpTile {
  const ProductParams& params;
  ActivationOut out;

  template <int kColumns, class Consumer>
  __device__ __forceinline__ void run(Consumer& consumer, const SharedView& shared) const {
    const TilePlace tile(consumer.tile(shared));
    const RowScales<Shared> scales(params, tile);
    float sums[2][kColumns / 2];
    consumer.template multiply<kColumns>(shared, tile, sums);
    scales.store(shared);
    // Of a half tile the second warpgroup has nothing.
    if (warpgroup() * 64 < tile.outputs) store_rows<0>(shared, tile, sums);
  }

 private:
  static constexpr int kChunks = 8;  // of 8 outputs, in a slab of 64

  // Rows kFirst .. kFirst + 31 of the tile; one pass after another, because a loop with barriers in
  // it would not be unrolled and the sums would have to lie in memory.
  template <int kFirst, int kSums>
  __device__ __forceinline__ void store_rows(const SharedView& shared, const TilePlace& tile,
                                             const float (&sums)[2][kSums]) const {
    constexpr int kRows =
        2 * kSums - kFirst < Shared::kStageRows ? 2 * kSums - kFirst : Shared::kStageRows;
    warpgroup_sync();
    activate_rows<kFirst, kRows>(shared, tile, sums);
    warpgroup_sync();
    narrow_rows<kFirst, kRows>(shared, tile);
    if constexpr (kFirst + kRows < 2 * kSums) store_rows<kFirst + kRows>(shared, tile, sums);
  }

  static __device__ __forceinline__ uint32_t stage(const SharedView& shared) {
    return shared.address + Shared::kStage + warpgroup() * Shared::kStageBytes;
  }
  // Of a row of the stage: two outputs of a chunk, of a quarter of it. Rows lie a multiple of all
  // banks apart; the quarters trade places so that rows 2 and 4 apart do not meet.
  static __device__ __forceinline__ uint32_t pair_offset(int row, int chunk, int quarter) {
    return row * 256 + (chunk * 4 + (quarter ^ (row >> 1 & 3))) * 8;
  }

  template <int kFirst, int kRows, int kSums>
  __device__ __forceinline__ void activate_rows(const SharedView& shared, const TilePlace& tile,
                                                const float (&sums)[2][kSums]) const {
    const int lane = thread_index_here() & 31, g = lane >> 2, t = lane & 3;
    const int warp = thread_index_here() >> 5;
    const int64_t output =
        tile.output + warp_row<true>(warp, tile.outputs) + ActivationRows::row(g);
    const ActivationForm form(out.activation, out.params);
    const OutputRow gate[2] = {
        OutputRow(params.planes[0], tile.expert, output, tile.live),
        OutputRow(params.planes[0], tile.expert, output + ActivationRows::kDistance, tile.live)};
    const OutputRow up[2] = {
        OutputRow(params.planes[1], tile.expert, output, tile.live),
        OutputRow(params.planes[1], tile.expert, output + ActivationRows::kDistance, tile.live)};
#pragma unroll
    for (int j = kFirst / 8; j < (kFirst + kRows) / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * j - kFirst + 2 * t + e;
        const float scale =
            __uint_as_float(load_shared(RowScales<Shared>::address(shared) + 4 * (kFirst + row)));
        float y[2];
#pragma unroll
        for (int other = 0; other < 2; ++other)
          y[other] = form(gate[other](__fmul_rn(sums[0][4 * j + 2 * other + e], scale)),
                          up[other](__fmul_rn(sums[1][4 * j + 2 * other + e], scale)));
        store_shared(stage(shared) + pair_offset(row, g, warp & 3), y[0], y[1]);
      }
  }

  template <int kFirst, int kRows>
  __device__ __forceinline__ void narrow_rows(const SharedView& shared,
                                              const TilePlace& tile) const {
    const int64_t slab = tile.output / kSlabColumns + warpgroup();
    const int64_t slabs = params.outputs / kSlabColumns;
#pragma unroll
    for (int i = thread_index_here() & 127; i < kRows * kChunks; i += 128) {
      const int row = i / kChunks, chunk = i % kChunks;
      float y[8];
      uint32_t amax = 0;
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        const float2 pair = load_shared_f32x2(stage(shared) + pair_offset(row, chunk, quarter));
        y[2 * quarter] = pair.x;
        y[2 * quarter + 1] = pair.y;
        amax = max(amax, max(numerics::magnitude_bits(pair.x), numerics::magnitude_bits(pair.y)));
      }
#pragma unroll
      for (int distance = 1; distance < kChunks; distance *= 2)
        amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, distance));
      if (kFirst + row >= tile.count) continue;
      const int32_t exponent = grid_exponent(amax);
      const float factor = numerics::power_of_two(-exponent);
      uint32_t halves[4];
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter)
        halves[quarter] =
            f16_pair(__fmul_rn(y[2 * quarter], factor), __fmul_rn(y[2 * quarter + 1], factor));
      const int64_t at = tile.row + kFirst + row;
      uint16_t* const to =
          out.act + (slab * params.rows + at) * kSlabColumns + (chunk ^ (at & 7)) * 8;
      *reinterpret_cast<uint4*>(to) = make_uint4(halves[0], halves[1], halves[2], halves[3]);
      if (chunk == 0) out.exponents[at * slabs + slab] = part_exponent(exponent, amax);
    }
  }
};

}  // namespace memra::cuda
