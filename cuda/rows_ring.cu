// The persistent kernel for V2 and lane-major activations on sm_90 and later (rows_ring.cuh has the
// idea): gate and up, or down, or the whole layer in one launch of blocks that run together.

#include "rows_ring.cuh"

#include "exchange.cuh"
#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"
#include "rows_ring_down.cuh"
#include "rows_ring_gate_up.cuh"
#include "rows_ring_operands.cuh"

namespace memra::cuda {
namespace {

struct RingParams {
  GateUpParams gate_up;
  DownParams down;
  bool has_gate_up, has_down;
  bool prefetch;
  int resident_tokens;     // of gate and up, one pair a unit; 0: one token's activations at a time
  uint32_t down_operands;  // offset of down's places of activations
  Exchange* exchange;      // with both phases
  RingPlan plan;           // where no pairs share weights
};

template <int kRun>
struct SharedControl : RingControl<kRun> {
  RingPlan whole_plan;
  BlockPlan plan;
  Runs<kRun> runs;
  SlotScales slots;
  int32_t waited;  // rounds of gate and up whose end thread 0 has seen
};
template <>
struct SharedControl<1> : RingControl<1> {
  BlockPlan plan;
  float held[kMaxHeld][kRowBlock];
};

#if __CUDA_ARCH__ >= 900

template <int kRun>
const __device__ __forceinline__ Runs<kRun>* runs_of(const SharedControl<kRun>& c) {
  if constexpr (is_dual(kRun)) {
    return nullptr;
  } else {
    return &c.runs;
  }
}

// The pairs that share weights, by the whole block; the ring's memory is free to be used.
template <int kRun>
__device__ __forceinline__ void make_runs(const GateUpParams& p, SharedControl<kRun>& c,
                                          RunScratch& scratch) {
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
  copy_engine_fence();  // a barrier follows
}

// What a layer call reads first, on its way to the weights: each would be a trip to memory, one
// after the other, because the weights of other layers have pushed it out of L2.
__device__ __forceinline__ void prefetch_inputs(const GateUpParams& p, int lane) {
  constexpr int64_t kLine = 128;
  const int64_t thread = int64_t{blockIdx.x} * 32 + lane;
  const int64_t threads = int64_t{gridDim.x} * 32;
  const auto lines = [&](const void* begin, int64_t bytes) {
    for (int64_t at = thread * kLine; at < bytes; at += threads * kLine)
      prefetch_l2(static_cast<const uint8_t*>(begin) + at);
  };
  lines(p.route.topk_weights, p.n_pairs * 4);
  lines(p.route.expert_ptrs, 3 * p.route.n_local * 8);
  lines(p.route.expert_scales, 3 * p.route.n_local * 4);
}

template <int kRun, RowsArm kArm, Format kFormat>
__device__ __forceinline__ void produce(const RingParams& p, SharedControl<kRun>& c,
                                        const RingMemory<kRun>& m, const BlockPlan& plan,
                                        int lane) {
  Producer<kRun> to(c, m, lane);
  for (int round = 0; round < kRounds; ++round) {
    produce_gate_up<kArm, kFormat>(p.gate_up, runs_of(c), to, plan.gate_up[round],
                                   p.resident_tokens != 0);
  }
  produce_down<kArm, kFormat>(p.down, runs_of(c), to, plan);
}

template <RowsArm kArm>
__device__ __forceinline__ void finish(const RingParams& p, SharedControl<1>& c,
                                       const RingMemory<1>& m, const BlockPlan& plan, int lane) {
  uint32_t index = 0;
  const uint32_t tag = p.exchange != nullptr ? load_tag(*p.exchange) : 0;
  const Outbox outbox{p.exchange != nullptr ? p.exchange->packets : nullptr, tag};
  finish_gate_up<kArm>(p.gate_up, outbox, c, m, index, plan.n_gate_up(), lane);
  for (int round = 0; round < kRounds; ++round)
    finish_down<kArm>(p.down, plan, round, c, m, c.held, index, lane);
}

template <RowsArm kArm, int kRun>
__device__ __forceinline__ void finish(const RingParams& p, SharedControl<kRun>& c,
                                       const RingMemory<kRun>& m, const BlockPlan& plan, int lane) {
  uint32_t index = 0, end = 0;
  for (int round = 0; round < kRounds; ++round) {
    end += plan.gate_up[round].size();
    finish_gate_up<kArm>(p.gate_up, {}, c, m, index, end, lane);
    __syncwarp();
    if (p.exchange != nullptr && lane == 0) grid_arrive(&p.exchange->arrived[round]);
  }
  if (!p.has_down) return;
  finish_down<kArm>(p.down, plan.n_down(false, 0), c, m, index, lane);
  __syncwarp();
  if (lane == 0) grid_arrive(&p.exchange->arrived[kRounds]);
}

// The segment of a block's first unit.
template <int kRun>
__device__ __forceinline__ Segment first_segment(const RingParams& p, const BlockPlan& plan) {
  if (plan.n_gate_up() != 0) {
    if (p.resident_tokens != 0) return Segment::of(kGateUpPhase, 0, 0);
    const uint32_t begin = plan.gate_up[plan.gate_up[0].size() != 0 ? 0 : 1].begin;
    int index = static_cast<int>(begin / (static_cast<uint32_t>(p.gate_up.rows) / kRowBlock));
    if constexpr (is_dual(kRun)) {
      const int pair = p.gate_up.order != nullptr ? p.gate_up.order[index] : index;
      index = pair / static_cast<int>(p.gate_up.top_k);
    }
    return Segment::of(kGateUpPhase, 0, index);
  }
  const int round = plan.down[0].size() != 0 ? 0 : 1;
  if (is_dual(kRun) && p.down.tokens == 1) return Segment::of(kDownPhase, round, 0);
  const uint32_t row_blocks = static_cast<uint32_t>(p.down.rows) / kRowBlock;
  const uint32_t of_index = is_dual(kRun) ? row_blocks : (row_blocks + 1) / 2;
  return Segment::of(kDownPhase, round, static_cast<int>(plan.down[round].begin / of_index));
}

// A segment's activations: rows of x, or pairs of what gate and up have made.
template <int kRun, RowsArm kArm, Format kFormat>
__device__ __forceinline__ void take_operands(const RingParams& p, SharedControl<kRun>& c,
                                              const RingMemory<kRun>& m, Segment segment) {
  if constexpr (kArm == RowsArm::kLoadOnly) {
    named_sync(kConsumerBarrier, kConsumerThreads);
    return;
  }
  const bool gate_up = segment.gate_up();
  const int index = segment.index();
  int count;
  int64_t first = 0;
  const uint16_t* run = nullptr;
  if constexpr (is_dual(kRun)) {
    if (!gate_up && p.exchange != nullptr) {
      const int cut = static_cast<int>(p.plan.cut), round = segment.round();
      receive_operands(m.operands() + p.down_operands, *p.exchange, p.down.in, round == 0 ? 0 : cut,
                       round == 0 ? cut : static_cast<int>(p.down.top_k));
      return;
    }
    count = !gate_up ? static_cast<int>(p.down.top_k) : max(p.resident_tokens, 1);
    first = !gate_up ? index * p.down.top_k : index;
  } else {
    count = c.runs.first[index + 1] - c.runs.first[index];
    run = c.runs.order + c.runs.first[index];
    if (!gate_up && threadIdx.x == 0) {
      for (; c.waited <= segment.round(); ++c.waited)
        grid_wait(&p.exchange->arrived[c.waited]);
    }
  }
  named_sync(kConsumerBarrier, kConsumerThreads);  // the activations before have been read
  const int top_k = static_cast<int>(p.gate_up.top_k);
  // V1's stages have their activations in natural order.
  load_operands<kFormat == Format::kV1>(
      m.operands(), gate_up ? p.gate_up.source : ActivationSource{},
      gate_up ? p.gate_up.q : p.down.q, gate_up ? p.gate_up.d : p.down.d,
      gate_up ? p.gate_up.in : p.down.in, count, [&](int i) -> int64_t {
        if (is_dual(kRun)) return first + i;
        return gate_up ? run[i] / top_k : run[i];
      });
}

template <int kRun, bool kFull, RowsArm kArm, Format kFormat>
__device__ __forceinline__ void consume_all(const RingParams& p, SharedControl<kRun>& c,
                                            const RingMemory<kRun>& m, const BlockPlan& plan) {
  const uint32_t n_units =
      plan.n_gate_up() + plan.n_down(is_dual(kRun), static_cast<uint32_t>(p.down.top_k));
  if (n_units == 0) return;
  if (threadIdx.x == 0) {
    c.n_units = n_units;
    if constexpr (!is_dual(kRun)) c.waited = 0;
  }
  c.progress[threadIdx.x / 32].set(RingPosition(0), 0, first_segment<kRun>(p, plan),
                                   static_cast<int>(threadIdx.x) % 32);
  for (;;) {
    // Its barrier is what n_units waits for as well.
    take_operands<kRun, kArm, kFormat>(p, c, m, c.progress[thread_index_here() / 32].segment);
    const int thread = thread_index_here(), warp = thread / 32, lane = thread % 32;
    Progress& done = c.progress[warp];
    const bool gate_up = done.segment.gate_up();
    const int64_t in = gate_up ? p.gate_up.in : p.down.in;
    if constexpr (is_dual(kRun)) {
      consume<kFull, kArm, kFormat>(c, m, in, m.operands() + (gate_up ? 0 : p.down_operands), warp,
                                    lane, done);
    } else {
      consume<kFull, kArm>(c, m, in, warp, lane, done);
    }
    if (done.unit == c.n_units) return;
  }
}

#endif  // __CUDA_ARCH__ >= 900

template <int kRun, bool kFull, RowsArm kArm, Format kFormat>
__global__ void __launch_bounds__(kRingThreads, kRingBlocksPerSm)
    ring_kernel([[maybe_unused]] const __grid_constant__ RingParams p,
                [[maybe_unused]] RingShape shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ SharedControl<kRun> c;
  const RingMemory<kRun> m{opaque(shared_address(shared)), opaque(shared_address(&c.barriers)),
                           shape};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  m.init();
  if constexpr (is_dual(kRun)) {
    if (warp == 0 && lane < BlockPlan::kParts) c.plan.make(p.plan, blockIdx.x, lane);
  } else {
    __syncthreads();
    if (!p.prefetch) dependency_wait();
    make_runs(p.gate_up, c, *reinterpret_cast<RunScratch*>(shared + (m.ring() - m.begin)));
    if (warp == 0) {
      if (lane == 0) {
        c.whole_plan = RingPlan::of(p.gate_up, p.down, p.has_gate_up, p.has_down, false,
                                    c.runs.n_runs, gridDim.x);
      }
      __syncwarp();
      if (lane < BlockPlan::kParts) c.plan.make(c.whole_plan, blockIdx.x, lane);
    }
  }
  __syncthreads();
  const BlockPlan& plan = c.plan;
  if (warp == kProducerWarp) {
    if (is_dual(kRun) && !p.prefetch) dependency_wait();
    produce<kRun, kArm, kFormat>(p, c, m, plan, lane);
    return;
  }
  dependency_wait();
  dependency_release();
  if (warp == kFinisherWarp) {
    if (p.gate_up.route.topk_ids != nullptr) prefetch_inputs(p.gate_up, lane);
    if (blockIdx.x == 0 && p.gate_up.route.topk_ids != nullptr) {
      count_invalid_ids(p.gate_up.route, p.gate_up.n_pairs, lane);
    }
    finish<kArm>(p, c, m, plan, lane);
    return;
  }
  consume_all<kRun, kFull, kArm, kFormat>(p, c, m, plan);
  if (p.exchange == nullptr) return;
  if constexpr (!is_dual(kRun)) combine_slots(p.down, c.slots, &p.exchange->arrived[kRounds]);
  if (threadIdx.x == 0) leave(*p.exchange);
#endif
}

struct RingKernel {
  RowsArm arm;
  Format format;
  int run;
  bool full;
  void (*kernel)(RingParams, RingShape);
};

template <int kRun, bool kFull, RowsArm kArm, Format kFormat>
constexpr RingKernel entry() {
  return {kArm, kFormat, kRun, kFull, ring_kernel<kRun, kFull, kArm, kFormat>};
}

constexpr RowsArm kServed = RowsArm::kServed, kLoadOnly = RowsArm::kLoadOnly,
                  kMathOnly = RowsArm::kMathOnly;
constexpr Format kV1 = Format::kV1, kV2 = Format::kV2;

constexpr RingKernel kKernels[] = {
    entry<1, true, kServed, kV2>(),          entry<1, false, kServed, kV2>(),
    entry<kNarrowRun, true, kServed, kV2>(), entry<kNarrowRun, false, kServed, kV2>(),
    entry<kWideRun, true, kServed, kV2>(),   entry<kWideRun, false, kServed, kV2>(),
    entry<1, true, kLoadOnly, kV2>(),        entry<1, false, kLoadOnly, kV2>(),
    entry<1, true, kMathOnly, kV2>(),        entry<1, false, kMathOnly, kV2>(),
    entry<1, true, kServed, kV1>(),          entry<1, false, kServed, kV1>(),
    entry<1, true, kLoadOnly, kV1>(),        entry<1, false, kLoadOnly, kV1>(),
    entry<1, true, kMathOnly, kV1>(),        entry<1, false, kMathOnly, kV1>(),
};

int64_t dynamic_bytes(const Device& device, int run) {
  return ring_dynamic_bytes(device, is_dual(run)        ? sizeof(SharedControl<1>)
                                    : run <= kNarrowRun ? sizeof(SharedControl<kNarrowRun>)
                                                        : sizeof(SharedControl<kWideRun>));
}

RingShape ring_shape(const Device& device, Format format, int run, int64_t operand_bytes) {
  return make_ring_shape(dynamic_bytes(device, run), format, run, operand_bytes);
}

int64_t operands_of(int64_t in, int64_t places) {
  return places * operand_bytes(pieces_of(in));
}

bool fits(const RingShape& shape) {
  return shape.stages >= kMinStages;
}

struct Choice {
  int run;
  int resident_tokens;
  RingShape shape;
  uint32_t down_operands = 0;
};

// With as many places of activations as pay.
Choice choose_gate_up(const Device& device, RowsArm arm, Format format, int64_t in, int64_t tokens,
                      int64_t n_pairs) {
  constexpr int64_t kMostResident = 4;
  if (format == Format::kV2 && tokens > 1 && n_pairs <= kMaxRoutedPairs && arm == kServed) {
    const RingShape shape = ring_shape(device, format, kNarrowRun, operands_of(in, kNarrowRun));
    if (fits(shape)) return {kNarrowRun, 0, shape};
  }
  if (tokens <= kMostResident) {
    const RingShape shape = ring_shape(device, format, 1, operands_of(in, tokens));
    if (fits(shape)) return {1, static_cast<int>(tokens), shape};
  }
  return {1, 0, ring_shape(device, format, 1, operands_of(in, 1))};
}

RingShape down_shape(const Device& device, Format format, int64_t in, int64_t top_k) {
  return ring_shape(device, format, 1, operands_of(in, top_k));
}

Choice choose_layer(const Device& device, int64_t hidden_size, int64_t intermediate_size,
                    int64_t tokens, int64_t top_k, int64_t n_local) {
  const int64_t packets = top_k * (intermediate_size / numerics::kGroupValues) * kGroupPackets;
  if (tokens == 1 && packets <= Exchange::kPackets) {
    const int64_t x = operands_of(hidden_size, 1);
    const int64_t down = operands_of(intermediate_size, top_k);
    const Choice alone{1, 1, ring_shape(device, Format::kV2, 1, x + down),
                       static_cast<uint32_t>(x)};
    if (fits(alone.shape)) return alone;
  }
  const auto shared = [&](int run) {
    const int64_t gate_up = operands_of(hidden_size, run),
                  down = operands_of(intermediate_size, run);
    return Choice{run, 0, ring_shape(device, Format::kV2, run, gate_up > down ? gate_up : down)};
  };
  // From about three pairs an expert on.
  if (tokens * top_k >= 3 * n_local && tokens * top_k <= kMaxRoutedPairs / 2) {
    const Choice wide = shared(kWideRun);
    if (fits(wide.shape)) return wide;
  }
  return shared(kNarrowRun);
}

Status launch_ring(const Device& device, RowsArm arm, Format format, const Choice& choice,
                   int64_t n_units, RingParams params, const Launch& launch,
                   bool* taken = nullptr) {
  const int64_t most = static_cast<int64_t>(kRingBlocksPerSm) * device.n_multiprocessors;
  Grid grid{dim3(static_cast<unsigned>(n_units < most ? n_units : most)), dim3(kRingThreads),
            static_cast<size_t>(dynamic_bytes(device, choice.run))};
  grid.cooperative = params.exchange != nullptr;
  params.plan = RingPlan::of(params.gate_up, params.down, params.has_gate_up, params.has_down,
                             is_dual(choice.run), static_cast<uint32_t>(params.gate_up.n_pairs),
                             grid.blocks.x);
  constexpr int64_t kWhole = int64_t{kStagePieces} * kPieceColumns;
  const bool full = (!params.has_gate_up || params.gate_up.in % kWhole == 0) &&
                    (!params.has_down || params.down.in % kWhole == 0);
  for (const RingKernel& k : kKernels) {
    if (k.arm != arm || k.format != format || k.run != choice.run || k.full != full) continue;
    const cudaError_t error = enqueue_kernel(device, launch, grid, k.kernel, params, choice.shape);
    if (taken != nullptr) *taken = error == cudaSuccess;
    if (error == cudaSuccess || (taken != nullptr && error == cudaErrorCooperativeLaunchTooLarge)) {
      return MEMRA_OK;
    }
    return cuda_failure(error, "cudaLaunchKernelEx");
  }
  return fail(MEMRA_ERROR_INTERNAL) << "no ring kernel of this arm";
}

}  // namespace

Status ring_load(const Device& device) {
  if (device.compute_capability < 90) return MEMRA_OK;
  for (const RingKernel& k : kKernels)
    MEMRA_TRY(load_kernel(k.kernel, static_cast<size_t>(dynamic_bytes(device, k.run))));
  return MEMRA_OK;
}

namespace {

// The copy engine takes multiples of 16 bytes from multiples of 16.
bool has_copies(const Device& device, Format format, int64_t in) {
  return device.compute_capability >= 90 &&
         (format == Format::kV2 ||
          LayoutV1::row_bytes(in) % static_cast<int64_t>(kCopyAlignment) == 0);
}

}  // namespace

bool gate_up_ring_fits(const Device& device, Format format, int64_t hidden_size) {
  return has_copies(device, format, hidden_size) &&
         fits(ring_shape(device, format, 1, operands_of(hidden_size, 1)));
}

bool down_ring_fits(const Device& device, Format format, int64_t intermediate_size, int64_t top_k) {
  return has_copies(device, format, intermediate_size) &&
         fits(down_shape(device, format, intermediate_size, top_k));
}

bool layer_ring_fits(const Device& device, int64_t hidden_size, int64_t intermediate_size,
                     int64_t tokens, int64_t top_k, int64_t n_local) {
  return device.compute_capability >= 90 && n_local <= kMaxRoutedExperts &&
         tokens * top_k <= kMaxRoutedPairs &&
         fits(choose_layer(device, hidden_size, intermediate_size, tokens, top_k, n_local).shape);
}

Status gate_up_ring(const Device& device, RowsArm arm, Format format, const GateUpParams& params,
                    const Launch& launch) {
  const int64_t tokens = params.n_pairs / params.top_k;
  const Choice choice = choose_gate_up(device, arm, format, params.in, tokens, params.n_pairs);
  RingParams p{};
  p.gate_up = params;
  p.has_gate_up = true;
  p.resident_tokens = choice.resident_tokens;
  p.prefetch = params.prefetch;
  return launch_ring(device, arm, format, choice, params.n_pairs * (params.rows / kRowBlock), p,
                     launch);
}

Status down_ring(const Device& device, RowsArm arm, Format format, const DownParams& params,
                 const Launch& launch) {
  RingParams p{};
  p.down = params;
  p.has_down = true;
  p.prefetch = params.prefetch;
  const Choice choice{1, 0, down_shape(device, format, params.in, params.top_k)};
  return launch_ring(device, arm, format, choice, params.tokens * (params.rows / kRowBlock), p,
                     launch);
}

Status layer_ring(const Device& device, const GateUpParams& gate_up, const DownParams& down,
                  Exchange* exchange, const Launch& launch, bool* taken) {
  const Choice choice =
      choose_layer(device, gate_up.in, down.in, down.tokens, down.top_k, gate_up.route.n_local);
  RingParams p{};
  p.gate_up = gate_up;
  p.down = down;
  p.has_gate_up = p.has_down = true;
  p.resident_tokens = choice.resident_tokens;
  p.down_operands = choice.down_operands;
  p.prefetch = gate_up.prefetch;
  p.exchange = exchange;
  const int64_t units = down.tokens * (down.rows / kRowBlock);
  const int64_t gate_up_units = gate_up.n_pairs * (gate_up.rows / kRowBlock) / int64_t{kGroupUnits};
  return launch_ring(device, RowsArm::kServed, Format::kV2, choice,
                     units > gate_up_units ? units : gate_up_units, p, launch, taken);
}

}  // namespace memra::cuda
