// Down for V2 and lane-major activations on sm_90 and later (rows_ring.cuh has the idea).
//
// A unit is 8 rows of two slots of one token, with the activations of those two pairs. A block
// takes a contiguous range of (token, row block), all slots of each in order, so that its operands,
// all pairs of a token, hardly ever change; the finisher adds the slots up in order.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"
#include "rows_ring.cuh"
#include "rows_ring_operands.cuh"

namespace memra::cuda {
namespace {

struct Unit {
  int32_t token;  // -1: no more
  int32_t row_block;
  int32_t slot;     // the first of two
  uint32_t live;    // bit b: block b has weights
  float scale[2];
};

struct Control {
  RingControl ring;
  Unit units[kUnitSlots];
};

#if __CUDA_ARCH__ >= 900

using Memory = RingMemory<1, true>;

// The whole warp runs this: each of four lanes issues one of a stage's copies, because one thread
// that issues them in turn cannot keep up.
template <RowsArm kArm>
__device__ __forceinline__ void produce(const DownParams& p, Control& c, const Memory& m,
                                        int64_t begin, int64_t end, int lane) {
  constexpr bool kCopy = kArm != RowsArm::kMathOnly;
  if (!p.prefetch) dependency_wait();
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const int top_k = static_cast<int>(p.top_k);
  const int64_t n_pairs = p.tokens * p.top_k;
  const int block = lane % 2;
  RingPosition at(1);
  int slot = 0;
  uint32_t token = static_cast<uint32_t>(begin / row_blocks);
  uint32_t row_block = static_cast<uint32_t>(begin - int64_t{token} * row_blocks);
  for (int64_t i = begin; i < end; ++i) {
    for (int s = 0; s < top_k; s += 2) {
      // Lanes of block 1 have nothing where the number of slots is odd.
      const uint8_t* slab = nullptr;
      float scale = 0.0f;
      if (s + block < top_k) {
        const int64_t pair = int64_t{token} * top_k + s + block;
        slab = slab_of(p.ptrs, n_pairs, kDown, pair);
        scale = p.scales[kDown * n_pairs + pair];
      }
      const uint32_t live = __ballot_sync(~0u, slab != nullptr) & 3u;
      const float scale1 = __shfl_sync(~0u, scale, 1);
      if (lane == 0) {
        c.units[slot] = {static_cast<int>(token), static_cast<int>(row_block), s, live,
                         {scale, scale1}};
      }
      slot = (slot + 1) % kUnitSlots;
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
    if (++row_block == row_blocks) row_block = 0, ++token;
  }
  if (lane == 0) {
    c.units[slot].token = -1;
    barrier_wait(m.empty(at.stage), at.parity);
    barrier_arrive(m.full(at.stage));
  }
}

template <bool kFull, RowsArm kArm>
__device__ __forceinline__ void consume(const DownParams& p, const Control& c, const Memory& m,
                                        int first_token, int warp, int lane) {
  const int top_k = static_cast<int>(p.top_k);
  int token = first_token;
  const auto load = [&] {
    if constexpr (kArm != RowsArm::kLoadOnly) {
      load_operands(m, p.q, p.d, p.in, int64_t{token} * top_k, top_k);
    }
  };
  load();
  const auto begin_unit = [&](uint32_t i, uint32_t& x0, uint32_t& x1) {
    const Unit& unit = c.units[i % kUnitSlots];
    if (unit.token < 0) return kEndOfUnits;
    if (unit.live == 0) return 0;
    if (unit.token != token) {
      token = unit.token;
      named_sync(kConsumerBarrier, kOperandThreads);
      load();
    }
    x0 = m.operand(unit.slot);
    x1 = m.operand(min(unit.slot + 1, top_k - 1));
    return m.shape.pieces;
  };
  consume_dual<kFull, kArm>(p.in, m, warp, lane, begin_unit);
}

template <RowsArm kArm>
__device__ __forceinline__ void finish(const DownParams& p, const Control& c, const Memory& m,
                                       int lane) {
  float y = 0.0f;
  for (uint32_t i = 0;; ++i) {
    const uint32_t slot = i % dot_slots(true);
    named_sync(kFirstDotBarrier + slot, kDotThreads);
    const Unit unit = c.units[i % kUnitSlots];
    if (unit.token < 0) return;
    const float own = take_dual_dots<kArm>(m, slot, lane);
    const float other = __shfl_xor_sync(~0u, own, 2);
    const int64_t row = static_cast<int64_t>(unit.row_block) * kRowBlock + lane / 4;
    const int64_t to = unit.token * p.y_stride + row;
    if constexpr (kArm == RowsArm::kLoadOnly) {
      if (probe_escape(own) && probe_escape(other)) store_y(p, to, 0.0f);
    } else if (lane % 4 == 0) {
      if (unit.slot == 0) y = p.accumulate ? load_y(p, to) : 0.0f;
      const int64_t pair = unit.token * p.top_k + unit.slot;
      if ((unit.live & 1) != 0) y = down_slot(p, pair, row, unit.scale[0], own, y);
      if ((unit.live & 2) != 0) y = down_slot(p, pair + 1, row, unit.scale[1], other, y);
      if (unit.slot + 2 >= p.top_k) store_y(p, to, y);
    }
  }
}

#endif  // __CUDA_ARCH__ >= 900

template <bool kFull, RowsArm kArm>
__global__ void __launch_bounds__(kRingThreads, kRingBlocksPerSm)
    down_ring_kernel([[maybe_unused]] const __grid_constant__ DownParams p,
                     [[maybe_unused]] RingShape shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ Control c;
  const Memory m{opaque(shared_address(shared)), opaque(shared_address(&c)), shape};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  m.init();
  __syncthreads();
  const int64_t row_blocks = p.rows / kRowBlock;
  const int64_t n_units = p.tokens * row_blocks;
  const int64_t begin = n_units * blockIdx.x / gridDim.x;
  const int64_t end = n_units * (blockIdx.x + 1) / gridDim.x;
  if (warp == kProducerWarp) {
    produce<kArm>(p, c, m, begin, end, lane);
  } else {
    dependency_wait();
    dependency_release();
    if (warp == kFinisherWarp) {
      finish<kArm>(p, c, m, lane);
    } else {
      consume<kFull, kArm>(p, c, m, static_cast<int>(begin / row_blocks), warp, lane);
    }
  }
#endif
}

struct RingKernel {
  RowsArm arm;
  bool full;
  void (*kernel)(DownParams, RingShape);
};

template <bool kFull, RowsArm kArm>
constexpr RingKernel entry() {
  return {kArm, kFull, down_ring_kernel<kFull, kArm>};
}

constexpr RingKernel kKernels[] = {
    entry<true, RowsArm::kServed>(),    entry<false, RowsArm::kServed>(),
    entry<true, RowsArm::kLoadOnly>(),  entry<false, RowsArm::kLoadOnly>(),
    entry<true, RowsArm::kMathOnly>(),  entry<false, RowsArm::kMathOnly>(),
};

int64_t dynamic_bytes(const Device& device) {
  return ring_dynamic_bytes(device, sizeof(Control));
}

RingShape ring_shape(const Device& device, int64_t in, int64_t top_k) {
  return make_ring_shape(dynamic_bytes(device), in, static_cast<int>(top_k),
                         dot_slots(true) * dot_bytes(1, true));
}

}  // namespace

Status down_ring_load(const Device& device) {
  if (device.compute_capability < 90) return MEMRA_OK;
  for (const RingKernel& k : kKernels) {
    MEMRA_TRY(load_kernel(k.kernel, static_cast<size_t>(dynamic_bytes(device))));
  }
  return MEMRA_OK;
}

bool down_ring_fits(const Device& device, int64_t intermediate_size, int64_t top_k) {
  return device.compute_capability >= 90 &&
         ring_shape(device, intermediate_size, top_k).stages >= kMinStages;
}

Status down_ring(const Device& device, RowsArm arm, const DownParams& params,
                 const Launch& launch) {
  const RingShape shape = ring_shape(device, params.in, params.top_k);
  const int64_t n_units = params.tokens * (params.rows / kRowBlock);
  const int64_t most = static_cast<int64_t>(kRingBlocksPerSm) * device.n_multiprocessors;
  const Grid grid{dim3(static_cast<unsigned>(n_units < most ? n_units : most)), dim3(kRingThreads),
                  static_cast<size_t>(dynamic_bytes(device))};
  const bool full = params.in % (kStagePieces * kPieceColumns) == 0;
  for (const RingKernel& k : kKernels) {
    if (k.arm == arm && k.full == full) {
      return launch_kernel(device, launch, grid, k.kernel, params, shape);
    }
  }
  return fail(MEMRA_ERROR_INTERNAL) << "no ring kernel of this arm";
}

}  // namespace memra::cuda
