#pragma once

// What the kernels of the grouped products do with a tile's sums. Of lane 4 * g + t,
// sums[set][4 * j + 2 * other + e] is weight row Rows::row(g) + other * kDistance of the warp's 16,
// and row 8 * j + 2 * t + e of the tile.

#include "grouped_activation.cuh"
#include "grouped_pairs.cuh"
#include "grouped_shared.cuh"

namespace memra::cuda {

// Scales of a tile's rows: asked for before the product, in shared memory after it.
template <class Shared>
class RowScales {
 public:
  __device__ __forceinline__ RowScales(const ProductParams& params, const TileEntry& tile) {
    const int i = thread_index_here() & 127;
    if (i >= tile.count) {
      read_ = 0;
    } else if (params.zs != nullptr) {
      read_ = numerics::float_bits(params.zs[tile.row + i]);
    } else {
      read_ = static_cast<uint32_t>(params.exponents[(tile.row + i) * params.exponent_stride]);
    }
  }
  // All of the warpgroup's threads; the next sync shows them to each other.
  __device__ __forceinline__ void store(const ProductParams& params,
                                        const SharedView& shared) const {
    const int i = thread_index_here() & 127;
    const float scale =
        params.zs != nullptr ? numerics::bits_float(read_) : row_scale(static_cast<int32_t>(read_));
    if (i < Shared::kColumns) store_shared(address(shared) + 4 * i, __fmul_rn(scale, kWeightUnit));
  }
  static __device__ __forceinline__ uint32_t address(const SharedView& shared) {
    return shared.address + Shared::kRowScales + warpgroup() * Shared::kColumns * 4;
  }

 private:
  uint32_t read_;  // as it is in memory: what would be made of it now would wait for it now
};

// Scale and bias of one weight row. No bias is the zero whose addition changes nothing.
struct OutputRow {
  float scale, bias;

  __device__ __forceinline__ OutputRow(const TileEntry& entry, int set, int64_t output, bool there)
      : scale(entry.plane_scales[set]),
        bias(there && entry.bias[set] != nullptr ? entry.bias[set][output] : -0.0f) {}
  __device__ __forceinline__ float operator()(float dot) const {
    return numerics::plane_value(dot, scale, true, bias);
  }
};

// ---- One plane

// Two neighbouring outputs of a row, at their place.
struct PlainSink {
  static constexpr int kOutputBytes = 4;
  OutputRow first, second;

  __device__ __forceinline__ PlainSink(const TileEntry& entry, int set, int64_t output, bool there)
      : first(entry, set, output, there), second(entry, set, output + 1, there) {}
  __device__ __forceinline__ void store(bool wanted, uint8_t* to, float a, float b) const {
    store_global_if(wanted, to, numerics::canon(first(a)), numerics::canon(second(b)));
  }
};
// Before scale and bias, which belong to the sum over slots.
struct PackedSink {
  static constexpr int kOutputBytes = 2;

  __device__ __forceinline__ PackedSink(const TileEntry& /*entry*/, int /*set*/, int64_t /*output*/,
                                        bool /*there*/) {}
  __device__ __forceinline__ void store(bool wanted, uint8_t* to, float a, float b) const {
    store_global_if(wanted, to, pack_outputs(a, b));
  }
};

template <class Shared>
struct PlaneTile {
  const ProductParams& params;
  PlaneOut out;

  template <int kColumns, class Consumer>
  __device__ __forceinline__ void run(Consumer& consumer, const SharedView& shared) const {
    const TileEntry& entry = consumer.tile(shared);
    const RowScales<Shared> scales(params, entry);
    float sums[2][kColumns / 2];
    consumer.template multiply<kColumns>(shared, entry, sums);
    const TilePlace tile(entry);
    warpgroup_sync();
    scales.store(params, shared);
    warpgroup_sync();
    if (out.packed != nullptr) {
      store<PackedSink>(out.packed, shared, tile, entry, sums);
    } else {
      store<PlainSink>(out.plain, shared, tile, entry, sums);
    }
  }

 private:
  template <class Sink, int kSums>
  __device__ __forceinline__ void store(void* outputs, const SharedView& shared,
                                        const TilePlace& tile, const TileEntry& entry,
                                        const float (&sums)[2][kSums]) const {
    const int lane = thread_index_here() & 31, g = lane >> 2, t = lane & 3;
    const int64_t output =
        tile.output + warp_row<false>(thread_index_here() >> 5, kSetRows) + AdjacentRows::row(g);
    const bool there[2] = {output < params.outputs, output + kSetRows < params.outputs};
    const Sink sinks[2] = {Sink(entry, 0, output, there[0] && tile.live),
                           Sink(entry, 1, output + kSetRows, there[1] && tile.live)};
    const auto row_bytes = static_cast<uint32_t>(params.outputs) * Sink::kOutputBytes;
    uint8_t* const first_row = static_cast<uint8_t*>(outputs) +
                               static_cast<uint64_t>(tile.row + 2 * t) * row_bytes +
                               output * Sink::kOutputBytes;
    const int rows = tile.count - 2 * t;
    if (!tile.live) {
      store_zeroes<Sink>(first_row, row_bytes, rows, there);
      return;
    }
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      const float2 scales =
          load_shared_f32x2(RowScales<Shared>::address(shared) + 4 * (8 * j + 2 * t));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float scale = e == 0 ? scales.x : scales.y;
        uint8_t* const to = first_row + static_cast<uint64_t>(row_bytes) * (8 * j + e);
#pragma unroll
        for (int set = 0; set < 2; ++set) {
          const float a = __fmul_rn(sums[set][4 * j + e], scale);
          const float b = __fmul_rn(sums[set][4 * j + 2 + e], scale);
          sinks[set].store(8 * j + e < rows && there[set], to + set * kSetRows * Sink::kOutputBytes,
                           a, b);
        }
      }
    }
  }

  template <class Sink>
  static __device__ __forceinline__ void store_zeroes(uint8_t* to, uint32_t row_bytes, int rows,
                                                      const bool (&there)[2]) {
#pragma unroll 1
    for (int row = 0; row < rows; row += row % 2 == 0 ? 1 : 7) {
      uint8_t* const at = to + static_cast<uint64_t>(row_bytes) * row;
#pragma unroll
      for (int set = 0; set < 2; ++set)
        if (there[set]) store_zero(at + set * kSetRows * Sink::kOutputBytes, Sink::kOutputBytes);
    }
  }
  // Two outputs.
  static __device__ __forceinline__ void store_zero(uint8_t* to, int output_bytes) {
#pragma unroll
    for (int i = 0; i < 2 * output_bytes; i += 4)
      *reinterpret_cast<uint32_t*>(to + i) = 0;
  }
};

// ---- Gate and up: of experts that have weights, for routing gives others no rows

template <class Shared>
struct GateUpTile {
  const ProductParams& params;
  ActivationOut out;

  template <int kColumns, class Consumer>
  __device__ __forceinline__ void run(Consumer& consumer, const SharedView& shared) const {
    const TileEntry& entry = consumer.tile(shared);
    const RowScales<Shared> scales(params, entry);
    float sums[2][kColumns / 2];
    consumer.template multiply<kColumns>(shared, entry, sums);
    const TilePlace tile(entry);
    scales.store(params, shared);
    // Of a half tile the second warpgroup has nothing.
    if (warpgroup() * 64 >= tile.outputs) return;
    const int64_t output = tile.output + warp_row<true>(thread_index_here() >> 5, tile.outputs) +
                           ActivationRows::row((thread_index_here() & 31) >> 2);
    store_rows<0>(shared, tile, Planes(entry, output), sums);
  }

 private:
  static constexpr int kChunks = 8;  // of 8 outputs, in a slab of 64

  // Of a lane's two outputs.
  struct Planes {
    OutputRow gate[2], up[2];
    __device__ __forceinline__ Planes(const TileEntry& entry, int64_t output)
        : gate{OutputRow(entry, 0, output, true),
               OutputRow(entry, 0, output + ActivationRows::kDistance, true)},
          up{OutputRow(entry, 1, output, true),
             OutputRow(entry, 1, output + ActivationRows::kDistance, true)} {}
  };

  // Rows kFirst .. kFirst + 31 of the tile; one pass after another, because a loop with barriers in
  // it would not be unrolled and the sums would have to lie in memory.
  template <int kFirst, int kSums>
  __device__ __forceinline__ void store_rows(const SharedView& shared, const TilePlace& tile,
                                             const Planes& planes,
                                             const float (&sums)[2][kSums]) const {
    constexpr int kRows =
        2 * kSums - kFirst < Shared::kStageRows ? 2 * kSums - kFirst : Shared::kStageRows;
    warpgroup_sync();
    activate_rows<kFirst, kRows>(shared, planes, sums);
    warpgroup_sync();
    narrow_rows<kFirst, kRows>(shared, tile);
    if constexpr (kFirst + kRows < 2 * kSums)
      store_rows<kFirst + kRows>(shared, tile, planes, sums);
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
  __device__ __forceinline__ void activate_rows(const SharedView& shared, const Planes& planes,
                                                const float (&sums)[2][kSums]) const {
    const int lane = thread_index_here() & 31, g = lane >> 2, t = lane & 3;
    const int warp = thread_index_here() >> 5;
    const ActivationForm form(out.activation, out.params);
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
          y[other] = form(planes.gate[other](__fmul_rn(sums[0][4 * j + 2 * other + e], scale)),
                          planes.up[other](__fmul_rn(sums[1][4 * j + 2 * other + e], scale)));
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
