// Gate and up for V2 and lane-major activations on sm_90 and later (rows_ring.cuh has the idea).
//
// A unit is 8 outputs of each pair of one run: 8 rows of gate (block 0) and the same rows of up
// (block 1), read and decoded once for all pairs that share them. A block takes a contiguous range
// of units, so it hardly ever meets other activations, which stay in shared memory.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"
#include "rows_ring.cuh"
#include "rows_ring_operands.cuh"

namespace memra::cuda {
namespace {

constexpr int kGroupUnits = static_cast<int>(numerics::kGroupValues) / kRowBlock;

template <int kRun>
struct Unit {
  int32_t count;  // of pairs; 0: no more
  int32_t row_block;
  int32_t run;  // changes where the pairs do
  int32_t pair[kRun];
  float scale[2][kRun];
  int32_t operand;  // the place of its activations, of one pair alone
};

template <int kRun>
struct Control {
  RingControl ring;
  Unit<kRun> units[kUnitSlots];
  Unit<kRun> dot_units[kMaxDotSlots];
  Unit<kRun> finishing;                     // the finisher's own
  float act[kRun][numerics::kGroupValues];  // outputs that wait for the rest of their group
};
template <int kRun>
struct SharedControl : Control<kRun> {
  RunTable runs;
};
template <>
struct SharedControl<1> : Control<1> {};

#if __CUDA_ARCH__ >= 900

template <int kRun>
using Memory = RingMemory<kRun, kRun == 1>;

// Whether shared memory has a place for every token.
template <int kRun>
__device__ __forceinline__ bool all_resident(const GateUpParams& p, const Memory<kRun>& m) {
  return kRun == 1 && p.n_pairs <= m.shape.operands * p.top_k;
}

// What lane i of the producer knows of pair i of a run.
struct Source {
  int pair;
  PairPlane gate, up;

  __device__ __forceinline__ bool live() const {
    return gate.slab != nullptr && up.slab != nullptr;
  }
};

template <int kRun, RowsArm kArm>
__device__ __forceinline__ void produce(const GateUpParams& p, SharedControl<kRun>& c,
                                        const Memory<kRun>& m, const UnitRange& range, int lane) {
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const int top_k = static_cast<int>(p.top_k);
  const bool resident = all_resident<kRun>(p, m);
  bool waited = !p.prefetch;
  int run = static_cast<int>(range.begin / row_blocks);
  uint32_t row_block = static_cast<uint32_t>(range.begin - int64_t{run} * row_blocks);
  RingPosition at(1);
  int slot = 0;
  int count = 1;
  Source source{};
  const uint8_t* slab = nullptr;  // of the block that this lane copies
  bool live = false;
  bool fresh = true;
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (fresh) {
      fresh = false;
      if constexpr (kRun == 1) {
        source.pair = p.order != nullptr ? p.order[run] : run;
      } else {
        const int first = c.runs.first[run];
        count = c.runs.first[run + 1] - first;
        source.pair = c.runs.order[first + min(lane, count - 1)];
      }
      source.gate = pair_plane(p, kGate, source.pair);
      source.up = pair_plane(p, kUp, source.pair);
      // All lanes have slabs, or none has.
      live = source.live();
      slab = lane % 2 == 0 ? source.gate.slab : source.up.slab;
    }
    if (live) {
      Unit<kRun>& unit = c.units[slot];
      if (lane == 0) {
        unit.count = count;
        unit.row_block = static_cast<int>(row_block);
        unit.run = run;
      }
      if (lane < count) {
        unit.pair[lane] = source.pair;
        unit.scale[0][lane] = source.gate.scale;
        unit.scale[1][lane] = source.up.scale;
        if (kRun == 1) unit.operand = resident ? source.pair / top_k : 0;
      }
      slot = (slot + 1) % kUnitSlots;
      __builtin_assume(slab != nullptr);
      fill_stages<kArm>(p, m, at, slab, row_block, 3, lane);
    } else if (p.out_q == nullptr) {
      if (!waited) dependency_wait();
      waited = true;
      for (int j = 0; j < count; ++j) {
        const int64_t pair = __shfl_sync(~0u, source.pair, j);
        if (lane < kRowBlock) p.out[pair * p.rows + row_block * kRowBlock + lane] = 0.0f;
      }
    }
    if (++row_block == row_blocks) row_block = 0, ++run, fresh = true;
  }
  if (lane == 0) c.units[slot].count = 0;
  announce_end(m, at, lane);
}

template <int kRun, bool kFull, RowsArm kArm>
__device__ __forceinline__ void consume(const GateUpParams& p, SharedControl<kRun>& c,
                                        const Memory<kRun>& m, int warp, int lane) {
  constexpr int kNever = -2;
  int run = -1;
  if (kArm == RowsArm::kLoadOnly) {
    run = kNever;
  } else if (all_resident<kRun>(p, m)) {
    run = kNever;
    load_operands(m, p.source, p.q, p.d, p.in, static_cast<int>(p.n_pairs / p.top_k),
                  [](int i) { return int64_t{i}; });
  }
  const auto begin = [&](const Unit<kRun>& unit) {
    if (unit.count == 0) return kEndOfUnits;
    if (unit.run != run && run != kNever) {
      run = unit.run;
      named_sync(kConsumerBarrier, kOperandThreads);
      load_operands(m, p.source, p.q, p.d, p.in, unit.count,
                    [&](int i) { return int64_t{unit.pair[i] / static_cast<int>(p.top_k)}; });
    }
    return m.shape.pieces;
  };
  const auto pass_on = [&](uint32_t i, uint32_t slot) {
    hand_over(c.units[i % kUnitSlots], c.dot_units[slot], lane);
  };
  if constexpr (kRun == 1) {
    consume_dual<kFull, kArm>(
        p.in, m, warp, lane,
        [&](uint32_t i, uint32_t& x0, uint32_t& x1) {
          const Unit<kRun>& unit = c.units[i % kUnitSlots];
          const int pieces = begin(unit);
          x0 = x1 = m.operand(unit.operand);
          return pieces;
        },
        pass_on);
  } else {
    consume_shared<kRun, kFull, kArm>(
        p.in, m, warp, lane,
        [&](uint32_t i, int& count) {
          count = c.units[i % kUnitSlots].count;
          return begin(c.units[i % kUnitSlots]);
        },
        pass_on);
  }
}

// The group of 32 outputs that `act` holds, rule 5.
template <int kRun>
__device__ __forceinline__ void quantize_outputs(const GateUpParams& p, const Unit<kRun>& unit,
                                                 const float (&act)[kRun][32], int lane) {
  const int64_t group = unit.row_block / kGroupUnits;
  for (int j = 0; j < unit.count; ++j) {
    const float x = act[j][lane];
    const uint32_t amax_bits = __reduce_max_sync(~0u, numerics::magnitude_bits(x));
    const numerics::Q8Scale scale = numerics::q8_scale(amax_bits);
    const int64_t row = unit.pair[j];
    p.out_q[row * p.rows + group * numerics::kGroupValues + numerics::lane_major_position(lane)] =
        numerics::q8(x, scale);
    if (lane == 0) p.out_d[row * (p.rows / numerics::kGroupValues) + group] = scale.d;
  }
}

template <int kRun, RowsArm kArm>
__device__ __forceinline__ void finish(const GateUpParams& p, SharedControl<kRun>& c,
                                       const Memory<kRun>& m, int lane) {
  const int t = lane % 4, r = lane / 4;
  for (uint32_t i = 0;; ++i) {
    const uint32_t slot = i % dot_slots(kRun == 1);
    named_sync(kFirstDotBarrier + slot, kDotThreads);
    hand_over(c.dot_units[slot], c.finishing, lane);
    __syncwarp();
    const Unit<kRun>& unit = c.finishing;
    if (unit.count == 0) return;
    const int64_t row = static_cast<int64_t>(unit.row_block) * kRowBlock + r;
    const auto put = [&](int j, float gate, float up) {
      if constexpr (kArm == RowsArm::kLoadOnly) {
        if (probe_escape(gate) && probe_escape(up)) p.out[row] = gate;
      } else {
        const int64_t pair = unit.pair[j];
        const float out =
            gate_up_output(p, pair, row, unit.scale[0][j], unit.scale[1][j], gate, up);
        if (p.out_q != nullptr) {
          c.act[j][unit.row_block % kGroupUnits * kRowBlock + r] = numerics::canon(out);
        } else {
          p.out[pair * p.rows + row] = out;
        }
      }
    };
    if constexpr (kRun == 1) {
      const float dot = take_dual_dots<kArm>(m, slot, lane);
      const float up = __shfl_xor_sync(~0u, dot, 2);
      if (t == 0) put(0, dot, up);
    } else {
      // Of every two sums that both lanes of a pair get, each takes one to the end.
      constexpr int kPairs = kRun / 2;
      float2 mine[kPairs / 2];
#pragma unroll
      for (int n = 0; n < kPairs / 2; ++n) {
        const float2 a = shared_dots<kArm>(m, slot, 2 * n, lane);
        const float2 b = shared_dots<kArm>(m, slot, 2 * n + 1, lane);
        mine[n] = t % 2 == 0 ? a : b;
      }
      barrier_arrive(m.dots_empty(slot));
#pragma unroll
      for (int n = 0; n < kPairs / 2; ++n) {
        const int j = 2 * (2 * n + t % 2) + t / 2;
        if (j < unit.count) put(j, mine[n].x, mine[n].y);
      }
    }
    if (kArm != RowsArm::kLoadOnly && p.out_q != nullptr &&
        unit.row_block % kGroupUnits == kGroupUnits - 1) {
      __syncwarp();
      quantize_outputs<kRun>(p, unit, c.act, lane);
    }
    __syncwarp();  // before the next unit and outputs take their places
  }
}

#endif  // __CUDA_ARCH__ >= 900

template <int kRun, bool kFull, RowsArm kArm>
__global__ void __launch_bounds__(kRingThreads, kRingBlocksPerSm)
    gate_up_ring_kernel([[maybe_unused]] const __grid_constant__ GateUpParams p,
                        [[maybe_unused]] RingShape shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ SharedControl<kRun> c;
  const Memory<kRun> m{opaque(shared_address(shared)), opaque(shared_address(&c)), shape};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  m.init();
  __syncthreads();
  int64_t n_runs = p.n_pairs;
  if constexpr (kRun > 1) {
    if (!p.prefetch) dependency_wait();
    RunScratch& scratch = *reinterpret_cast<RunScratch*>(shared + (m.ring() - m.begin));
    const int n_pairs = static_cast<int>(p.n_pairs);
    if (p.route.topk_ids != nullptr) {
      build_runs<kRun>(p.route, n_pairs, c.runs, scratch);
    } else {
      build_runs<kRun>(
          p.order, n_pairs,
          [&](int a, int b) {
            return slab_of(p.ptrs, n_pairs, kGate, a) == slab_of(p.ptrs, n_pairs, kGate, b) &&
                   slab_of(p.ptrs, n_pairs, kUp, a) == slab_of(p.ptrs, n_pairs, kUp, b);
          },
          c.runs, scratch);
    }
    copy_engine_fence();
    __syncthreads();
    n_runs = c.runs.n_runs;
  }
  // Where outputs are quantised, their groups stay whole.
  const UnitRange range(n_runs * (p.rows / kRowBlock), p.out_q != nullptr ? kGroupUnits : 1);
  if (warp == kProducerWarp) {
    if (kRun == 1 && !p.prefetch) dependency_wait();
    produce<kRun, kArm>(p, c, m, range, lane);
  } else {
    dependency_wait();
    dependency_release();
    if (warp == kFinisherWarp) {
      if (blockIdx.x == 0 && p.route.topk_ids != nullptr) {
        count_invalid_ids(p.route, p.n_pairs, lane);
      }
      finish<kRun, kArm>(p, c, m, lane);
    } else {
      consume<kRun, kFull, kArm>(p, c, m, warp, lane);
    }
  }
#endif
}

struct RingKernel {
  RowsArm arm;
  int run;
  bool full;
  void (*kernel)(GateUpParams, RingShape);
};

template <int kRun, bool kFull, RowsArm kArm>
constexpr RingKernel entry() {
  return {kArm, kRun, kFull, gate_up_ring_kernel<kRun, kFull, kArm>};
}

constexpr RingKernel kKernels[] = {
    entry<1, true, RowsArm::kServed>(),       entry<1, false, RowsArm::kServed>(),
    entry<kMaxRun, true, RowsArm::kServed>(), entry<kMaxRun, false, RowsArm::kServed>(),
    entry<1, true, RowsArm::kLoadOnly>(),     entry<1, false, RowsArm::kLoadOnly>(),
    entry<1, true, RowsArm::kMathOnly>(),     entry<1, false, RowsArm::kMathOnly>(),
};

int64_t control_bytes(int run) {
  return run == 1 ? sizeof(SharedControl<1>) : sizeof(SharedControl<kMaxRun>);
}

// operands: places wanted, the run at least.
RingShape ring_shape(const Device& device, int run, int64_t in, int64_t operands) {
  const bool dual = run == 1;
  return make_ring_shape(ring_dynamic_bytes(device, control_bytes(run)), in,
                         static_cast<int>(operands), dot_slots(dual) * dot_bytes(run, dual));
}

struct Choice {
  int run;
  RingShape shape;
};

Choice choose(const Device& device, RowsArm arm, int64_t in, int64_t tokens, int64_t n_pairs) {
  constexpr int64_t kMostResident = 4;
  if (tokens > 1 && n_pairs <= kMaxRoutedPairs && arm == RowsArm::kServed) {
    const RingShape shape = ring_shape(device, kMaxRun, in, kMaxRun);
    if (shape.stages >= kMinStages) return {kMaxRun, shape};
  }
  const RingShape shape = ring_shape(device, 1, in, tokens <= kMostResident ? tokens : 1);
  return {1, shape.stages >= kMinStages ? shape : ring_shape(device, 1, in, 1)};
}

}  // namespace

Status gate_up_ring_load(const Device& device) {
  if (device.compute_capability < 90) return MEMRA_OK;
  for (const RingKernel& k : kKernels) {
    const int64_t bytes = ring_dynamic_bytes(device, control_bytes(k.run));
    MEMRA_TRY(load_kernel(k.kernel, static_cast<size_t>(bytes)));
  }
  return MEMRA_OK;
}

bool gate_up_ring_fits(const Device& device, int64_t hidden_size) {
  return device.compute_capability >= 90 &&
         ring_shape(device, 1, hidden_size, 1).stages >= kMinStages;
}

bool gate_up_ring_routes(const Device& device, int64_t hidden_size, int64_t tokens, int64_t n_pairs,
                         int64_t n_local) {
  return n_local <= kMaxRoutedExperts && n_pairs <= kMaxRoutedPairs &&
         gate_up_ring_fits(device, hidden_size) &&
         (tokens == 1 || choose(device, RowsArm::kServed, hidden_size, tokens, n_pairs).run > 1);
}

Status gate_up_ring(const Device& device, RowsArm arm, const GateUpParams& params,
                    const Launch& launch) {
  const Choice choice =
      choose(device, arm, params.in, params.n_pairs / params.top_k, params.n_pairs);
  const int64_t grain = params.out_q != nullptr ? kGroupUnits : 1;
  const int64_t n_units = params.n_pairs * (params.rows / kRowBlock) / grain;
  const int64_t most = static_cast<int64_t>(kRingBlocksPerSm) * device.n_multiprocessors;
  const Grid grid{dim3(static_cast<unsigned>(n_units < most ? n_units : most)), dim3(kRingThreads),
                  static_cast<size_t>(ring_dynamic_bytes(device, control_bytes(choice.run)))};
  const bool full = params.in % (kStagePieces * kPieceColumns) == 0;
  for (const RingKernel& k : kKernels) {
    if (k.arm == arm && k.run == choice.run && k.full == full) {
      return launch_kernel(device, launch, grid, k.kernel, params, choice.shape);
    }
  }
  return fail(MEMRA_ERROR_INTERNAL) << "no ring kernel of this arm";
}

}  // namespace memra::cuda
