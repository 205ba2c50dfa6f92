#pragma once

// Pieces of the persistent kernel that reads V2 weights through a ring of bulk copies.
//
// What keeps memory busy is bytes in flight, and a ring in shared memory holds them however long
// the arithmetic takes. A piece is 1024 columns of two blocks of 8 rows, so 8 tiles of each.
// Consumer warp w takes tile w of every piece, which is one class of virtual lanes: its chains are
// whole. A stage of the ring holds two pieces, so that a warp has two steps to overlap; it holds no
// more, so that little is left to do when the last one arrives. Two blocks share an SM: the next
// kernel's can move in and prefetch when one of them is done.
//
// Work comes in phases, gate and up, then down, each in up to two rounds (rows_ring_plan.cuh). A
// block's producer goes from one to the next without a pause, because weights depend on nothing.

#include <cstddef>
#include <cstdint>

#include "device.h"
#include "rows_dot.cuh"
#include "rows_mma.cuh"
#include "rows_route.cuh"

namespace memra::cuda {

inline constexpr int kRingBlocksPerSm = 2;
inline constexpr int kConsumerWarps = kLaneClasses;
inline constexpr int kProducerWarp = kConsumerWarps;
inline constexpr int kFinisherWarp = kConsumerWarps + 1;
inline constexpr int kRingThreads = (kConsumerWarps + 2) * 32;
inline constexpr int kConsumerThreads = kConsumerWarps * 32;
inline constexpr int kMaxStages = 10;
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

// Sums on their way from the consumer warps to the finisher go through a ring of their own.
inline constexpr int kMaxDotSlots = 4;

inline constexpr int kConsumerBarrier = 1;

inline constexpr uintptr_t kCopyAlignment = 16;  // of the copy engine

// ---- Pieces

inline constexpr int kPieceColumns = kLaneClasses * numerics::kV2TileColumns;
inline constexpr int kPieceGroups = kPieceColumns / numerics::kGroupValues;
inline constexpr int kPieceCodeBytes = kLaneClasses * numerics::kV2TileCodeBytes;
inline constexpr int kPieceScaleBytes = kLaneClasses * numerics::kV2TileScaleBytes;

// A stage: codes of both blocks, then scales of both.
inline constexpr int kStagePieces = 2;
inline constexpr int kBlockCodeBytes = kStagePieces * kPieceCodeBytes;
inline constexpr int kBlockScaleBytes = kStagePieces * kPieceScaleBytes;
inline constexpr int kV2StageBytes = 2 * (kBlockCodeBytes + kBlockScaleBytes);

// V1 has a row's codes and scales side by side. Rows lie apart in a stage, so that those of a block
// do not all begin in the same bank.
inline constexpr int kV1TileBytes =
    static_cast<int>(numerics::kV2TileColumns / numerics::kV1BlockValues * numerics::kV1BlockBytes);
inline constexpr int kV1PieceBytes = kLaneClasses * kV1TileBytes;  // of a row
inline constexpr int kV1RowBytes = kStagePieces * kV1PieceBytes;
inline constexpr int kV1RowStride = kV1RowBytes + 16;
inline constexpr int kV1StageBytes = 2 * kRowBlock * kV1RowStride;
static_assert(kV1StageBytes % 128 == 0);

__host__ __device__ constexpr int stage_bytes(Format format) {
  return format == Format::kV1 ? kV1StageBytes : kV2StageBytes;
}

__host__ __device__ constexpr int pieces_of(int64_t in) {
  return static_cast<int>((in + kPieceColumns - 1) / kPieceColumns);
}

// Activations of one operand in shared memory, padded to whole pieces: x, then d. The last 16 bytes
// put consecutive operands into different banks.
__host__ __device__ constexpr int operand_bytes(int pieces) {
  return pieces * (kPieceColumns + kPieceGroups * 4) + 16;
}

// What lanes without an activation of their own read: for four groups.
inline constexpr int kZeroBytes = 4 * static_cast<int>(numerics::kGroupValues);

// Most pairs that share one read and one decode of their weights: up to kNarrowRun by step_shared,
// beyond by step_wide.
inline constexpr int kNarrowRun = 4;
inline constexpr int kWideRun = 8;

// Sums of a lane for one unit: chains of two groups, for one operand of each block (dual), or for
// both blocks and every operand.
__host__ __device__ constexpr bool is_dual(int run) {
  return run == 1;
}
__host__ __device__ constexpr int lane_sums(int run) {
  return is_dual(run) ? 2 : 2 * run;
}
__host__ __device__ constexpr int dot_slots(int run) {
  // The sums of a wide run are many, and its units take long.
  return is_dual(run) ? kMaxDotSlots : run > kNarrowRun ? 1 : 2;
}
__host__ __device__ constexpr int dot_bytes(int run) {
  return kConsumerThreads * lane_sums(run) * 4;
}

// ---- Units

enum RingPhase : uint32_t { kGateUpPhase = 0, kDownPhase = 1 };
inline constexpr int kRounds = 2;

// What units one after another have in common: phase, round and, within them, activations.
struct Segment {
  uint32_t word;

  static __device__ __forceinline__ Segment of(RingPhase phase, int round, int index) {
    return {static_cast<uint32_t>(index) << 2 | static_cast<uint32_t>(round) << 1 | phase};
  }
  __device__ __forceinline__ bool gate_up() const { return (word & 1) == kGateUpPhase; }
  __device__ __forceinline__ int round() const { return static_cast<int>(word >> 1 & 1); }
  __device__ __forceinline__ int index() const { return static_cast<int>(word >> 2); }
};

// A unit of work on its way from the producer to consumers and finisher.
template <int kRun>
struct Unit {
  Segment segment;
  uint32_t live;      // 0: no weights, so nothing in the ring
  int32_t row_block;  // down: the first of two
  int32_t count;
  int32_t pair[kRun];
  float scale[2][kRun];  // of gate and up
};
// Of one pair, or of two slots of one token.
template <>
struct Unit<1> {
  Segment segment;
  uint32_t live;  // bit b: block b has weights
  int32_t row_block;
  int32_t token;
  int32_t slot;        // down: the first of two
  int32_t operand[2];  // places of activations
  float scale[2];
};

// The producer is at most all stages and all dot slots ahead of the finisher.
inline constexpr int kUnitSlots = 16;
static_assert(kUnitSlots > kMaxStages + kMaxDotSlots + 1);

// The runs of all pairs; wide runs are short of shared memory.
template <int kRun>
using Runs = RunTable<(kRun > kNarrowRun ? kMaxRoutedPairs / 2 : kMaxRoutedPairs)>;

// All threads arrive that have read or written: one a warp, behind a barrier of the warp, would do
// and is 2 % faster at some token counts, but the race checker follows threads.
struct RingBarriers {
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
  uint64_t dots_full[kMaxDotSlots];
  uint64_t dots_empty[kMaxDotSlots];
};

// How far a consumer warp has come: in shared memory, because bringing activations takes all
// registers there are.
struct Progress {
  int32_t stage;
  uint32_t parity;
  uint32_t unit;
  Segment segment;  // of that unit

  __device__ __forceinline__ RingPosition position() const {
    RingPosition at(parity);
    at.stage = stage;
    return at;
  }
  // By the whole warp.
  __device__ __forceinline__ void set(const RingPosition& at, uint32_t next_unit, Segment next,
                                      int lane) {
    __syncwarp();
    if (lane == 0) stage = at.stage, parity = at.parity, unit = next_unit, segment = next;
    __syncwarp();
  }
};

template <int kRun>
struct RingControl {
  RingBarriers barriers;
  Unit<kRun> units[kUnitSlots];
  Unit<kRun> dot_units[dot_slots(kRun)];
  Progress progress[kConsumerWarps];
  uint32_t n_units;                         // of the block
  Unit<kRun> finishing;                     // the finisher's own
  float act[kRun][numerics::kGroupValues];  // outputs that wait for the rest of their group
  uint32_t group[9];                        // the same quantised, and their d
};

// ---- Shared memory

struct RingShape {
  int stages;
  int operand_bytes;  // of all places of activations
};

// The hardware keeps 1 KB of an SM's shared memory for each block.
inline int64_t ring_dynamic_bytes(const Device& device, int64_t static_bytes) {
  constexpr int64_t kReserved = 1024;
  const int64_t of_sm = static_cast<int64_t>(device.shared_bytes_per_block) + kReserved;
  return of_sm / kRingBlocksPerSm - kReserved - static_bytes - 128;
}

inline RingShape make_ring_shape(int64_t dynamic_bytes, Format format, int run,
                                 int64_t operand_bytes) {
  const int64_t rest =
      dynamic_bytes - kZeroBytes - 128 - dot_slots(run) * dot_bytes(run) - operand_bytes;
  const int64_t stages = rest / stage_bytes(format);
  return {static_cast<int>(stages < kMaxStages ? stages : kMaxStages),
          static_cast<int>(operand_bytes)};
}

#if __CUDA_ARCH__ >= 900

// Addresses in shared memory; `begin` is that of the dynamic part.
template <int kRun>
struct RingMemory {
  uint32_t begin;
  uint32_t barriers;
  RingShape shape;

  __device__ __forceinline__ uint32_t dots(int slot) const {
    return begin + slot * dot_bytes(kRun);
  }
  __device__ __forceinline__ uint32_t zeros() const { return dots(dot_slots(kRun)); }
  __device__ __forceinline__ uint32_t operands() const { return zeros() + kZeroBytes; }
  __device__ __forceinline__ uint32_t ring() const {
    return (operands() + shape.operand_bytes + 127) / 128 * 128;
  }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return barriers + offsetof(RingBarriers, full) + stage * 8;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const {
    return barriers + offsetof(RingBarriers, empty) + stage * 8;
  }
  __device__ __forceinline__ uint32_t dots_full(int slot) const {
    return barriers + offsetof(RingBarriers, dots_full) + slot * 8;
  }
  __device__ __forceinline__ uint32_t dots_empty(int slot) const {
    return barriers + offsetof(RingBarriers, dots_empty) + slot * 8;
  }

  // By all threads; __syncthreads() follows.
  __device__ __forceinline__ void init() const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kZeroBytes / 4) store_shared(zeros() + thread * 4, 0u);
    const int i = thread - kProducerWarp * 32;
    if (i < 0 || i >= 32) return;
    if (i < shape.stages) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), kConsumerThreads);
    }
    if (i < dot_slots(kRun)) {
      barrier_init(dots_full(i), kConsumerThreads);
      barrier_init(dots_empty(i), 32);
    }
    barrier_init_fence();
  }
};

// ---- The producer

// What one lane copies of a unit, stage by stage. V2: lanes 0 and 1 copy codes, lanes 2 and 3
// scales, of block lane % 2. V1: each of 16 lanes a row, of block lane / 8.
struct UnitCopy {
  const uint8_t* from;
  uint32_t left;          // bytes
  uint32_t most;          // of a stage
  uint32_t stage_offset;  // in it

  // slab and row_block: those of the lane's block; a null slab where it has no weights.
  template <Format kFormat>
  static __device__ __forceinline__ UnitCopy of(int lane, const uint8_t* slab, int64_t rows,
                                                int64_t in, int64_t row_block) {
    UnitCopy copy;
    if constexpr (kFormat == Format::kV1) {
      const int64_t row_bytes = LayoutV1::row_bytes(in);
      copy.most = kV1RowBytes;
      copy.left = lane < 2 * kRowBlock && slab != nullptr ? static_cast<uint32_t>(row_bytes) : 0;
      copy.stage_offset = lane % (2 * kRowBlock) * kV1RowStride;
      copy.from = slab + (row_block * kRowBlock + lane % kRowBlock) * row_bytes;
    } else {
      const bool scales = lane >= 2;
      copy.most = scales ? kBlockScaleBytes : kBlockCodeBytes;
      copy.left = lane < 4 && slab != nullptr ? static_cast<uint32_t>(scales ? in / 2 : in * 4) : 0;
      copy.stage_offset = (scales ? 2 * kBlockCodeBytes : 0) + lane % 2 * copy.most;
      copy.from = slab + (scales ? LayoutV2::row_block_scales(rows, in, row_block)
                                 : LayoutV2::row_block_codes(in, row_block));
    }
    return copy;
  }
};

// Bytes of one block, codes and scales, in a stage that begins with `piece`.
__device__ __forceinline__ uint32_t stage_block_bytes(int in, int piece) {
  const int columns = min(in - piece * kPieceColumns, kStagePieces * kPieceColumns);
  return static_cast<uint32_t>(columns * (kPieceCodeBytes + kPieceScaleBytes) / kPieceColumns);
}

// What the producer warp goes through its work with.
template <int kRun>
struct Producer {
  RingControl<kRun>& control;
  const RingMemory<kRun>& memory;
  int lane;
  RingPosition at{1};
  int slot = 0;

  __device__ __forceinline__ Producer(RingControl<kRun>& c, const RingMemory<kRun>& m, int l)
      : control(c), memory(m), lane(l) {}

  // The next unit, for the lanes to write before they fill its stages.
  __device__ __forceinline__ Unit<kRun>& next_unit() {
    Unit<kRun>& unit = control.units[slot];
    slot = (slot + 1) % kUnitSlots;
    return unit;
  }

  // The unit's stages, by the whole warp: each of four lanes issues one of a stage's copies,
  // because one thread that issues them in turn cannot keep up. slab and row_block: of the block
  // that the lane copies; bit b of live: block b has weights. A unit without any takes a stage all
  // the same, because that is how it is announced.
  template <RowsArm kArm, Format kFormat>
  __device__ __forceinline__ void fill(int64_t rows, int64_t in, const uint8_t* slab,
                                       int64_t row_block, uint32_t live) {
    constexpr bool kCopy = kArm != RowsArm::kMathOnly;
    const int columns = static_cast<int>(in), pieces = live != 0 ? pieces_of(in) : 1;
    if constexpr (kFormat == Format::kV1) {
      slab = reinterpret_cast<const uint8_t*>(
          __shfl_sync(~0u, reinterpret_cast<unsigned long long>(slab), lane / kRowBlock % 2));
    }
    UnitCopy copy = UnitCopy::of<kFormat>(lane, slab, rows, in, row_block);
    // A V1 slab may begin at any word; the copy engine takes 16 bytes at least.
    const bool by_hand = kFormat == Format::kV1 && kCopy &&
                         __any_sync(~0u, reinterpret_cast<uintptr_t>(slab) % kCopyAlignment != 0);
    __syncwarp();  // the unit has been written
    for (int piece = 0; piece < pieces; piece += kStagePieces) {
      const uint32_t full = memory.full(at.stage);
      const uint32_t to = memory.ring() + at.stage * stage_bytes(kFormat) + copy.stage_offset;
      const uint32_t bytes = min(copy.left, copy.most);
      const uint32_t expected = __popc(live) * stage_block_bytes(columns, piece);
      barrier_wait(memory.empty(at.stage), at.parity);
      __syncwarp();
      if (by_hand) {
        for (uint32_t i = 0; i < bytes; i += 4)
          store_shared(to + i, *reinterpret_cast<const uint32_t*>(copy.from + i));
        copy_engine_fence();  // before it fills the stage the next time
        __syncwarp();
      }
      if (lane == 0) {
        if (kCopy && live != 0 && !by_hand) {
          barrier_arrive_expect(full, expected);
        } else {
          barrier_arrive(full);
        }
      }
      __syncwarp();
      if (kCopy && bytes != 0 && !by_hand) bulk_load(to, copy.from, bytes, full);
      copy.from += bytes;
      copy.left -= bytes;
      at.advance(memory.shape.stages);
    }
  }
};

#endif

}  // namespace memra::cuda
