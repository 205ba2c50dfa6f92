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
template <Format kFormat>
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
    uint32_t codes, scales;
    if constexpr (kFormat == Format::kV1) {
      // Blocks of 64 columns: scales of two groups, then their codes.
      const uint32_t tile = lane_class * kV1TileBytes;
      codes = r * kV1RowStride + tile + lane / 2 % 2 * numerics::kV1BlockBytes +
              numerics::kV1BlockScaleBytes + pair * numerics::kGroupCodeBytes;
      scales = (of_block * kRowBlock + r) * kV1RowStride + tile + pair * numerics::kV1BlockBytes;
    } else {
      const bool half = groups == 2;
      codes = lane_class * numerics::kV2TileCodeBytes +
              (half ? 2 * r + pair : lane) * numerics::kGroupCodeBytes;
      scales = 2 * kBlockCodeBytes + of_block * kBlockScaleBytes +
               lane_class * numerics::kV2TileScaleBytes + (half ? r * 4 : r * 8 + pair * 4);
    }
    word_ = codes | scales << 16 | (2 * pair < groups ? 0x80000000u : 0);
  }
  __device__ __forceinline__ uint32_t codes() const { return word_ & 0xFFFF; }
  __device__ __forceinline__ uint32_t scales() const { return word_ >> 16 & 0x7FFF; }
  // Of the scale bytes.
  __device__ __forceinline__ uint32_t mask() const {
    return static_cast<uint32_t>(static_cast<int32_t>(word_) >> 31);
  }

 private:
  static_assert(kV1StageBytes <= 0x8000 && kV2StageBytes <= 0x8000);
  uint32_t word_;
};

// What a lane of step_shared works with.
struct NarrowLane {
  LanePlaces<Format::kV2> whole, last;
  uint32_t stride;  // from a lane's operand to its next
  uint32_t x_first, x_step, x_stride;
  uint32_t d_first;

  __device__ __forceinline__ NarrowLane(int64_t in, int pieces, uint32_t zeros, uint32_t operands,
                                        int warp, int lane)
      : whole(in, warp, lane, 0, false), last(in, warp, lane, 0, true) {
    const int t = lane % 4, column = lane / 4;
    const bool active = column % 4 == t;
    stride = 2 * operand_bytes(pieces);
    x_first = active ? operands + column / 4 * operand_bytes(pieces) +
                           (4 * warp + t) * numerics::kGroupValues
                     : zeros;
    x_step = active ? kPieceColumns : 0, x_stride = active ? stride : 0;
    d_first = operands + t / 2 * operand_bytes(pieces) + pieces * kPieceColumns +
              (4 * warp + 2 * (t % 2)) * 4;
  }
};

// The same for step_wide: the lane's row of its matrix of codes, and its own row's scales, two
// words of two groups each.
class WidePlaces {
 public:
  __device__ __forceinline__ WidePlaces(int64_t in, int lane_class, int lane) {
    const int tile = (pieces_of(in) - 1) * kLaneClasses + lane_class;
    const int groups = static_cast<int>(in / numerics::kGroupValues) - 4 * tile;
    const int row = lane % 8, group = lane / 8, own_row = lane / 4;
    const int first_codes = lane_class * numerics::kV2TileCodeBytes;
    const int first_scales = 2 * kBlockCodeBytes + lane_class * numerics::kV2TileScaleBytes;
    const auto word = [&](int of_row) {
      return static_cast<uint32_t>(first_codes + (row * of_row + min(group, of_row - 1)) *
                                                     numerics::kGroupCodeBytes) |
             static_cast<uint32_t>(first_scales + own_row * of_row * 2) << 16;
    };
    whole_ = word(4);
    // Half a tile has its rows closer together.
    last_ = groups == 2 ? word(2) : whole_;
    masks_[0] = groups > 0 ? ~0u : 0;
    masks_[1] = groups > 2 ? ~0u : 0;
  }
  __device__ __forceinline__ uint32_t codes(bool is_last) const {
    return (is_last ? last_ : whole_) & 0xFFFF;
  }
  __device__ __forceinline__ uint32_t scales(bool is_last) const {
    return (is_last ? last_ : whole_) >> 16;
  }
  __device__ __forceinline__ uint32_t mask(int word) const { return masks_[word]; }

 private:
  uint32_t whole_, last_;
  uint32_t masks_[2];
};

#if __CUDA_ARCH__ >= 900

// Four scale bytes, 0 in place of those that are no scale: 0x7F and up.
__device__ __forceinline__ uint32_t without_invalid_scales(uint32_t bytes) {
  const uint32_t low = bytes & 0x7F7F7F7Fu;
  const uint32_t invalid = ((low + 0x01010101u) | bytes) & 0x80808080u;
  return bytes & ~((invalid >> 7) * 0xFFu);
}

template <RowsArm kArm, Format kFormat, int kScaleWords>
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
    if constexpr (kFormat == Format::kV1) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const uint32_t at = codes + b * kRowBlock * kV1RowStride;
        w.codes[b] = {load_shared(at), load_shared(at + 4), load_shared(at + 8),
                      load_shared(at + 12)};
      }
      static_assert(kScaleWords == 1);
      w.scales[0] = without_invalid_scales(load_shared(scales));
    } else {
#pragma unroll
      for (int b = 0; b < 2; ++b)
        w.codes[b] = load_shared_u32x4(codes + b * kBlockCodeBytes);
#pragma unroll
      for (int i = 0; i < kScaleWords; ++i)
        w.scales[i] = load_shared(scales + i * kBlockScaleBytes);
    }
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

// Sums of a unit on their way: waits for the place, and tells the finisher after `store`.
template <int kRun, class Store>
__device__ __forceinline__ void pass_on(RingControl<kRun>& c, const RingMemory<kRun>& m,
                                        uint32_t unit, int warp, int lane, Store store) {
  const uint32_t slot = unit % dot_slots(kRun);
  barrier_wait(m.dots_empty(slot), unit / dot_slots(kRun) % 2 ^ 1);
  store(m.dots(slot));
  if (warp == 0) hand_over(c.units[unit % kUnitSlots], c.dot_units[slot], lane);
  barrier_arrive(m.dots_full(slot));
}

// A consumer warp over the units of a segment, whose blocks have an operand each, by its place from
// address `operands` on. `done` tells where it stopped, with the next segment's first unit or at
// the end of all.
template <bool kFull, RowsArm kArm, Format kFormat>
__device__ __forceinline__ void consume(RingControl<1>& c, const RingMemory<1>& m, int64_t in,
                                        uint32_t operands, int warp, int lane, Progress& done) {
  const int t = lane % 4, column = lane / 4;
  const bool second = t >= 2;
  const int pieces = pieces_of(in);
  const MmaConstants k = MmaConstants::make();
  const uint32_t ring = opaque(m.ring());
  const LanePlaces<kFormat> whole(in, warp, lane, second ? 1 : 0, false);
  const LanePlaces<kFormat> last(in, warp, lane, second ? 1 : 0, true);
  const uint32_t codes = whole.codes(), scales = whole.scales();
  constexpr int kCodeStep = kFormat == Format::kV1 ? kV1PieceBytes : kPieceCodeBytes;
  constexpr int kScaleStep = kFormat == Format::kV1 ? kV1PieceBytes : kPieceScaleBytes;
  // The lane of B that holds activations for its column, and the sums' own groups.
  const bool active = column % 4 == t;
  const uint32_t x_first = (4 * warp + t) * numerics::kGroupValues;
  const uint32_t x_step = active ? kPieceColumns : 0;
  const uint32_t d_first = pieces * kPieceColumns + (4 * warp + 2 * (t % 2)) * 4;
  const Segment segment = done.segment;
  RingPosition at = done.position();
  for (uint32_t index = done.unit;; ++index) {
    barrier_wait(m.full(at.stage), at.parity);
    const Unit<1>& unit = c.units[index % kUnitSlots];
    if (unit.segment.word != segment.word) {
      done.set(at, index, unit.segment, lane);
      return;
    }
    float acc[2] = {};
    if (unit.live != 0) {
      uint32_t x_at = active ? operands + unit.operand[column / 4] * operand_bytes(pieces) + x_first
                             : m.zeros();
      uint32_t d_at = operands + unit.operand[second ? 1 : 0] * operand_bytes(pieces) + d_first;
      // A full stage of which kPieces pieces hold weights.
      const auto stage_step = [&](auto stage_pieces, bool is_last) {
        constexpr int kPieces = decltype(stage_pieces)::value;
        const uint32_t stage = ring + at.stage * stage_bytes(kFormat);
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          const bool partial = !kFull && is_last && i == kPieces - 1;
          TilePair<1> w = load_tiles<kArm, kFormat, 1>(
              stage + (partial ? last.codes() : codes) + i * kCodeStep,
              stage + (partial ? last.scales() : scales) + i * kScaleStep, x_at + i);
          if (partial) w.scales[0] &= last.mask();
          if (i == kPieces - 1) {
            barrier_arrive(m.empty(at.stage));
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
      barrier_arrive(m.empty(at.stage));
      at.advance(m.shape.stages);
    }
    pass_on(c, m, index, warp, lane,
            [&](uint32_t dots) { store_shared(dots + (warp * 32 + lane) * 8, acc[0], acc[1]); });
    if (index + 1 == c.n_units) {
      done.set(at, index + 1, unit.segment, lane);
      return;
    }
  }
}

// The same over units whose blocks share up to kRun operands. Sums of operands
// beyond count are rubbish.
template <bool kFull, RowsArm kArm, int kRun>
__device__ __forceinline__ void consume(RingControl<kRun>& c, const RingMemory<kRun>& m, int64_t in,
                                        int warp, int lane, Progress& done) {
  constexpr int kPairs = kRun / 2;
  const int pieces = pieces_of(in);
  const MmaConstants k = MmaConstants::make();
  const uint32_t ring = m.ring();
  const NarrowLane outside(in, pieces, m.zeros(), m.operands(), warp, lane);
  RingPosition at = done.position();
  for (uint32_t index = done.unit;; ++index) {
    barrier_wait(m.full(at.stage), at.parity);
    const Unit<kRun>& unit = c.units[index % kUnitSlots];
    if (unit.segment.word != done.segment.word) {
      done.set(at, index, unit.segment, lane);
      return;
    }
    float acc[kPairs][4] = {};
    if (unit.live != 0) {
      // step(stage, i, is_last, release): piece i of a stage; release() once its tiles are read.
      const auto over_steps = [&](auto step) {
        for (int left = pieces;;) {
          const uint32_t stage = ring + at.stage * kV2StageBytes;
          const int here = min(left, kStagePieces);
          left -= here;
          // Rolled up: two steps at once have more operands than there are registers.
#pragma unroll 1
          for (int i = 0; i < here; ++i) {
            const bool releases = i == here - 1;
            step(stage, i, !kFull && releases && left == 0, [&] {
              if (releases) barrier_arrive(m.empty(at.stage));
            });
          }
          at.advance(m.shape.stages);
          if (left == 0) break;
          barrier_wait(m.full(at.stage), at.parity);
        }
      };
      const auto narrow_steps = [&](auto n_operands) {
        constexpr int kOperands = decltype(n_operands)::value;
        // Beside wide steps there are no registers to keep it in.
        const int thread = kRun > kNarrowRun ? thread_index_here() : 0;
        const int pieces_here = kRun > kNarrowRun ? known_here(pieces) : pieces;
        const NarrowLane n = kRun > kNarrowRun ? NarrowLane(in, pieces_here, m.zeros(),
                                                            m.operands(), thread / 32, thread % 32)
                                               : outside;
        uint32_t x_at = n.x_first, d_at = n.d_first;
        over_steps([&](uint32_t stage, int i, bool is_last, auto release) {
          TilePair<2> w = load_tiles<kArm, Format::kV2, 2>(
              stage + (is_last ? n.last : n.whole).codes() + i * kPieceCodeBytes,
              stage + (is_last ? n.last : n.whole).scales() + i * kPieceScaleBytes, d_at);
          if (is_last) w.scales[0] &= n.last.mask(), w.scales[1] &= n.last.mask();
          release();
          step_shared<kOperands>(
              k, w, [&](int j, int h) { return load_shared_u32x4(x_at + j * n.x_stride + 16 * h); },
              [&](int j) { return load_shared_f32x2(d_at + j * n.stride); }, acc);
          x_at += n.x_step;
          d_at += kPieceGroups * 4;
        });
      };
      if (unit.count <= 2) {
        narrow_steps(std::integral_constant<int, 2>{});
      } else if (kRun <= kNarrowRun || unit.count <= kNarrowRun) {
        narrow_steps(std::integral_constant<int, kNarrowRun>{});
      } else if constexpr (kRun > kNarrowRun) {
        constexpr int kQuads = kRun / 4;
        const int thread = thread_index_here();
        const int warp = thread / 32, lane = thread % 32, t = lane % 4, column = lane / 4;
        const int pieces_here = known_here(pieces);
        const WidePlaces places(in, warp, lane);
        const bool own = t / 2 == column % 2;
        const uint32_t bytes = operand_bytes(pieces_here);
        const uint32_t quad = 4 * bytes, quad_of_x = own ? quad : 0;
        uint32_t x_at =
            own ? m.operands() + column / 2 * bytes + 4 * warp * numerics::kGroupValues + t * 8
                : m.zeros();
        uint32_t d_at = m.operands() + t * bytes + pieces_here * kPieceColumns + 4 * warp * 4;
        over_steps([&](uint32_t stage, int i, bool is_last, auto release) {
          WideTilePair w;
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            w.codes[b] = load_matrices(stage + places.codes(is_last) + b * kBlockCodeBytes +
                                       i * kPieceCodeBytes);
            const uint32_t scales_at =
                stage + places.scales(is_last) + b * kBlockScaleBytes + i * kPieceScaleBytes;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              w.scales[b][j] = load_shared(scales_at + 4 * j);
              if (is_last) w.scales[b][j] &= places.mask(j);
            }
          }
          release();
          step_wide<kQuads>(
              k, w,
              [&](int q, int g) {
                return load_shared_u32x2(x_at + q * quad_of_x +
                                         g * static_cast<int>(numerics::kGroupValues));
              },
              [&](int q, int g) { return __uint_as_float(load_shared(d_at + q * quad + 4 * g)); },
              acc);
          if (own) x_at += kPieceColumns;
          d_at += kPieceGroups * 4;
        });
      }
    } else {
      barrier_arrive(m.empty(at.stage));
      at.advance(m.shape.stages);
    }
    pass_on(c, m, index, warp, lane, [&](uint32_t dots) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        store_shared(dots + ((warp * kPairs + i) * 32 + lane) * 16, acc[i][0], acc[i][1], acc[i][2],
                     acc[i][3]);
      }
    });
    if (index + 1 == c.n_units) {
      done.set(at, index + 1, unit.segment, lane);
      return;
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

// The tree's distances 16, 8, 4.
template <RowsArm kArm>
__device__ __forceinline__ float4 sum_classes(float4 (&v)[kLaneClasses]) {
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
  return v[0];
}

// Dots of row lane / 4 of both blocks with operand 2i + lane % 4 / 2, in both lanes of that pair.
template <RowsArm kArm, int kRun>
__device__ __forceinline__ float2 shared_dots(const RingMemory<kRun>& m, int slot, int i,
                                              int lane) {
  float4 v[kLaneClasses];
#pragma unroll
  for (int j = 0; j < kLaneClasses; ++j)
    v[j] = load_shared_f32x4(m.dots(slot) + ((j * (kRun / 2) + i) * 32 + lane) * 16);
  const float4 sum = sum_classes<kArm>(v);
  const auto quad = [&](float low, float high) {
    low = tree_add<kArm>(low, __shfl_xor_sync(~0u, low, 1));
    high = tree_add<kArm>(high, __shfl_xor_sync(~0u, high, 1));
    return tree_add<kArm>(low, high);
  };
  return make_float2(quad(sum.x, sum.y), quad(sum.z, sum.w));
}

// Of a wide run: dots of row lane / 4 of both blocks with operand 4q + lane % 4.
template <RowsArm kArm, int kRun>
__device__ __forceinline__ float2 wide_dots(const RingMemory<kRun>& m, int slot, int q, int lane) {
  float dot[2];
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    float4 v[kLaneClasses];
#pragma unroll
    for (int j = 0; j < kLaneClasses; ++j)
      v[j] = load_shared_f32x4(m.dots(slot) + ((j * (kRun / 2) + 2 * q + b) * 32 + lane) * 16);
    const float4 sum = sum_classes<kArm>(v);
    dot[b] = tree_add<kArm>(tree_add<kArm>(sum.x, sum.z), tree_add<kArm>(sum.y, sum.w));
  }
  return make_float2(dot[0], dot[1]);
}

// The next unit of the finisher, in `to` from here on, and where its sums are.
template <int kRun>
__device__ __forceinline__ int take_unit(RingControl<kRun>& c, const RingMemory<kRun>& m,
                                         uint32_t& index, int lane) {
  const int slot = static_cast<int>(index % dot_slots(kRun));
  barrier_wait(m.dots_full(slot), index / dot_slots(kRun) % 2);
  ++index;
  __syncwarp();  // the unit before has been read
  hand_over(c.dot_units[slot], c.finishing, lane);
  __syncwarp();
  return slot;
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace memra::cuda
