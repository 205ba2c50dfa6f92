#pragma once

// The consumer warps of the ring: the arithmetic, and the way of the sums to the finisher.

#include <cstdint>
#include <type_traits>

#include "rows_ring.cuh"

namespace memra::cuda {

// ---- A consumer lane's places in a stage

// In the last piece a class may have no tile, or half a tile; its groups then count for nothing:
// zero scales here, and activations of zero with d = -0, because acc + -0 is acc whatever it is.
// One word, because consumers are short of registers: the offset of the lane's group in the codes
// of block 0, that of the scales of the two groups whose sums it gets, and whether those count.
class LanePlaces {
 public:
  // `of_block`: whose scales
  __device__ __forceinline__ LanePlaces(int64_t in, int lane_class, int lane, int of_block,
                                        bool last_piece) {
    const int r = lane / 4, pair = lane % 2;
    int groups = 4;
    if (last_piece) {
      const int tile = (pieces_of(in) - 1) * kLaneClasses + lane_class;
      groups = min(max(static_cast<int>(in / numerics::kGroupValues) - 4 * tile, 0), 4);
    }
    const bool half = groups == 2;
    const uint32_t codes = lane_class * numerics::kV2TileCodeBytes +
                           (half ? 2 * r + pair : lane) * numerics::kGroupCodeBytes;
    const uint32_t scales = 2 * kBlockCodeBytes + of_block * kBlockScaleBytes +
                            lane_class * numerics::kV2TileScaleBytes +
                            (half ? r * 4 : r * 8 + pair * 4);
    word_ = codes | scales << 16 | (2 * pair < groups ? 0x80000000u : 0);
  }
  __device__ __forceinline__ uint32_t codes() const { return word_ & 0xFFFF; }
  __device__ __forceinline__ uint32_t scales() const { return word_ >> 16 & 0x7FFF; }
  // Of the scale bytes.
  __device__ __forceinline__ uint32_t mask() const {
    return static_cast<uint32_t>(static_cast<int32_t>(word_) >> 31);
  }

 private:
  static_assert(kStageBytes <= 0x8000);
  uint32_t word_;
};

#if __CUDA_ARCH__ >= 900

template <RowsArm kArm, int kScaleWords>
__device__ __forceinline__ TilePair<kScaleWords> load_tiles(uint32_t codes, uint32_t scales,
                                                            uint32_t seed) {
  TilePair<kScaleWords> w;
  if constexpr (kArm == RowsArm::kMathOnly) {
    // Changes with every step, so that no decode can move out of the loop.
    const uint32_t s = seed * 0x9E3779B9u ^ codes;
    w.codes[0] = {s, s ^ 0x5bd1e995u, s + 0x01234567u, ~s};
    w.codes[1] = {s ^ 0x0F0F1234u, s + 0x5bd1e995u, s ^ 0x31234567u, s - 0x77777777u};
#pragma unroll
    for (int i = 0; i < kScaleWords; ++i)
      w.scales[i] = (s & 0x07070707u) | 0x38383838u;
  } else {
#pragma unroll
    for (int b = 0; b < 2; ++b)
      w.codes[b] = load_shared_u32x4(codes + b * kBlockCodeBytes);
#pragma unroll
    for (int i = 0; i < kScaleWords; ++i)
      w.scales[i] = load_shared(scales + i * kBlockScaleBytes);
  }
  return w;
}

// One consumer warp hands a unit on to the finisher, beside the sums and under the same barrier.
template <class AnyUnit>
__device__ __forceinline__ void hand_over(const AnyUnit& from, AnyUnit& to, int lane) {
  static_assert(sizeof(AnyUnit) % 4 == 0 && sizeof(AnyUnit) <= 32 * 4);
  if (lane < static_cast<int>(sizeof(AnyUnit)) / 4) {
    reinterpret_cast<uint32_t*>(&to)[lane] = reinterpret_cast<const uint32_t*>(&from)[lane];
  }
}

// How far a consumer warp has come.
struct Consumed {
  RingPosition at{0};
  uint32_t unit = 0;
};

// Sums of a unit on their way: waits for the place, and tells the finisher after `store`.
template <int kRun, class Store>
__device__ __forceinline__ void pass_on(RingControl<kRun>& c, const RingMemory<kRun>& m,
                                        uint32_t unit, int warp, int lane, Store store) {
  const uint32_t slot = unit % dot_slots(kRun);
  barrier_wait(m.dots_empty(slot), unit / dot_slots(kRun) % 2 ^ 1);
  store(m.dots(slot));
  if (warp == 0) hand_over(c.units[unit % kUnitSlots], c.dot_units[slot], lane);
  named_arrive(kFirstDotBarrier + slot, kDotThreads);
}

// A consumer warp over the units of a segment, before unit `end`, whose blocks have an operand
// each, by its place from address `operands` on. Returns the segment of the unit where it stopped,
// if done.unit is not `end`.
template <bool kFull, RowsArm kArm>
__device__ __forceinline__ Segment consume(RingControl<1>& c, const RingMemory<1>& m, int64_t in,
                                           uint32_t operands, Segment segment, uint32_t end,
                                           int warp, int lane, Consumed& done) {
  const int t = lane % 4, column = lane / 4;
  const bool second = t >= 2;
  const int pieces = pieces_of(in);
  const MmaConstants k = MmaConstants::make();
  const uint32_t ring = opaque(m.ring());
  const LanePlaces whole(in, warp, lane, second ? 1 : 0, false);
  const LanePlaces last(in, warp, lane, second ? 1 : 0, true);
  const uint32_t codes = whole.codes(), scales = whole.scales();
  // The lane of B that holds activations for its column, and the sums' own groups.
  const bool active = column % 4 == t;
  const uint32_t x_first = (4 * warp + t) * numerics::kGroupValues;
  const uint32_t x_step = active ? kPieceColumns : 0;
  const uint32_t d_first = pieces * kPieceColumns + (4 * warp + 2 * (t % 2)) * 4;
  RingPosition at = done.at;
  for (uint32_t index = done.unit;; ++index) {
    barrier_wait(m.full(at.stage), at.parity);
    const Unit<1>& unit = c.units[index % kUnitSlots];
    if (unit.segment.word != segment.word) {
      done.at = at, done.unit = index;
      return unit.segment;
    }
    float acc[2] = {};
    if (unit.live != 0) {
      uint32_t x_at = active ? operands + unit.operand[column / 4] * operand_bytes(pieces) + x_first
                             : m.zeros();
      uint32_t d_at = operands + unit.operand[second ? 1 : 0] * operand_bytes(pieces) + d_first;
      // A full stage of which kPieces pieces hold weights.
      const auto stage_step = [&](auto stage_pieces, bool is_last) {
        constexpr int kPieces = decltype(stage_pieces)::value;
        const uint32_t stage = ring + at.stage * kStageBytes;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          const bool partial = !kFull && is_last && i == kPieces - 1;
          TilePair<1> w = load_tiles<kArm, 1>(
              stage + (partial ? last.codes() : codes) + i * kPieceCodeBytes,
              stage + (partial ? last.scales() : scales) + i * kPieceScaleBytes, x_at + i);
          if (partial) w.scales[0] &= last.mask();
          if (i == kPieces - 1) {
            __syncwarp();
            if (lane == 0) barrier_arrive(m.empty(at.stage));
            at.advance(m.shape.stages);
          }
          if constexpr (kArm == RowsArm::kLoadOnly) {
            acc[0] = __uint_as_float(__float_as_uint(acc[0]) ^ fold(w.codes[0]) ^ fold(w.codes[1]) ^
                                     w.scales[0]);
          } else {
            const uint4 x[2] = {load_shared_u32x4(x_at), load_shared_u32x4(x_at + 16)};
            step_dual(k, w, x, load_shared_f32x2(d_at), second, acc);
          }
          x_at += x_step;
          d_at += kPieceGroups * 4;
        }
      };
      constexpr std::integral_constant<int, kStagePieces> kWhole;
      int left = pieces;
      if constexpr (kFull) {
        for (;;) {
          stage_step(kWhole, false);
          if ((left -= kStagePieces) == 0) break;
          barrier_wait(m.full(at.stage), at.parity);
        }
      } else {
        for (; left > kStagePieces; left -= kStagePieces) {
          stage_step(kWhole, false);
          barrier_wait(m.full(at.stage), at.parity);
        }
        if (left == kStagePieces) {
          stage_step(kWhole, true);
        } else {
          stage_step(std::integral_constant<int, 1>{}, true);
        }
      }
    } else {
      __syncwarp();
      if (lane == 0) barrier_arrive(m.empty(at.stage));
      at.advance(m.shape.stages);
    }
    pass_on(c, m, index, warp, lane,
            [&](uint32_t dots) { store_shared(dots + (warp * 32 + lane) * 8, acc[0], acc[1]); });
    if (index + 1 == end) {
      done.unit = end;
      return segment;
    }
  }
}

// The same over units whose blocks share up to kRun operands. Sums of operands
// beyond count are rubbish.
template <bool kFull, RowsArm kArm, int kRun>
__device__ __forceinline__ Segment consume(RingControl<kRun>& c, const RingMemory<kRun>& m,
                                           int64_t in, uint32_t operands, Segment segment,
                                           uint32_t end, int warp, int lane, Consumed& done) {
  constexpr int kPairs = kRun / 2;
  const int t = lane % 4, column = lane / 4;
  const int pieces = pieces_of(in);
  const MmaConstants k = MmaConstants::make();
  const uint32_t ring = m.ring();
  const LanePlaces whole(in, warp, lane, 0, false), last(in, warp, lane, 0, true);
  const uint32_t codes = whole.codes(), scales = whole.scales();
  const bool active = column % 4 == t;
  const uint32_t stride = 2 * operand_bytes(pieces);  // from a lane's operand to its next
  const uint32_t x_first = active ? operands + column / 4 * operand_bytes(pieces) +
                                        (4 * warp + t) * numerics::kGroupValues
                                  : m.zeros();
  const uint32_t x_step = active ? kPieceColumns : 0, x_stride = active ? stride : 0;
  const uint32_t d_first = operands + t / 2 * operand_bytes(pieces) + pieces * kPieceColumns +
                           (4 * warp + 2 * (t % 2)) * 4;
  RingPosition at = done.at;
  for (uint32_t index = done.unit;; ++index) {
    barrier_wait(m.full(at.stage), at.parity);
    const Unit<kRun>& unit = c.units[index % kUnitSlots];
    if (unit.segment.word != segment.word) {
      done.at = at, done.unit = index;
      return unit.segment;
    }
    float acc[kPairs][4] = {};
    if (unit.live != 0) {
      uint32_t x_at = x_first, d_at = d_first;
      const auto all_steps = [&](auto operands) {
        constexpr int kOperands = decltype(operands)::value;
        for (int left = pieces;;) {
          const uint32_t stage = ring + at.stage * kStageBytes;
          const int here = min(left, kStagePieces);
          left -= here;
          // Rolled up: two steps at once have more operands than there are registers.
#pragma unroll 1
          for (int i = 0; i < here; ++i) {
            const bool releases = i == here - 1;
            const bool is_last = !kFull && releases && left == 0;
            TilePair<2> w = load_tiles<kArm, 2>(
                stage + (is_last ? last.codes() : codes) + i * kPieceCodeBytes,
                stage + (is_last ? last.scales() : scales) + i * kPieceScaleBytes, d_at);
            if (is_last) w.scales[0] &= last.mask(), w.scales[1] &= last.mask();
            if (releases) {
              __syncwarp();
              if (lane == 0) barrier_arrive(m.empty(at.stage));
            }
            step_shared<kOperands>(
                k, w, [&](int j, int h) { return load_shared_u32x4(x_at + j * x_stride + 16 * h); },
                [&](int j) { return load_shared_f32x2(d_at + j * stride); }, acc);
            x_at += x_step;
            d_at += kPieceGroups * 4;
          }
          at.advance(m.shape.stages);
          if (left == 0) break;
          barrier_wait(m.full(at.stage), at.parity);
        }
      };
      if (unit.count <= 2) {
        all_steps(std::integral_constant<int, 2>{});
      } else {
        all_steps(std::integral_constant<int, kRun>{});
      }
    } else {
      __syncwarp();
      if (lane == 0) barrier_arrive(m.empty(at.stage));
      at.advance(m.shape.stages);
    }
    pass_on(c, m, index, warp, lane, [&](uint32_t dots) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        store_shared(dots + ((warp * kPairs + i) * 32 + lane) * 16, acc[i][0], acc[i][1], acc[i][2],
                     acc[i][3]);
      }
    });
    if (index + 1 == end) {
      done.unit = end;
      return segment;
    }
  }
}

// ---- The finisher's side

// What the finisher gets of a unit: in lanes t = 0, 1 of a quad the dot of row lane / 4 of block 0,
// in lanes 2, 3 that of block 1. Releases the place.
template <RowsArm kArm>
__device__ __forceinline__ float take_dual_dots(const RingMemory<1>& m, int slot, int lane) {
  float2 v[kLaneClasses];
#pragma unroll
  for (int j = 0; j < kLaneClasses; ++j)
    v[j] = load_shared_f32x2(m.dots(slot) + (j * 32 + lane) * 8);
  barrier_arrive(m.dots_empty(slot));
#pragma unroll
  for (int distance = kLaneClasses / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int j = 0; j < distance; ++j) {
      v[j].x = tree_add<kArm>(v[j].x, v[j + distance].x);
      v[j].y = tree_add<kArm>(v[j].y, v[j + distance].y);
    }
  }
  // Distances 2 and 1: lanes t % 2 hold the sums of groups 0, 1 and 2, 3.
  const float low = tree_add<kArm>(v[0].x, __shfl_xor_sync(~0u, v[0].x, 1));
  const float high = tree_add<kArm>(v[0].y, __shfl_xor_sync(~0u, v[0].y, 1));
  return tree_add<kArm>(low, high);
}

// Dots of row lane / 4 of both blocks with operand 2i + lane % 4 / 2, in both lanes of that pair.
template <RowsArm kArm, int kRun>
__device__ __forceinline__ float2 shared_dots(const RingMemory<kRun>& m, int slot, int i,
                                              int lane) {
  float4 v[kLaneClasses];
#pragma unroll
  for (int j = 0; j < kLaneClasses; ++j)
    v[j] = load_shared_f32x4(m.dots(slot) + ((j * (kRun / 2) + i) * 32 + lane) * 16);
#pragma unroll
  for (int distance = kLaneClasses / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int j = 0; j < distance; ++j) {
      v[j].x = tree_add<kArm>(v[j].x, v[j + distance].x);
      v[j].y = tree_add<kArm>(v[j].y, v[j + distance].y);
      v[j].z = tree_add<kArm>(v[j].z, v[j + distance].z);
      v[j].w = tree_add<kArm>(v[j].w, v[j + distance].w);
    }
  }
  const auto quad = [&](float low, float high) {
    low = tree_add<kArm>(low, __shfl_xor_sync(~0u, low, 1));
    high = tree_add<kArm>(high, __shfl_xor_sync(~0u, high, 1));
    return tree_add<kArm>(low, high);
  };
  return make_float2(quad(v[0].x, v[0].y), quad(v[0].z, v[0].w));
}

// The next unit of the finisher, in `to` from here on, and where its sums are.
template <int kRun>
__device__ __forceinline__ int take_unit(RingControl<kRun>& c, uint32_t& index, int lane) {
  const int slot = static_cast<int>(index++ % dot_slots(kRun));
  named_sync(kFirstDotBarrier + slot, kDotThreads);
  __syncwarp();  // the unit before has been read
  hand_over(c.dot_units[slot], c.finishing, lane);
  __syncwarp();
  return slot;
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace memra::cuda
