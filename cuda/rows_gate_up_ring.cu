// Gate and up for V2 and lane-major activations on sm_90 and later: one persistent block an SM.
//
// One warp issues bulk copies into a ring of stages, a stage being the 8 rows of gate and of up
// that make 8 outputs; what keeps memory busy is bytes in flight, and a ring holds up to 200 KB of
// them however long the arithmetic takes. Eight warps work on gate and eight on up: warp w takes
// tiles w, w + 8, ..., which is one class of virtual lanes, so that its chains are whole, its share
// of the activations stays in registers (or, where rows are too long for that, in shared memory of
// its own), and nothing is shuffled. The last warp sums over classes and applies the activation
// while the others go on.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"
#include "rows_ring.cuh"

namespace memra::cuda {
namespace {

constexpr int kPlaneWarps = kLaneClasses;
constexpr int kConsumerWarps = 2 * kPlaneWarps;
constexpr int kProducerWarp = kConsumerWarps;
constexpr int kFinisherWarp = kConsumerWarps + 1;
constexpr int kThreads = (kConsumerWarps + 2) * 32;
constexpr int kMaxStages = 8;
constexpr int kMinStages = 2;
constexpr int kDotThreads = (kConsumerWarps + 1) * 32;  // consumers and finisher
// Tiles of one warp whose activations fit in registers: 20 warps' worth of them leave 96 a thread.
constexpr int kMaxResidentSteps = 4;
constexpr int kShared = 0;  // in place of a number of steps: activations in shared memory
constexpr int kMinHidden = kLaneClasses * numerics::kV2TileColumns;

// 32-bit: pairs and row blocks of one call are few, and the consumers are short of registers.
struct Unit {
  int32_t pair;  // -1: no more
  int32_t row_block;
  int32_t token;
};

struct Control {
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
  uint64_t dots_empty[kDotSlots];
  Unit stage_unit[kMaxStages];
  Unit dots_unit[kDotSlots];
  float dots[kDotSlots][2][kPlaneWarps][32];
};

__host__ __device__ constexpr int64_t stage_bytes(int64_t in) {
  return 2 * block_bytes(in);
}

// Activations of one tile in shared memory: four groups of 32, then their four scales.
constexpr int kTileActivationBytes = 4 * (32 + 4);

__host__ __device__ constexpr int steps_of(int64_t in) {
  return static_cast<int>((LayoutV2::tiles(in) + kLaneClasses - 1) / kLaneClasses);
}
// Those of all warps; only where they are not in registers.
__host__ __device__ constexpr int64_t activation_bytes(int64_t in) {
  return static_cast<int64_t>(kConsumerWarps) * steps_of(in) * kTileActivationBytes;
}

#if __CUDA_ARCH__ >= 900

// What a block works on, one unit after another. Sizes fit in 32 bits: MEMRA_ROWS_MAX_TOKENS *
// MEMRA_MAX_TOP_K pairs, and far fewer row blocks than 2^31 / 64 tokens each.
struct Work {
  int64_t unit;
  int pair = -1;
  int row_block = 0;
  const uint8_t* gate = nullptr;
  const uint8_t* up = nullptr;

  __device__ __forceinline__ explicit Work(const GateUpParams& p, int64_t u) : unit(u) {
    const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
    const int64_t n_units = p.n_pairs * row_blocks;
    if (u >= n_units) return;
    const uint32_t position = n_units <= 0xFFFFFFFF ? static_cast<uint32_t>(u) / row_blocks
                                                    : static_cast<uint32_t>(u / row_blocks);
    row_block = static_cast<int>(u - static_cast<int64_t>(position) * row_blocks);
    pair = p.order != nullptr ? p.order[position] : static_cast<int>(position);
    gate = slab_of(p.ptrs, p.n_pairs, kGate, pair);
    up = slab_of(p.ptrs, p.n_pairs, kUp, pair);
  }
};

// The whole warp runs this: each of four lanes issues one of a stage's copies, because one thread
// that issues them in turn cannot keep up.
__device__ __forceinline__ void produce(const GateUpParams& p, Control& c, uint8_t* ring,
                                        int stages, bool copy, int lane) {
  const int top_k = static_cast<int>(p.top_k);
  if (!p.prefetch) dependency_wait();
  bool waited = !p.prefetch;
  RingPosition at(1);
  Work work(p, blockIdx.x);
  while (work.pair >= 0) {
    const Work next(p, work.unit + gridDim.x);  // its loads overlap the wait below
    if (work.gate == nullptr || work.up == nullptr) {
      if (!waited) dependency_wait();
      waited = true;
      if (lane < kRowBlock) {
        p.out[work.pair * p.rows + work.row_block * kRowBlock + lane] = 0.0f;
      }
      work = next;
      continue;
    }
    uint64_t* full = &c.full[at.stage];
    barrier_wait(&c.empty[at.stage], at.parity);
    if (lane == 0) {
      c.stage_unit[at.stage] = {work.pair, work.row_block, work.pair / top_k};
      if (copy) {
        barrier_arrive_expect(full, static_cast<uint32_t>(stage_bytes(p.in)));
      } else {
        barrier_arrive(full);
      }
    }
    __syncwarp();
    if (copy && lane < 4) {
      const bool second = lane >= 2;
      bulk_load_block_piece(ring + at.stage * stage_bytes(p.in) + (second ? block_bytes(p.in) : 0),
                            second ? work.up : work.gate, p.rows, p.in, work.row_block, lane % 2,
                            full);
    }
    at.advance(stages);
    work = next;
  }
  if (lane == 0) {
    barrier_wait(&c.empty[at.stage], at.parity);
    c.stage_unit[at.stage] = {-1, 0, 0};
    barrier_arrive(&c.full[at.stage]);
  }
}

// A warp's share of one token's activations: tiles lane_class, lane_class + 8, ...
template <int kSteps>
struct Activations {
  ActivationGroup a[kSteps];

  __device__ __forceinline__ void load(const int8_t* q, const float* d, int lane_class, int lane,
                                       int groups, uint8_t*) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int group = 4 * (lane_class + kLaneClasses * i) + lane % 4;
      if (group < groups) a[i] = load_activations<true>(q, d, group);
    }
  }
  const __device__ __forceinline__ ActivationGroup& get(int i, int, const uint8_t*) const {
    return a[i];
  }
};

template <>
struct Activations<kShared> {
  __device__ __forceinline__ void load(const int8_t* q, const float* d, int lane_class, int lane,
                                       int groups, uint8_t* mine) {
    __syncwarp();
    for (int tile = lane_class + kLaneClasses * (lane / 4); 4 * tile < groups;
         tile += kLaneClasses * 8) {
      const int group = 4 * tile + lane % 4;
      if (group >= groups) break;
      uint8_t* to = mine + tile / kLaneClasses * kTileActivationBytes;
      const uint4* from = reinterpret_cast<const uint4*>(q + group * numerics::kGroupValues);
      reinterpret_cast<uint4*>(to)[2 * (lane % 4)] = from[0];
      reinterpret_cast<uint4*>(to)[2 * (lane % 4) + 1] = from[1];
      reinterpret_cast<float*>(to + 128)[lane % 4] = d[group];
    }
    __syncwarp();
  }
  __device__ __forceinline__ ActivationGroup get(int i, int quad, const uint8_t* mine) const {
    const uint8_t* from = mine + i * kTileActivationBytes;
    return load_activations<true>(reinterpret_cast<const int8_t*>(from),
                                  reinterpret_cast<const float*>(from + 128), quad);
  }
};

// kFull: every warp has as many whole tiles, kSteps where that is not kShared.
template <int kSteps, bool kFull, RowsArm kArm>
__device__ __forceinline__ void consume(const GateUpParams& p, Control& c, uint8_t* ring,
                                        int stages, int warp, int lane) {
  const int plane = warp / kPlaneWarps, lane_class = warp % kPlaneWarps;
  const int quad = lane % 4;
  const int groups = static_cast<int>(p.in / numerics::kGroupValues);
  const uint32_t unit_bytes = static_cast<uint32_t>(stage_bytes(p.in));
  const uint8_t* first_codes = ring + plane * block_bytes(p.in) +
                               lane_class * numerics::kV2TileCodeBytes +
                               lane * numerics::kGroupCodeBytes;
  const uint8_t* first_scales = ring + plane * block_bytes(p.in) + block_codes_bytes(p.in) +
                                lane_class * numerics::kV2TileScaleBytes +
                                lane * numerics::kGroupScaleBytes;
  // In the half tile lane 4r + t owns slot 2r + t.
  const int half_slot = lane / 4 * 2 + quad - lane;
  const DecodeConstants k = DecodeConstants::make();
  const int steps = kSteps == kShared ? steps_of(p.in) : kSteps;
  uint8_t* mine = ring + stages * stage_bytes(p.in) + warp * steps * kTileActivationBytes;
  Activations<kSteps> activations;
  int token = -1;
  const auto load_activations_of = [&](int wanted) {
    if constexpr (kArm != RowsArm::kLoadOnly) {
      if (wanted == token) return;
      token = wanted;
      activations.load(p.q + token * p.in, p.d + static_cast<int64_t>(token) * groups, lane_class,
                       lane, groups, mine);
    }
  };
  // The first ones arrive while the first weights are on their way.
  load_activations_of(max(Work(p, blockIdx.x).pair, 0) / static_cast<int>(p.top_k));
  RingPosition at(0), slot(1);
  for (;;) {
    barrier_wait(&c.full[at.stage], at.parity);
    const Unit unit = c.stage_unit[at.stage];
    float acc = 0.0f;
    if (unit.pair >= 0) {
      load_activations_of(unit.token);
      const uint8_t* codes = first_codes + static_cast<uint32_t>(at.stage) * unit_bytes;
      const uint8_t* scales = first_scales + static_cast<uint32_t>(at.stage) * unit_bytes;
      const auto step = [&](int i) {
        const int tile = lane_class + kLaneClasses * i;
        if (!kFull && 4 * tile + quad >= groups) return;
        const int shift = !kFull && groups - 4 * tile < 4 ? half_slot : 0;
        const WeightGroup w =
            load_tile<kArm>(codes + shift * numerics::kGroupCodeBytes,
                            scales + shift * numerics::kGroupScaleBytes, kLaneClasses * i);
        if constexpr (kArm == RowsArm::kLoadOnly) {
          accumulate<kArm>(k, acc, w, ActivationGroup{});
        } else {
          accumulate<kArm>(k, acc, w, activations.get(i, quad, mine));
        }
      };
      if constexpr (kSteps == kShared) {
#pragma unroll 2
        for (int i = 0; i < steps; ++i)
          step(i);
      } else {
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
          step(i);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(&c.empty[at.stage]);
      at.advance(stages);
    }
    barrier_wait(&c.dots_empty[slot.stage], slot.parity);
    c.dots[slot.stage][plane][lane_class][lane] = acc;
    if (warp == 0 && lane == 0) c.dots_unit[slot.stage] = unit;
    named_arrive(kFirstDotBarrier + slot.stage, kDotThreads);
    slot.advance(kDotSlots);
    if (unit.pair < 0) return;
  }
}

template <RowsArm kArm>
__device__ __forceinline__ void finish(const GateUpParams& p, Control& c, int lane) {
  RingPosition at(0);
  for (;;) {
    named_sync(kFirstDotBarrier + at.stage, kDotThreads);
    const Unit unit = c.dots_unit[at.stage];
    if (unit.pair < 0) return;
    float dot[2];
#pragma unroll
    for (int plane = 0; plane < 2; ++plane) {
      float v[kLaneClasses];
#pragma unroll
      for (int j = 0; j < kLaneClasses; ++j)
        v[j] = c.dots[at.stage][plane][j][lane];
#pragma unroll
      for (int distance = kLaneClasses / 2; distance > 0; distance /= 2) {
#pragma unroll
        for (int j = 0; j < distance; ++j)
          v[j] = tree_add<kArm>(v[j], v[j + distance]);
      }
      dot[plane] = quad_sum<kArm>(v[0]);
    }
    barrier_arrive(&c.dots_empty[at.stage]);
    const int64_t out_row = static_cast<int64_t>(unit.row_block) * kRowBlock + lane / 4;
    if constexpr (kArm == RowsArm::kLoadOnly) {
      if (probe_escape(dot[0]) && probe_escape(dot[1])) p.out[out_row] = dot[0];
    } else {
      if (lane % 4 == 0) {
        p.out[unit.pair * p.rows + out_row] = gate_up_output(p, unit.pair, out_row, dot[0], dot[1]);
      }
    }
    at.advance(kDotSlots);
  }
}

#endif  // __CUDA_ARCH__ >= 900

template <int kSteps, bool kFull, RowsArm kArm>
__global__ void __launch_bounds__(kThreads, 1)
    gate_up_ring_kernel([[maybe_unused]] const __grid_constant__ GateUpParams p,
                        [[maybe_unused]] int stages) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ Control c;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      barrier_init(&c.full[i], 1);
      barrier_init(&c.empty[i], kConsumerWarps);
    }
    for (int i = 0; i < kDotSlots; ++i) {
      barrier_init(&c.dots_empty[i], 32);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (warp == kProducerWarp) {
    produce(p, c, ring, stages, kArm != RowsArm::kMathOnly, lane);
  } else {
    dependency_wait();
    dependency_release();
    if (warp == kFinisherWarp) {
      finish<kArm>(p, c, lane);
    } else {
      consume<kSteps, kFull, kArm>(p, c, ring, stages, warp, lane);
    }
  }
#endif
}

struct RingKernel {
  RowsArm arm;
  int steps;
  bool full;
  void (*kernel)(GateUpParams, int);
};

template <int kSteps, bool kFull, RowsArm kArm = RowsArm::kServed>
constexpr RingKernel entry() {
  return {kArm, kSteps, kFull, gate_up_ring_kernel<kSteps, kFull, kArm>};
}

// Searched in this order; the last of an arm takes any width.
constexpr RingKernel kKernels[] = {
    entry<2, true>(),
    entry<3, true>(),
    entry<4, true>(),
    entry<kMaxResidentSteps, false>(),
    entry<kShared, true>(),
    entry<kShared, false>(),
    entry<4, true, RowsArm::kLoadOnly>(),
    entry<kShared, true, RowsArm::kLoadOnly>(),
    entry<kShared, false, RowsArm::kLoadOnly>(),
    entry<4, true, RowsArm::kMathOnly>(),
    entry<kShared, true, RowsArm::kMathOnly>(),
    entry<kShared, false, RowsArm::kMathOnly>(),
};

bool takes(const RingKernel& k, int64_t in) {
  constexpr int64_t kRound = kLaneClasses * numerics::kV2TileColumns;
  if (k.steps == kShared) return !k.full || in % kRound == 0;
  const int64_t whole = k.steps * kRound;
  return k.full ? in == whole : in <= whole;
}

int64_t ring_capacity(const Device& device) {
  return static_cast<int64_t>(device.shared_bytes_per_block) -
         static_cast<int64_t>(sizeof(Control)) - 1024;
}

int ring_stages(const Device& device, int64_t in, bool shared) {
  const int64_t fit =
      (ring_capacity(device) - (shared ? activation_bytes(in) : 0)) / stage_bytes(in);
  return static_cast<int>(fit < kMaxStages ? fit : kMaxStages);
}

}  // namespace

Status gate_up_ring_load(const Device& device) {
  if (device.compute_capability < 90) return MEMRA_OK;
  for (const RingKernel& k : kKernels) {
    MEMRA_TRY(load_kernel(k.kernel, static_cast<size_t>(ring_capacity(device))));
  }
  return MEMRA_OK;
}

bool gate_up_ring_fits(const Device& device, int64_t hidden_size) {
  return device.compute_capability >= 90 && hidden_size >= kMinHidden &&
         ring_stages(device, hidden_size, true) >= kMinStages;
}

Status gate_up_ring(const Device& device, RowsArm arm, const GateUpParams& params,
                    const Launch& launch) {
  const int64_t n_units = params.n_pairs * (params.rows / kRowBlock);
  const int64_t blocks = n_units < device.n_multiprocessors ? n_units : device.n_multiprocessors;
  for (const RingKernel& k : kKernels) {
    if (k.arm != arm || !takes(k, params.in)) continue;
    const bool shared = k.steps == kShared;
    const int stages = ring_stages(device, params.in, shared);
    const int64_t bytes =
        stages * stage_bytes(params.in) + (shared ? activation_bytes(params.in) : 0);
    const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                    static_cast<size_t>(bytes)};
    return launch_kernel(device, launch, grid, k.kernel, params, stages);
  }
  return fail(MEMRA_ERROR_INTERNAL) << "no ring kernel for hidden_size " << params.in;
}

}  // namespace memra::cuda
