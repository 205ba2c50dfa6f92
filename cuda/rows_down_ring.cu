// Down for V2 and lane-major activations on sm_90 and later: persistent blocks, two an SM, so that
// one works while the other waits.
//
// The unit of work is a part: 8 rows of one slot's slab, with that pair's activations beside them.
// A block takes (token, row block) after (token, row block), all slots of each in order; a stage of
// the ring holds kParts parts that follow one another, whatever top_k is. A group of kGroupWarps
// warps works on each part, at its own pace: warp w of it takes tiles w, w + kGroupWarps, ...,
// whole classes of virtual lanes, so that chains are whole. (More warps to a part, each with fewer
// tiles, pay the fixed cost of a part more often: 4 were 10 % slower, 8 were 45 %.) The last warp
// sums over the group, adds up the slots in order and stores.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"
#include "rows_ring.cuh"

namespace memra::cuda {
namespace {

constexpr int kBlocksPerSm = 2;
constexpr int kConsumerWarps = 8;
constexpr int kProducerWarp = kConsumerWarps;
constexpr int kFinisherWarp = kConsumerWarps + 1;
constexpr int kThreads = (kConsumerWarps + 2) * 32;
constexpr int kGroupWarps = 2;
constexpr int kParts = kConsumerWarps / kGroupWarps;
static_assert(kParts * 4 <= 32, "a producer lane for each piece of each part");
constexpr int kChains = kLaneClasses / kGroupWarps;  // classes of one warp
constexpr int kMaxStages = 12;
constexpr int kMinStages = 2;
constexpr int kDotThreads = (kConsumerWarps + 1) * 32;  // consumers and finisher

struct Part {
  int32_t token;
  int32_t row_block;
  int32_t slot;  // kNoPart: the stage is not full; kEnd: no stage follows
  float scale;
  bool live;  // false: the slot is skipped
};
constexpr int32_t kNoPart = -1;
constexpr int32_t kEnd = -2;

struct Control {
  uint64_t full[kMaxStages][kParts];
  uint64_t empty[kMaxStages][kParts];
  uint64_t dots_empty[kDotSlots];
  Part stage_parts[kMaxStages][kParts];
  Part dot_parts[kDotSlots][kParts];
  float dots[kDotSlots][kParts][kGroupWarps][32];
};

// A part in a stage: codes, scales, then q and d of its pair.
__host__ __device__ constexpr int64_t scales_of_q_bytes(int64_t in) {
  return in / numerics::kGroupValues * 4;
}
__host__ __device__ constexpr int64_t part_bytes(int64_t in) {
  return block_bytes(in) + in + scales_of_q_bytes(in);
}
__host__ __device__ constexpr int64_t stage_bytes(int64_t in) {
  return kParts * part_bytes(in);
}

#if __CUDA_ARCH__ >= 900

// The pieces of a part: codes, scales, q, d.
constexpr int kPieces = 4;

__device__ __forceinline__ void load_activation_piece(const DownParams& p, const Part& part,
                                                      uint8_t* to, int piece, uint64_t* full) {
  const int64_t pair = part.token * p.top_k + part.slot;
  uint8_t* q = to + block_bytes(p.in);
  if (piece == 2) {
    bulk_load(q, p.q + pair * p.in, static_cast<uint32_t>(p.in), full);
  } else {
    bulk_load(q + p.in, p.d + pair * (p.in / numerics::kGroupValues),
              static_cast<uint32_t>(scales_of_q_bytes(p.in)), full);
  }
}

// A warp fills the ring: lane 4g + i issues piece i of part g, because one thread that issues all
// copies in turn cannot keep up. With prefetch the first pass brings weights alone, and activations
// follow once the kernel before has written them.
template <RowsArm kArm>
__device__ __forceinline__ void produce(const DownParams& p, Control& c, uint8_t* ring, int stages,
                                        int lane) {
  constexpr bool kWeights = kArm != RowsArm::kMathOnly;
  const int top_k = static_cast<int>(p.top_k);
  const uint32_t tokens = static_cast<uint32_t>(p.tokens);
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const uint32_t n_units = tokens * row_blocks;  // at most 2^10 * 2^17
  const int64_t n_pairs = p.tokens * p.top_k;
  const int64_t live_bytes = kWeights ? part_bytes(p.in) : part_bytes(p.in) - block_bytes(p.in);
  const int g = lane / kPieces, piece = lane % kPieces;
  const int my_units = static_cast<int>((n_units - blockIdx.x + gridDim.x - 1) / gridDim.x);
  const int n_parts = my_units * top_k;  // of this block; it has at least one unit
  bool waited = !p.prefetch;
  if (waited) dependency_wait();
  RingPosition at(1);

  struct Source {
    Part part;
    const uint8_t* slab;
  };
  const auto source = [&](int index) {  // of this block's part `index`
    Source s{{0, 0, kNoPart, 0.0f, false}, nullptr};
    if (index >= n_parts || g >= kParts) return s;
    const uint32_t unit = blockIdx.x + static_cast<uint32_t>(index / top_k) * gridDim.x;
    s.part.slot = index % top_k;
    s.part.token = static_cast<int>(p.rows_outermost ? unit % tokens : unit / row_blocks);
    s.part.row_block = static_cast<int>(p.rows_outermost ? unit / tokens : unit % row_blocks);
    const int64_t pair = s.part.token * p.top_k + s.part.slot;
    s.slab = slab_of(p.ptrs, n_pairs, kDown, pair);
    s.part.scale = p.scales[kDown * n_pairs + pair];
    s.part.live = s.slab != nullptr;
    return s;
  };
  const auto place = [&](int stage) {
    return ring + stage * stage_bytes(p.in) + g * part_bytes(p.in);
  };
  const auto late_activations = [&](int filled) {
    dependency_wait();
    waited = true;
    if (g >= kParts || piece < 2) return;
    for (int s = 0; s < filled; ++s) {
      const Part part = c.stage_parts[s][g];
      if (part.live) load_activation_piece(p, part, place(s), piece, &c.full[s][g]);
    }
  };

  Source s = source(g);
  int filled = 0;
  for (int first = 0; first < n_parts; first += kParts) {
    const Source next = source(first + kParts + g);  // its loads overlap the wait below
    if (g < kParts) {
      uint64_t* full = &c.full[at.stage][g];
      barrier_wait(&c.empty[at.stage][g], at.parity);
      if (piece == 0) {
        c.stage_parts[at.stage][g] = s.part;
        barrier_arrive_expect(full, s.part.live ? static_cast<uint32_t>(live_bytes) : 0);
      }
    }
    __syncwarp();
    if (s.part.live) {
      uint64_t* full = &c.full[at.stage][g];
      uint8_t* to = place(at.stage);
      if (piece >= 2) {
        if (waited) load_activation_piece(p, s.part, to, piece, full);
      } else if (kWeights) {
        bulk_load_block_piece(to, s.slab, p.rows, p.in, s.part.row_block, piece, full);
      }
    }
    at.advance(stages);
    if (!waited && ++filled == stages) late_activations(filled);
    s = next;
  }
  if (!waited) late_activations(filled);
  if (lane < kParts) {
    barrier_wait(&c.empty[at.stage][lane], at.parity);
    c.stage_parts[at.stage][lane] = {0, 0, kEnd, 0.0f, false};
    barrier_arrive(&c.full[at.stage][lane]);
  }
}

template <RowsArm kArm>
__device__ __forceinline__ void consume(const DownParams& p, Control& c, const uint8_t* ring,
                                        int stages, int warp, int lane) {
  const int group = warp / kGroupWarps, w = warp % kGroupWarps;
  const int quad = lane % 4;
  const int tiles = static_cast<int>(p.in / numerics::kV2TileColumns);
  const uint32_t whole = static_cast<uint32_t>(stage_bytes(p.in));
  const uint8_t* first = ring + group * part_bytes(p.in);
  const uint8_t* first_codes = first + lane * numerics::kGroupCodeBytes;
  const uint8_t* first_scales = first + block_codes_bytes(p.in) + lane * numerics::kGroupScaleBytes;
  const uint8_t* first_q = first + block_bytes(p.in);
  const DecodeConstants k = DecodeConstants::make();
  RingPosition at(0), slot(1);
  for (;;) {
    barrier_wait(&c.full[at.stage][group], at.parity);
    const Part part = c.stage_parts[at.stage][group];
    float acc[kChains] = {};
    if (part.slot >= 0 && part.live) {
      const uint32_t offset = static_cast<uint32_t>(at.stage) * whole;
      const auto* q = reinterpret_cast<const int8_t*>(first_q + offset);
      const auto* d = reinterpret_cast<const float*>(first_q + offset + p.in);
      const auto step = [&](int i, int tile) {
        const WeightGroup weights =
            load_tile<kArm>(first_codes + offset, first_scales + offset, tile);
        ActivationGroup a{};
        if constexpr (kArm != RowsArm::kLoadOnly) a = load_activations<true>(q, d, 4 * tile + quad);
        accumulate<kArm>(k, acc[i], weights, a);
      };
      // Without branches between them, several tiles overlap.
      int base = w;
#pragma unroll 2
      for (; base + kLaneClasses - w <= tiles; base += kLaneClasses) {
#pragma unroll
        for (int i = 0; i < kChains; ++i)
          step(i, base + kGroupWarps * i);
      }
#pragma unroll
      for (int i = 0; i < kChains; ++i) {
        if (base + kGroupWarps * i < tiles) step(i, base + kGroupWarps * i);
      }
    }
#pragma unroll
    for (int half = kChains / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i)
        acc[i] = tree_add<kArm>(acc[i], acc[i + half]);
    }
    __syncwarp();
    if (part.slot != kEnd) {
      if (lane == 0) barrier_arrive(&c.empty[at.stage][group]);
      at.advance(stages);
    }
    barrier_wait(&c.dots_empty[slot.stage], slot.parity);
    c.dots[slot.stage][group][w][lane] = acc[0];
    if (w == 0 && lane == 0) c.dot_parts[slot.stage][group] = part;
    named_arrive(kFirstDotBarrier + slot.stage, kDotThreads);
    slot.advance(kDotSlots);
    if (part.slot == kEnd) return;
  }
}

template <RowsArm kArm>
__device__ __forceinline__ void finish(const DownParams& p, Control& c, int lane) {
  RingPosition at(0);
  float y = 0.0f;
  for (;;) {
    named_sync(kFirstDotBarrier + at.stage, kDotThreads);
    Part parts[kParts];
    float dots[kParts];
#pragma unroll
    for (int g = 0; g < kParts; ++g) {
      parts[g] = c.dot_parts[at.stage][g];
      float v[kGroupWarps];
#pragma unroll
      for (int j = 0; j < kGroupWarps; ++j)
        v[j] = c.dots[at.stage][g][j][lane];
#pragma unroll
      for (int half = kGroupWarps / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; ++j)
          v[j] = tree_add<kArm>(v[j], v[j + half]);
      }
      dots[g] = quad_sum<kArm>(v[0]);
    }
    barrier_arrive(&c.dots_empty[at.stage]);
    at.advance(kDotSlots);
    if (parts[0].slot == kEnd) return;
#pragma unroll
    for (int g = 0; g < kParts; ++g) {
      const Part& part = parts[g];
      if (part.slot == kNoPart) continue;
      const int64_t row = static_cast<int64_t>(part.row_block) * kRowBlock + lane / 4;
      const int64_t to = part.token * p.y_stride + row;
      if constexpr (kArm == RowsArm::kLoadOnly) {
        if (probe_escape(dots[g])) store_y(p, to, 0.0f);
      } else {
        if (part.slot == 0) y = p.accumulate ? load_y(p, to) : 0.0f;
        if (part.live)
          y = down_slot(p, part.token * p.top_k + part.slot, row, part.scale, dots[g], y);
        if (part.slot == p.top_k - 1 && lane % 4 == 0) store_y(p, to, y);
      }
    }
  }
}

#endif  // __CUDA_ARCH__ >= 900

template <RowsArm kArm>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    down_ring_kernel([[maybe_unused]] const __grid_constant__ DownParams p,
                     [[maybe_unused]] int stages) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ Control c;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      for (int g = 0; g < kParts; ++g) {
        barrier_init(&c.full[i][g], 1);
        barrier_init(&c.empty[i][g], kGroupWarps);
      }
    }
    for (int i = 0; i < kDotSlots; ++i) {
      barrier_init(&c.dots_empty[i], 32);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (warp == kProducerWarp) {
    produce<kArm>(p, c, ring, stages, lane);
  } else if (warp == kFinisherWarp) {
    dependency_wait();
    dependency_release();
    finish<kArm>(p, c, lane);
  } else {
    // Activations arrive through the producer, so nothing here depends on the kernel before.
    consume<kArm>(p, c, ring, stages, warp, lane);
  }
#endif
}

struct RingKernel {
  RowsArm arm;
  void (*kernel)(DownParams, int);
};

constexpr RingKernel kKernels[] = {
    {RowsArm::kServed, down_ring_kernel<RowsArm::kServed>},
    {RowsArm::kLoadOnly, down_ring_kernel<RowsArm::kLoadOnly>},
    {RowsArm::kMathOnly, down_ring_kernel<RowsArm::kMathOnly>},
};

// The hardware keeps 1 KB of an SM's shared memory for each block.
int64_t ring_capacity(const Device& device) {
  constexpr int64_t kReserved = 1024;
  const int64_t of_sm = static_cast<int64_t>(device.shared_bytes_per_block) + kReserved;
  return of_sm / kBlocksPerSm - kReserved - static_cast<int64_t>(sizeof(Control)) - 128;
}

int ring_stages(const Device& device, int64_t in) {
  const int64_t fit = ring_capacity(device) / stage_bytes(in);
  return static_cast<int>(fit < kMaxStages ? fit : kMaxStages);
}

}  // namespace

Status down_ring_load(const Device& device) {
  if (device.compute_capability < 90) return MEMRA_OK;
  for (const RingKernel& k : kKernels) {
    MEMRA_TRY(load_kernel(k.kernel, static_cast<size_t>(ring_capacity(device))));
  }
  return MEMRA_OK;
}

// A bulk copy moves multiples of 16 bytes: d of one pair is that where rows are whole tiles.
bool down_ring_fits(const Device& device, int64_t intermediate_size) {
  return device.compute_capability >= 90 && intermediate_size % numerics::kV2TileColumns == 0 &&
         ring_stages(device, intermediate_size) >= kMinStages;
}

Status down_ring(const Device& device, RowsArm arm, const DownParams& params,
                 const Launch& launch) {
  const int stages = ring_stages(device, params.in);
  const int64_t n_units = params.tokens * (params.rows / kRowBlock);
  const int64_t most = static_cast<int64_t>(kBlocksPerSm) * device.n_multiprocessors;
  const int64_t blocks = n_units < most ? n_units : most;
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                  static_cast<size_t>(stages * stage_bytes(params.in))};
  for (const RingKernel& k : kKernels) {
    if (k.arm == arm) return launch_kernel(device, launch, grid, k.kernel, params, stages);
  }
  return fail(MEMRA_ERROR_INTERNAL) << "no ring kernel of this arm";
}

}  // namespace memra::cuda
