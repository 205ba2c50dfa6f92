#pragma once

// Outputs of one plane.

#include "grouped_outputs.cuh"
#include "grouped_pairs.cuh"

namespace memra::cuda {

// Two neighbouring outputs of a row, at their place.
struct PlainSink {
  static constexpr int kOutputBytes = 4;
  static constexpr bool kScaled = true;
  OutputRow first, second;

  __device__ __forceinline__ PlainSink(const TileEntry& entry, int set, int64_t output, bool there)
      : first(entry, set, output, there), second(entry, set, output + 1, there) {}
  template <int kOffset>
  __device__ __forceinline__ void store(bool wanted, uint8_t* to, float a, float b) const {
    store_global_if<kOffset>(wanted, to, canon_result(first(a)), canon_result(second(b)));
  }
  static __device__ __forceinline__ void store_zeroes(bool wanted, uint8_t* to) {
    store_global_if<0>(wanted, to, 0.0f, 0.0f);
  }
};
// Before the scales of the row and of the expert, and the bias, which belong to the sum over slots.
struct PackedSink {
  static constexpr int kOutputBytes = 2;
  static constexpr bool kScaled = false;

  __device__ __forceinline__ PackedSink(const TileEntry& /*entry*/, int /*set*/, int64_t /*output*/,
                                        bool /*there*/) {}
  template <int kOffset>
  __device__ __forceinline__ void store(bool wanted, uint8_t* to, float a, float b) const {
    store_global_if<kOffset>(wanted, to, pack_outputs(a, b));
  }
  static __device__ __forceinline__ void store_zeroes(bool wanted, uint8_t* to) {
    store_global_if<0>(wanted, to, pack_outputs(0.0f, 0.0f));
  }
};

template <class Shared>
struct PlaneTile {
  const ProductParams& params;
  PlaneOut out;

  template <int kColumns, class Consumer>
  __device__ __forceinline__ void run(Consumer& consumer, const SharedView& shared) const {
    const TileEntry& entry = consumer.tile(shared);
    // Where two blocks share an SM there is no register to ask for them early.
    RowScales<Shared> scales;
    if constexpr (Shared::kResident == 1) scales.ask(params, entry);
    float sums[2][kColumns / 2];
    multiply(consumer, shared, entry, sums);
    const TilePlace tile(entry);
    if (out.packed != nullptr) {
      store<PackedSink, Consumer::kExact>(out.packed, shared, tile, entry, sums);
      return;
    }
    if constexpr (Shared::kResident != 1) scales.ask(params, entry);
    warpgroup_sync();
    scales.store(shared);
    warpgroup_sync();
    store<PlainSink, Consumer::kExact>(out.plain, shared, tile, entry, sums);
  }

 private:
  // A last tile may have one set and half the work.
  template <class Consumer, int kSums>
  static __device__ __forceinline__ void multiply(Consumer& consumer, const SharedView& shared,
                                                  const TileEntry& entry, float (&sums)[2][kSums]) {
    // Elsewhere registers are too few for another loop.
    if constexpr (Consumer::kExact && Shared::kResident == 1 && !Shared::kDirect) {
      if (entry.outputs[1] == 0) {
        consumer.template multiply<2 * kSums, 1>(shared, entry, sums);
        return;
      }
    }
    consumer.template multiply<2 * kSums>(shared, entry, sums);
  }

  // kExact: all eights of rows have some.
  template <class Sink, bool kExact, int kSums>
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
      // Never true of exact tiles, but then stores would all come at the end, one waiting for the
      // other.
      if (8 * j >= tile.count) return;
      float2 scales;
      if constexpr (Sink::kScaled)
        scales = load_shared_f32x2(RowScales<Shared>::address(shared) + 4 * (8 * j + 2 * t));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        uint8_t* const to = first_row + static_cast<uint64_t>(row_bytes) * (8 * j + e);
        const bool wanted = (kExact && j + 1 < kSums / 4) || 8 * j + e < rows;
        const auto store_set = [&]<int kSet>(std::integral_constant<int, kSet>) {
          float a = sums[kSet][4 * j + e], b = sums[kSet][4 * j + 2 + e];
          if constexpr (Sink::kScaled) {
            a = __fmul_rn(a, e == 0 ? scales.x : scales.y);
            b = __fmul_rn(b, e == 0 ? scales.x : scales.y);
          }
          sinks[kSet].template store<kSet * kSetRows * Sink::kOutputBytes>(wanted && there[kSet],
                                                                           to, a, b);
        };
        store_set(std::integral_constant<int, 0>{});
        store_set(std::integral_constant<int, 1>{});
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
        Sink::store_zeroes(there[set], at + set * kSetRows * Sink::kOutputBytes);
    }
  }
};

}  // namespace memra::cuda
