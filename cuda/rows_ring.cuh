#pragma once

// Pieces of the persistent kernels that read V2 weights through a ring of bulk copies.
//
// What keeps memory busy is bytes in flight, and a ring in shared memory holds them however long
// the arithmetic takes. A piece is 1024 columns of two blocks of 8 rows, so 8 tiles of each.
// Consumer warp w takes tile w of every piece, which is one class of virtual lanes: its chains are
// whole. A stage of the ring holds two pieces, so that a warp has two steps to overlap; it holds no
// more, so that little is left to do when the last one arrives. Two blocks share an SM: the next
// kernel's can move in and prefetch when one of them is done.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device.h"
#include "rows_dot.cuh"
#include "rows_mma.cuh"

namespace memra::cuda {

inline constexpr int kRingBlocksPerSm = 2;
inline constexpr int kConsumerWarps = kLaneClasses;
inline constexpr int kProducerWarp = kConsumerWarps;
inline constexpr int kFinisherWarp = kConsumerWarps + 1;
inline constexpr int kRingThreads = (kConsumerWarps + 2) * 32;
inline constexpr int kMaxStages = 16;
inline constexpr int kMinStages = 3;

// A place in a ring of stages, and the parity of the phase that its barrier is in.
struct RingPosition {
  int stage = 0;
  uint32_t parity;

  // Whoever waits for a stage to be filled begins with 0; whoever waits for it to be emptied with
  // 1, because the first pass finds the ring empty.
  __device__ __forceinline__ explicit RingPosition(uint32_t first_parity) : parity(first_parity) {}
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// Sums on their way from the consumer warps to the finisher go through a ring of their own. A place
// is full when all consumers have arrived at its named barrier, which is one instruction a warp; it
// is empty when the finisher's threads have arrived at its `empty` barrier.
inline constexpr int kFirstDotBarrier = 1;
inline constexpr int kMaxDotSlots = 4;
inline constexpr int kConsumerBarrier = kFirstDotBarrier + kMaxDotSlots;
inline constexpr int kDotThreads = (kConsumerWarps + 1) * 32;  // consumers and finisher

// ---- Pieces

inline constexpr int kPieceColumns = kLaneClasses * numerics::kV2TileColumns;
inline constexpr int kPieceGroups = kPieceColumns / numerics::kGroupValues;
inline constexpr int kPieceCodeBytes = kLaneClasses * numerics::kV2TileCodeBytes;
inline constexpr int kPieceScaleBytes = kLaneClasses * numerics::kV2TileScaleBytes;

// A stage: codes of both blocks, then scales of both.
inline constexpr int kStagePieces = 2;
inline constexpr int kBlockCodeBytes = kStagePieces * kPieceCodeBytes;
inline constexpr int kBlockScaleBytes = kStagePieces * kPieceScaleBytes;
inline constexpr int kStageBytes = 2 * (kBlockCodeBytes + kBlockScaleBytes);

__host__ __device__ constexpr int pieces_of(int64_t in) {
  return static_cast<int>((in + kPieceColumns - 1) / kPieceColumns);
}

// Activations of one operand in shared memory, padded to whole pieces: x, then d. The last 16 bytes
// put consecutive operands into different banks.
__host__ __device__ constexpr int operand_bytes(int pieces) {
  return pieces * (kPieceColumns + kPieceGroups * 4) + 16;
}

// What lanes without an activation of their own read.
inline constexpr int kZeroBytes = 32;

// Units of work on their way from the producer to consumers and finisher: the producer is at most
// all stages and all dot slots ahead of the finisher.
inline constexpr int kUnitSlots = 32;
static_assert(kUnitSlots > kMaxStages + kMaxDotSlots + 1);

// Most pairs that share one read and one decode of their weights. Eight were no faster: the tensor
// cores then have as much to do as everything else.
inline constexpr int kMaxRun = 4;

struct RingControl {
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
  uint64_t dots_empty[kMaxDotSlots];
};

struct RingShape {
  int stages;
  int operands;  // places of activations
  int pieces;
};

// The hardware keeps 1 KB of an SM's shared memory for each block.
inline int64_t ring_dynamic_bytes(const Device& device, int64_t static_bytes) {
  constexpr int64_t kReserved = 1024;
  const int64_t of_sm = static_cast<int64_t>(device.shared_bytes_per_block) + kReserved;
  return of_sm / kRingBlocksPerSm - kReserved - static_bytes - 128;
}

// Sums of a lane for one unit: chains of two groups, for one operand of each block (dual), or for
// both blocks and every operand.
__host__ __device__ constexpr int lane_sums(int operands, bool dual) {
  return dual ? 2 : 2 * operands;
}
__host__ __device__ constexpr int dot_slots(bool dual) {
  return dual ? kMaxDotSlots : 2;
}
__host__ __device__ constexpr int dot_bytes(int operands, bool dual) {
  return kConsumerWarps * 32 * lane_sums(operands, dual) * 4;
}

inline RingShape make_ring_shape(int64_t dynamic_bytes, int64_t in, int operands,
                                 int all_dot_bytes) {
  RingShape shape{0, operands, pieces_of(in)};
  const int64_t rest = dynamic_bytes - kZeroBytes - 128 - all_dot_bytes -
                       int64_t{operands} * operand_bytes(shape.pieces);
  const int64_t stages = rest / kStageBytes;
  shape.stages = static_cast<int>(stages < kMaxStages ? stages : kMaxStages);
  return shape;
}

#if __CUDA_ARCH__ >= 900

// Addresses in shared memory; `begin` is that of the dynamic part.
template <int kOperands, bool kDual>
struct RingMemory {
  uint32_t begin;
  uint32_t control;
  RingShape shape;

  __device__ __forceinline__ uint32_t dots(int slot) const {
    return begin + slot * dot_bytes(kOperands, kDual);
  }
  __device__ __forceinline__ uint32_t zeros() const { return dots(dot_slots(kDual)); }
  __device__ __forceinline__ uint32_t operand(int i) const {
    return zeros() + kZeroBytes + i * operand_bytes(shape.pieces);
  }
  __device__ __forceinline__ uint32_t ring() const {
    return (operand(shape.operands) + 127) / 128 * 128;
  }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return control + offsetof(RingControl, full) + stage * 8;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const {
    return control + offsetof(RingControl, empty) + stage * 8;
  }
  __device__ __forceinline__ uint32_t dots_empty(int slot) const {
    return control + offsetof(RingControl, dots_empty) + slot * 8;
  }

  // By all threads; __syncthreads() follows.
  __device__ __forceinline__ void init() const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kZeroBytes / 4) store_shared(zeros() + thread * 4, 0u);
    const int i = thread - kProducerWarp * 32;
    if (i < 0 || i >= 32) return;
    if (i < shape.stages) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), kConsumerWarps);
    }
    if (i < dot_slots(kDual)) barrier_init(dots_empty(i), 32);
    barrier_init_fence();
  }
};

// What one lane copies into a stage that begins with `piece`: lanes 0 and 1 copy codes, lanes 2 and
// 3 scales, of block lane % 2.
struct PieceCopy {
  uint32_t bytes;
  uint32_t stage_offset;
  int64_t slab_offset;

  __device__ __forceinline__ PieceCopy(int lane, int64_t rows, int64_t in, int64_t row_block,
                                       int piece) {
    const bool scales = lane >= 2;
    const int block = lane % 2;
    const uint32_t most = scales ? kBlockScaleBytes : kBlockCodeBytes;
    const uint32_t all = static_cast<uint32_t>(scales ? in / 2 : in * 4);
    const uint32_t begin = static_cast<uint32_t>(piece) * (most / kStagePieces);
    bytes = min(most, all - begin);
    stage_offset = (scales ? 2 * kBlockCodeBytes : 0) + block * most;
    slab_offset = begin + (scales ? LayoutV2::row_block_scales(rows, in, row_block)
                                  : LayoutV2::row_block_codes(in, row_block));
  }
};

// Bytes of one block, codes and scales, in a stage that begins with `piece`.
__device__ __forceinline__ uint32_t stage_block_bytes(int64_t in, int piece) {
  const int64_t columns =
      min(in - int64_t{piece} * kPieceColumns, int64_t{kStagePieces} * kPieceColumns);
  return static_cast<uint32_t>(columns * (kPieceCodeBytes + kPieceScaleBytes) / kPieceColumns);
}

// One unit's stages, by the whole warp: each of four lanes issues one of a stage's copies, because
// one thread that issues them in turn cannot keep up. slab and row_block: of the block that the
// lane copies; bit b of live: block b has weights. A unit without any takes a stage all the same,
// because that is how it is announced.
template <RowsArm kArm, class Params, class Memory>
__device__ __forceinline__ void fill_stages(const Params& p, const Memory& m, RingPosition& at,
                                            const uint8_t* slab, int64_t row_block, uint32_t live,
                                            int lane) {
  constexpr bool kCopy = kArm != RowsArm::kMathOnly;
  const int pieces = live != 0 ? m.shape.pieces : 1;
  for (int piece = 0; piece < pieces; piece += kStagePieces) {
    const uint32_t full = m.full(at.stage);
    barrier_wait(m.empty(at.stage), at.parity);
    __syncwarp();
    if (lane == 0) {
      if (kCopy && live != 0) {
        barrier_arrive_expect(full, __popc(live) * stage_block_bytes(p.in, piece));
      } else {
        barrier_arrive(full);
      }
    }
    __syncwarp();
    if (kCopy && lane < 4 && slab != nullptr) {
      const PieceCopy copy(lane, p.rows, p.in, row_block, piece);
      bulk_load(m.ring() + at.stage * kStageBytes + copy.stage_offset, slab + copy.slab_offset,
                copy.bytes, full);
    }
    at.advance(m.shape.stages);
  }
}

// After the last unit, whose slot the producer has marked.
template <class Memory>
__device__ __forceinline__ void announce_end(const Memory& m, const RingPosition& at, int lane) {
  if (lane == 0) {
    barrier_wait(m.empty(at.stage), at.parity);
    barrier_arrive(m.full(at.stage));
  }
}

// A block's contiguous range of units, in multiples of `grain`.
struct UnitRange {
  int64_t begin, end;

  __device__ __forceinline__ explicit UnitRange(int64_t n_units, int64_t grain = 1) {
    const int64_t n = n_units / grain;
    begin = n * blockIdx.x / gridDim.x * grain;
    end = n * (blockIdx.x + 1) / gridDim.x * grain;
  }
};

#endif

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
template <class Unit>
__device__ __forceinline__ void hand_over(const Unit& from, Unit& to, int lane) {
  static_assert(sizeof(Unit) % 4 == 0 && sizeof(Unit) <= 32 * 4);
  if (lane < static_cast<int>(sizeof(Unit)) / 4) {
    reinterpret_cast<uint32_t*>(&to)[lane] = reinterpret_cast<const uint32_t*>(&from)[lane];
  }
}

// What begin_unit answers besides a number of pieces: a unit without weights takes a stage, too,
// because that is how it is announced.
inline constexpr int kEndOfUnits = -1;

// A consumer warp over all units whose blocks have an operand each. begin_unit(unit, &b0, &b1) sets
// the operands' addresses and returns the number of pieces; pass_on(unit, slot) hands the unit over
// to the finisher.
template <bool kFull, RowsArm kArm, class BeginUnit, class PassOn>
__device__ __forceinline__ void consume_dual(int64_t in, const RingMemory<1, true>& m, int warp,
                                             int lane, BeginUnit begin_unit, PassOn pass_on) {
  const int t = lane % 4, column = lane / 4;
  const bool second = t >= 2;
  const MmaConstants k = MmaConstants::make();
  const uint32_t ring = opaque(m.ring());
  const LanePlaces places(in, warp, lane, second ? 1 : 0, false);
  const LanePlaces last(in, warp, lane, second ? 1 : 0, true);
  const uint32_t codes = places.codes(), scales = places.scales();
  // The lane of B that holds activations for its column, and the sums' own groups.
  const bool active = column % 4 == t;
  const uint32_t x_first = (4 * warp + t) * numerics::kGroupValues;
  const uint32_t x_step = active ? kPieceColumns : 0;
  const uint32_t d_first = m.shape.pieces * kPieceColumns + (4 * warp + 2 * (t % 2)) * 4;
  RingPosition at(0);
  for (uint32_t unit = 0;; ++unit) {
    barrier_wait(m.full(at.stage), at.parity);
    uint32_t operand[2];
    const int pieces = begin_unit(unit, operand[0], operand[1]);
    float acc[2] = {};
    if (pieces > 0) {
      uint32_t x_at = active ? (column < 4 ? operand[0] : operand[1]) + x_first : m.zeros();
      uint32_t d_at = (second ? operand[1] : operand[0]) + d_first;
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
    } else if (pieces == 0) {
      __syncwarp();
      if (lane == 0) barrier_arrive(m.empty(at.stage));
      at.advance(m.shape.stages);
    }
    const uint32_t slot = unit % dot_slots(true);
    barrier_wait(m.dots_empty(slot), unit / dot_slots(true) % 2 ^ 1);
    store_shared(m.dots(slot) + (warp * 32 + lane) * 8, acc[0], acc[1]);
    if (warp == 0) pass_on(unit, slot);
    named_arrive(kFirstDotBarrier + slot, kDotThreads);
    if (pieces == kEndOfUnits) return;
  }
}

// What the finisher gets of a unit: in lanes t = 0, 1 of a quad the dot of row lane / 4 of block 0,
// in lanes 2, 3 that of block 1. Releases the place.
template <RowsArm kArm>
__device__ __forceinline__ float take_dual_dots(const RingMemory<1, true>& m, int slot, int lane) {
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

// A consumer warp over all units whose blocks share up to kRun operands, in the first places.
// begin_unit(unit, &count) returns the number of pieces; pass_on(unit, slot) hands the unit over to
// the finisher. Sums of operands beyond count are rubbish.
template <int kRun, bool kFull, RowsArm kArm, class BeginUnit, class PassOn>
__device__ __forceinline__ void consume_shared(int64_t in, const RingMemory<kRun, false>& m,
                                               int warp, int lane, BeginUnit begin_unit,
                                               PassOn pass_on) {
  constexpr int kPairs = kRun / 2;
  const int t = lane % 4, column = lane / 4;
  const MmaConstants k = MmaConstants::make();
  const uint32_t ring = m.ring();
  const LanePlaces places(in, warp, lane, 0, false), last(in, warp, lane, 0, true);
  const uint32_t codes = places.codes(), scales = places.scales();
  const bool active = column % 4 == t;
  const uint32_t stride = 2 * operand_bytes(m.shape.pieces);  // from a lane's operand to its next
  const uint32_t x_first =
      active ? m.operand(column / 4) + (4 * warp + t) * numerics::kGroupValues : m.zeros();
  const uint32_t x_step = active ? kPieceColumns : 0, x_stride = active ? stride : 0;
  const uint32_t d_first =
      m.operand(t / 2) + m.shape.pieces * kPieceColumns + (4 * warp + 2 * (t % 2)) * 4;
  RingPosition at(0);
  for (uint32_t unit = 0;; ++unit) {
    barrier_wait(m.full(at.stage), at.parity);
    int count = 0;
    const int pieces = begin_unit(unit, count);
    float acc[kPairs][4] = {};
    if (pieces > 0) {
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
      if (count <= 2) {
        all_steps(std::integral_constant<int, 2>{});
      } else {
        all_steps(std::integral_constant<int, kRun>{});
      }
    } else if (pieces == 0) {
      __syncwarp();
      if (lane == 0) barrier_arrive(m.empty(at.stage));
      at.advance(m.shape.stages);
    }
    const uint32_t slot = unit % dot_slots(false);
    barrier_wait(m.dots_empty(slot), unit / dot_slots(false) % 2 ^ 1);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      store_shared(m.dots(slot) + ((warp * kPairs + i) * 32 + lane) * 16, acc[i][0], acc[i][1],
                   acc[i][2], acc[i][3]);
    }
    if (warp == 0) pass_on(unit, slot);
    named_arrive(kFirstDotBarrier + slot, kDotThreads);
    if (pieces == kEndOfUnits) return;
  }
}

// Dots of row lane / 4 of both blocks with operand 2i + lane % 4 / 2, in both lanes of that pair.
template <RowsArm kArm, int kRun>
__device__ __forceinline__ float2 shared_dots(const RingMemory<kRun, false>& m, int slot, int i,
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

#endif  // __CUDA_ARCH__ >= 900

}  // namespace memra::cuda
