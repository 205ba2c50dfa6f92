// Down for V2 and lane-major activations on sm_90 and later (rows_ring.cuh has the idea).
//
// For few tokens a unit is 8 rows of two slots of one token, each with its own pair's activations.
// A block takes a contiguous range of (token, row block), all slots of each in order, so that its
// operands, all pairs of a token, hardly ever change; the finisher adds the slots up in order.
//
// For more tokens a unit is 16 rows of one slab for all pairs of a run, read and decoded once. Its
// dots go to memory, and rows_combine.cu adds the slots up.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"
#include "rows_ring.cuh"
#include "rows_ring_operands.cuh"

namespace memra::cuda {
namespace {

template <int kRun>
struct Unit {
  int32_t count;      // of pairs; 0: no more
  int32_t row_block;  // the first of two
  int32_t run;
  int32_t pair[kRun];
};
template <>
struct Unit<1> {
  int32_t token;  // -1: no more
  int32_t row_block;
  int32_t slot;   // the first of two
  uint32_t live;  // bit b: block b has weights
  float scale[2];
};

template <int kRun>
struct Control {
  RingControl ring;
  Unit<kRun> units[kUnitSlots];
  Unit<kRun> dot_units[kMaxDotSlots];
  Unit<kRun> finishing;  // the finisher's own
  RunTable runs;
};
template <>
struct Control<1> {
  RingControl ring;
  Unit<1> units[kUnitSlots];
  Unit<1> dot_units[kMaxDotSlots];
};

#if __CUDA_ARCH__ >= 900

template <int kRun>
using Memory = RingMemory<kRun, kRun == 1>;

template <RowsArm kArm>
__device__ __forceinline__ void produce(const DownParams& p, Control<1>& c, const Memory<1>& m,
                                        const UnitRange& range, int lane) {
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const int top_k = static_cast<int>(p.top_k);
  const int block = lane % 2;
  RingPosition at(1);
  int slot = 0;
  uint32_t token = static_cast<uint32_t>(range.begin / row_blocks);
  uint32_t row_block = static_cast<uint32_t>(range.begin - int64_t{token} * row_blocks);
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int s = 0; s < top_k; s += 2) {
      // Lanes of block 1 have nothing where the number of slots is odd.
      PairPlane plane{nullptr, 0.0f};
      if (s + block < top_k) plane = pair_plane(p, int64_t{token} * top_k + s + block);
      const uint32_t live = __ballot_sync(~0u, plane.slab != nullptr) & 3u;
      const float scale1 = __shfl_sync(~0u, plane.scale, 1);
      if (lane == 0) {
        c.units[slot] = {
            static_cast<int>(token), static_cast<int>(row_block), s, live, {plane.scale, scale1}};
      }
      slot = (slot + 1) % kUnitSlots;
      fill_stages<kArm>(p, m, at, plane.slab, row_block, live, lane);
    }
    if (++row_block == row_blocks) row_block = 0, ++token;
  }
  if (lane == 0) c.units[slot].token = -1;
  announce_end(m, at, lane);
}

template <int kRun, RowsArm kArm>
__device__ __forceinline__ void produce_runs(const DownParams& p, Control<kRun>& c,
                                             const Memory<kRun>& m, const UnitRange& range,
                                             int lane) {
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const uint32_t steps = (row_blocks + 1) / 2;
  RingPosition at(1);
  int slot = 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int run = static_cast<int>(i / steps);
    const uint32_t row_block = 2 * static_cast<uint32_t>(i - int64_t{run} * steps);
    const int first = c.runs.first[run], count = c.runs.first[run + 1] - first;
    const int pair = c.runs.order[first + min(lane, count - 1)];
    const PairPlane plane = pair_plane(p, pair);
    Unit<kRun>& unit = c.units[slot];
    if (lane == 0) {
      unit.count = count;
      unit.row_block = static_cast<int>(row_block);
      unit.run = run;
    }
    if (lane < count) unit.pair[lane] = pair;
    slot = (slot + 1) % kUnitSlots;
    // Where rows end with a single block, it is read twice.
    fill_stages<kArm>(p, m, at, plane.slab, min(row_block + lane % 2, row_blocks - 1), 3, lane);
  }
  if (lane == 0) c.units[slot].count = 0;
  announce_end(m, at, lane);
}

template <bool kFull, RowsArm kArm>
__device__ __forceinline__ void consume(const DownParams& p, Control<1>& c, const Memory<1>& m,
                                        int first_token, int warp, int lane) {
  const int top_k = static_cast<int>(p.top_k);
  int token = first_token;
  const auto load = [&] {
    if constexpr (kArm != RowsArm::kLoadOnly) {
      load_operands(m, {}, p.q, p.d, p.in, top_k,
                    [&](int i) { return int64_t{token} * top_k + i; });
    }
  };
  load();
  const auto begin_unit = [&](uint32_t i, uint32_t& x0, uint32_t& x1) {
    const Unit<1>& unit = c.units[i % kUnitSlots];
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
  consume_dual<kFull, kArm>(p.in, m, warp, lane, begin_unit, [&](uint32_t i, uint32_t slot) {
    hand_over(c.units[i % kUnitSlots], c.dot_units[slot], lane);
  });
}

template <int kRun, bool kFull, RowsArm kArm>
__device__ __forceinline__ void consume_runs(const DownParams& p, Control<kRun>& c,
                                             const Memory<kRun>& m, int warp, int lane) {
  int run = -1;
  const auto begin_unit = [&](uint32_t i, int& count) {
    const Unit<kRun>& unit = c.units[i % kUnitSlots];
    count = unit.count;
    if (count == 0) return kEndOfUnits;
    if (unit.run != run) {
      run = unit.run;
      named_sync(kConsumerBarrier, kOperandThreads);
      load_operands(m, {}, p.q, p.d, p.in, count, [&](int j) { return int64_t{unit.pair[j]}; });
    }
    return m.shape.pieces;
  };
  consume_shared<kRun, kFull, kArm>(p.in, m, warp, lane, begin_unit,
                                    [&](uint32_t i, uint32_t slot) {
                                      hand_over(c.units[i % kUnitSlots], c.dot_units[slot], lane);
                                    });
}

template <RowsArm kArm>
__device__ __forceinline__ void finish(const DownParams& p, const Control<1>& c, const Memory<1>& m,
                                       int lane) {
  float y = 0.0f;
  for (uint32_t i = 0;; ++i) {
    const uint32_t slot = i % dot_slots(true);
    named_sync(kFirstDotBarrier + slot, kDotThreads);
    const Unit<1> unit = c.dot_units[slot];
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

template <int kRun, RowsArm kArm>
__device__ __forceinline__ void finish_runs(const DownParams& p, Control<kRun>& c,
                                            const Memory<kRun>& m, int lane) {
  constexpr int kPairs = kRun / 2;
  const int t = lane % 4;
  for (uint32_t i = 0;; ++i) {
    const uint32_t slot = i % dot_slots(false);
    named_sync(kFirstDotBarrier + slot, kDotThreads);
    __syncwarp();  // the unit before has been read
    hand_over(c.dot_units[slot], c.finishing, lane);
    __syncwarp();
    const Unit<kRun>& unit = c.finishing;
    if (unit.count == 0) return;
    float dot[kPairs];
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const float2 both = shared_dots<kArm>(m, slot, n, lane);
      dot[n] = t % 2 == 0 ? both.x : both.y;
    }
    barrier_arrive(m.dots_empty(slot));
    const int64_t row = (static_cast<int64_t>(unit.row_block) + t % 2) * kRowBlock + lane / 4;
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int j = 2 * n + t / 2;
      if (j < unit.count && row < p.rows) p.dots[unit.pair[j] * p.rows + row] = dot[n];
    }
  }
}

#endif  // __CUDA_ARCH__ >= 900

template <int kRun, bool kFull, RowsArm kArm>
__global__ void __launch_bounds__(kRingThreads, kRingBlocksPerSm)
    down_ring_kernel([[maybe_unused]] const __grid_constant__ DownParams p,
                     [[maybe_unused]] RingShape shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ Control<kRun> c;
  const Memory<kRun> m{opaque(shared_address(shared)), opaque(shared_address(&c)), shape};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  m.init();
  __syncthreads();
  const int64_t row_blocks = p.rows / kRowBlock;
  int64_t n_units = p.tokens * row_blocks;
  if constexpr (kRun > 1) {
    if (!p.prefetch) dependency_wait();
    RunScratch& scratch = *reinterpret_cast<RunScratch*>(shared + (m.ring() - m.begin));
    build_runs<kRun>(p.route, static_cast<int>(p.tokens * p.top_k), c.runs, scratch);
    copy_engine_fence();
    __syncthreads();
    n_units = c.runs.n_runs * ((row_blocks + 1) / 2);
  }
  const UnitRange range(n_units);
  if (warp == kProducerWarp) {
    if (!p.prefetch) dependency_wait();
    if constexpr (kRun == 1) {
      produce<kArm>(p, c, m, range, lane);
    } else {
      produce_runs<kRun, kArm>(p, c, m, range, lane);
    }
    return;
  }
  dependency_wait();
  dependency_release();
  if constexpr (kRun == 1) {
    if (warp == kFinisherWarp) {
      finish<kArm>(p, c, m, lane);
    } else {
      consume<kFull, kArm>(p, c, m, static_cast<int>(range.begin / row_blocks), warp, lane);
    }
  } else {
    if (warp == kFinisherWarp) {
      finish_runs<kRun, kArm>(p, c, m, lane);
    } else {
      consume_runs<kRun, kFull, kArm>(p, c, m, warp, lane);
    }
  }
#endif
}

struct RingKernel {
  RowsArm arm;
  int run;
  bool full;
  void (*kernel)(DownParams, RingShape);
};

template <int kRun, bool kFull, RowsArm kArm>
constexpr RingKernel entry() {
  return {kArm, kRun, kFull, down_ring_kernel<kRun, kFull, kArm>};
}

constexpr RingKernel kKernels[] = {
    entry<1, true, RowsArm::kServed>(),       entry<1, false, RowsArm::kServed>(),
    entry<kMaxRun, true, RowsArm::kServed>(), entry<kMaxRun, false, RowsArm::kServed>(),
    entry<1, true, RowsArm::kLoadOnly>(),     entry<1, false, RowsArm::kLoadOnly>(),
    entry<1, true, RowsArm::kMathOnly>(),     entry<1, false, RowsArm::kMathOnly>(),
};

int64_t control_bytes(int run) {
  return run == 1 ? sizeof(Control<1>) : sizeof(Control<kMaxRun>);
}

// Places of activations: all pairs of a token, or those of a run.
RingShape ring_shape(const Device& device, int run, int64_t in, int64_t top_k) {
  const bool dual = run == 1;
  return make_ring_shape(ring_dynamic_bytes(device, control_bytes(run)), in,
                         dual ? static_cast<int>(top_k) : run,
                         dot_slots(dual) * dot_bytes(run, dual));
}

}  // namespace

Status down_ring_load(const Device& device) {
  if (device.compute_capability < 90) return MEMRA_OK;
  for (const RingKernel& k : kKernels) {
    const int64_t bytes = ring_dynamic_bytes(device, control_bytes(k.run));
    MEMRA_TRY(load_kernel(k.kernel, static_cast<size_t>(bytes)));
  }
  return MEMRA_OK;
}

bool down_ring_fits(const Device& device, int64_t intermediate_size, int64_t top_k) {
  return device.compute_capability >= 90 &&
         ring_shape(device, 1, intermediate_size, top_k).stages >= kMinStages;
}

bool down_ring_shares(const Device& device, int64_t intermediate_size) {
  return device.compute_capability >= 90 &&
         ring_shape(device, kMaxRun, intermediate_size, 0).stages >= kMinStages;
}

Status down_ring(const Device& device, RowsArm arm, const DownParams& params,
                 const Launch& launch) {
  const int run = params.dots != nullptr ? kMaxRun : 1;
  const RingShape shape = ring_shape(device, run, params.in, params.top_k);
  const int64_t n_units = params.tokens * (params.rows / kRowBlock);
  const int64_t most = static_cast<int64_t>(kRingBlocksPerSm) * device.n_multiprocessors;
  const Grid grid{dim3(static_cast<unsigned>(n_units < most ? n_units : most)), dim3(kRingThreads),
                  static_cast<size_t>(ring_dynamic_bytes(device, control_bytes(run)))};
  const bool full = params.in % (kStagePieces * kPieceColumns) == 0;
  for (const RingKernel& k : kKernels) {
    if (k.arm == arm && k.run == run && k.full == full) {
      return launch_kernel(device, launch, grid, k.kernel, params, shape);
    }
  }
  return fail(MEMRA_ERROR_INTERNAL) << "no ring kernel of this arm";
}

}  // namespace memra::cuda
