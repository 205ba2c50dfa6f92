// Gate and up for V2 and lane-major activations on sm_90 and later (rows_ring.cuh has the idea).
//
// A unit is 8 outputs: 8 rows of gate (block 0) and the same rows of up (block 1), for the pairs of
// one run, which share their slabs. A block takes a contiguous range of units, so it hardly ever
// meets other activations, which stay in shared memory.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"
#include "rows_ring.cuh"
#include "rows_ring_operands.cuh"

namespace memra::cuda {
namespace {

struct Unit {
  int32_t pair;  // -1: no more
  int32_t row_block;
  int32_t token;
  int32_t operand;  // the place of its activations
  float gate_scale;
  float up_scale;
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
__device__ __forceinline__ void produce(const GateUpParams& p, Control& c, const Memory& m,
                                        int64_t begin, int64_t end, int lane) {
  constexpr bool kCopy = kArm != RowsArm::kMathOnly;
  if (!p.prefetch) dependency_wait();
  bool waited = !p.prefetch;
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const int top_k = static_cast<int>(p.top_k);
  const bool all_resident = p.n_pairs <= int64_t{m.shape.operands} * top_k;
  uint32_t position = static_cast<uint32_t>(begin / row_blocks);
  uint32_t row_block = static_cast<uint32_t>(begin - int64_t{position} * row_blocks);
  RingPosition at(1);
  int slot = 0;
  Unit unit{};
  const uint8_t* slab = nullptr;  // of the block that this lane copies
  bool live = false;
  bool fresh = true;
  for (int64_t i = begin; i < end; ++i) {
    if (fresh) {
      fresh = false;
      const int pair = p.order != nullptr ? p.order[position] : static_cast<int>(position);
      const uint8_t* gate = slab_of(p.ptrs, p.n_pairs, kGate, pair);
      const uint8_t* up = slab_of(p.ptrs, p.n_pairs, kUp, pair);
      unit.pair = pair;
      unit.token = pair / top_k;
      unit.operand = all_resident ? unit.token : 0;
      unit.gate_scale = p.scales[kGate * p.n_pairs + pair];
      unit.up_scale = p.scales[kUp * p.n_pairs + pair];
      live = gate != nullptr && up != nullptr;
      slab = lane % 2 == 0 ? gate : up;
    }
    if (live) {
      unit.row_block = static_cast<int>(row_block);
      if (lane == 0) c.units[slot] = unit;
      slot = (slot + 1) % kUnitSlots;
      for (int piece = 0; piece < m.shape.pieces; piece += kStagePieces) {
        const uint32_t full = m.full(at.stage);
        barrier_wait(m.empty(at.stage), at.parity);
        __syncwarp();
        if (lane == 0) {
          if (kCopy) {
            barrier_arrive_expect(full, 2 * stage_block_bytes(p.in, piece));
          } else {
            barrier_arrive(full);
          }
        }
        __syncwarp();
        if (kCopy && lane < 4) {
          const PieceCopy copy(lane, p.rows, p.in, row_block, piece);
          bulk_load(m.ring() + at.stage * kStageBytes + copy.stage_offset, slab + copy.slab_offset,
                    copy.bytes, full);
        }
        at.advance(m.shape.stages);
      }
    } else {
      if (!waited) dependency_wait();
      waited = true;
      if (lane < kRowBlock) p.out[unit.pair * p.rows + row_block * kRowBlock + lane] = 0.0f;
    }
    if (++row_block == row_blocks) row_block = 0, ++position, fresh = true;
  }
  if (lane == 0) {
    c.units[slot].pair = -1;
    barrier_wait(m.empty(at.stage), at.parity);
    barrier_arrive(m.full(at.stage));
  }
}

template <bool kFull, RowsArm kArm>
__device__ __forceinline__ void consume(const GateUpParams& p, const Control& c, const Memory& m,
                                        int warp, int lane) {
  const int tokens = static_cast<int>(p.n_pairs / p.top_k);
  const bool all_resident = tokens <= m.shape.operands;
  int token = -1;
  if (kArm != RowsArm::kLoadOnly && all_resident) load_operands(m, p.q, p.d, p.in, 0, tokens);
  const auto begin_unit = [&](uint32_t i, uint32_t& x0, uint32_t& x1) {
    const Unit& unit = c.units[i % kUnitSlots];
    if (unit.pair < 0) return kEndOfUnits;
    if (kArm != RowsArm::kLoadOnly && !all_resident && unit.token != token) {
      token = unit.token;
      named_sync(kConsumerBarrier, kOperandThreads);
      load_operands(m, p.q, p.d, p.in, token, 1);
    }
    x0 = x1 = m.operand(unit.operand);
    return m.shape.pieces;
  };
  consume_dual<kFull, kArm>(p.in, m, warp, lane, begin_unit);
}

template <RowsArm kArm>
__device__ __forceinline__ void finish(const GateUpParams& p, const Control& c, const Memory& m,
                                       int lane) {
  for (uint32_t i = 0;; ++i) {
    const uint32_t slot = i % dot_slots(true);
    named_sync(kFirstDotBarrier + slot, kDotThreads);
    const Unit unit = c.units[i % kUnitSlots];
    if (unit.pair < 0) return;
    const float dot = take_dual_dots<kArm>(m, slot, lane);
    const float up = __shfl_xor_sync(~0u, dot, 2);
    const int64_t row = static_cast<int64_t>(unit.row_block) * kRowBlock + lane / 4;
    if constexpr (kArm == RowsArm::kLoadOnly) {
      if (probe_escape(dot) && probe_escape(up)) p.out[row] = dot;
    } else if (lane % 4 == 0) {
      const int64_t pair = unit.pair;
      p.out[pair * p.rows + row] =
          gate_up_output(p, pair, row, unit.gate_scale, unit.up_scale, dot, up);
    }
  }
}

#endif  // __CUDA_ARCH__ >= 900

template <bool kFull, RowsArm kArm>
__global__ void __launch_bounds__(kRingThreads, kRingBlocksPerSm)
    gate_up_ring_kernel([[maybe_unused]] const __grid_constant__ GateUpParams p,
                        [[maybe_unused]] RingShape shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ Control c;
  const Memory m{opaque(shared_address(shared)), opaque(shared_address(&c)), shape};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  m.init();
  __syncthreads();
  const int64_t n_units = p.n_pairs * (p.rows / kRowBlock);
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
      consume<kFull, kArm>(p, c, m, warp, lane);
    }
  }
#endif
}

struct RingKernel {
  RowsArm arm;
  bool full;
  void (*kernel)(GateUpParams, RingShape);
};

template <bool kFull, RowsArm kArm>
constexpr RingKernel entry() {
  return {kArm, kFull, gate_up_ring_kernel<kFull, kArm>};
}

constexpr RingKernel kKernels[] = {
    entry<true, RowsArm::kServed>(),    entry<false, RowsArm::kServed>(),
    entry<true, RowsArm::kLoadOnly>(),  entry<false, RowsArm::kLoadOnly>(),
    entry<true, RowsArm::kMathOnly>(),  entry<false, RowsArm::kMathOnly>(),
};

int64_t dynamic_bytes(const Device& device) {
  return ring_dynamic_bytes(device, sizeof(Control));
}

RingShape ring_shape(const Device& device, int64_t in, int64_t tokens) {
  constexpr int kMostOperands = 4;
  constexpr int kEnoughStages = 6;
  const auto with = [&](int operands) {
    return make_ring_shape(dynamic_bytes(device), in, operands, dot_slots(true) * dot_bytes(1, true));
  };
  if (tokens <= kMostOperands) {
    const RingShape shape = with(static_cast<int>(tokens));
    if (shape.stages >= kEnoughStages) return shape;
  }
  return with(1);
}

}  // namespace

Status gate_up_ring_load(const Device& device) {
  if (device.compute_capability < 90) return MEMRA_OK;
  for (const RingKernel& k : kKernels) {
    MEMRA_TRY(load_kernel(k.kernel, static_cast<size_t>(dynamic_bytes(device))));
  }
  return MEMRA_OK;
}

bool gate_up_ring_fits(const Device& device, int64_t hidden_size) {
  return device.compute_capability >= 90 &&
         ring_shape(device, hidden_size, 1).stages >= kMinStages;
}

Status gate_up_ring(const Device& device, RowsArm arm, const GateUpParams& params,
                    const Launch& launch) {
  const RingShape shape = ring_shape(device, params.in, params.n_pairs / params.top_k);
  const int64_t n_units = params.n_pairs * (params.rows / kRowBlock);
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
