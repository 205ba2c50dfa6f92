// Gate and up for any architecture: one warp computes 8 outputs of one pair, or of up to four pairs
// of the same expert, straight from global memory.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"

namespace memra::cuda {
namespace {

// Pairs that share one read of an expert's weights.
constexpr int kSharedPairs = 4;

// For DEDUP_ORDER: how many pairs the warp at `position` of the order serves: those of its run of
// equal slabs, in chunks of kSharedPairs from the run's begin; 0 where another warp serves them.
__device__ __forceinline__ int shared_chunk(const GateUpParams& p, int64_t position, int lane) {
  const int64_t pair = p.order[position];
  const void* gate = p.ptrs[kGate * p.n_pairs + pair];
  const void* up = p.ptrs[kUp * p.n_pairs + pair];
  const auto same = [&](int64_t at) {
    if (at < 0 || at >= p.n_pairs) return false;
    const int64_t other = p.order[at];
    return p.ptrs[kGate * p.n_pairs + other] == gate && p.ptrs[kUp * p.n_pairs + other] == up;
  };
  int64_t before = 0;  // equal neighbours just before
  for (int64_t at = position - 1 - lane;; at -= 32) {
    const unsigned differs = ~__ballot_sync(0xFFFFFFFFu, same(at));
    if (differs != 0) {
      before += __ffs(static_cast<int>(differs)) - 1;
      break;
    }
    before += 32;
  }
  if (before % kSharedPairs != 0) return 0;
  const unsigned differs = ~__ballot_sync(0xFFFFFFFFu, same(position + lane));
  const int run = differs != 0 ? __ffs(static_cast<int>(differs)) - 1 : 32;
  return run < kSharedPairs ? run : kSharedPairs;
}

template <Format kGateFormat, Format kUpFormat, bool kLaneMajor, bool kAhead, int kPairs,
          RowsArm kArm>
__global__ void __launch_bounds__(128, kPairs > 1 ? 2 : 3)
    rows_gate_up_kernel(const __grid_constant__ GateUpParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warps = blockDim.x / 32;
  const int64_t row_blocks = p.rows / kRowBlock;
  const int64_t n_units = p.n_pairs * row_blocks;
  const DecodeConstants k = DecodeConstants::make();
  dependency_wait();
  dependency_release();

  for (int64_t unit = blockIdx.x * warps + threadIdx.x / 32; unit < n_units;
       unit += gridDim.x * warps) {
    const int64_t position = unit / row_blocks;
    const int64_t row_block = unit % row_blocks;
    int count = 1;
    if constexpr (kPairs > 1) {
      count = shared_chunk(p, position, lane);
      if (count == 0) continue;
    }
    int64_t pair[kPairs];
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int64_t at = position + (n < count ? n : 0);
      pair[n] = p.order != nullptr ? p.order[at] : at;
    }
    const uint8_t* gate = slab_of(p.ptrs, p.n_pairs, kGate, pair[0]);
    const uint8_t* up = slab_of(p.ptrs, p.n_pairs, kUp, pair[0]);
    float dots[2][kPairs] = {};
    const bool live = gate != nullptr && up != nullptr;
    if (live) {
      const int8_t* q[kPairs];
      const float* d[kPairs];
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        const int64_t token = pair[n] / p.top_k;
        q[n] = p.q + token * p.in;
        d[n] = p.d + token * (p.in / numerics::kGroupValues);
      }
      if constexpr (kGateFormat == kUpFormat) {
        DotOperands<2, kPairs> o{{gate, up}, {}, {}, p.rows, p.in, row_block};
#pragma unroll
        for (int n = 0; n < kPairs; ++n)
          o.q[n] = q[n], o.d[n] = d[n];
        block_dots<kGateFormat, 2, kPairs, kLaneMajor, kAhead, kArm>(k, o, lane, dots);
      } else {
        DotOperands<1, kPairs> o{{gate}, {}, {}, p.rows, p.in, row_block};
#pragma unroll
        for (int n = 0; n < kPairs; ++n)
          o.q[n] = q[n], o.d[n] = d[n];
        float plane_dots[1][kPairs];
        block_dots<kGateFormat, 1, kPairs, kLaneMajor, kAhead, kArm>(k, o, lane, plane_dots);
#pragma unroll
        for (int n = 0; n < kPairs; ++n)
          dots[0][n] = plane_dots[0][n];
        o.slab[0] = up;
        block_dots<kUpFormat, 1, kPairs, kLaneMajor, kAhead, kArm>(k, o, lane, plane_dots);
#pragma unroll
        for (int n = 0; n < kPairs; ++n)
          dots[1][n] = plane_dots[0][n];
      }
    }
    // Lane t of a quad writes for pair t.
    const int64_t row = row_block * kRowBlock + lane / 4;
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      if (lane % 4 != n || n >= count) continue;
      if constexpr (kArm == RowsArm::kLoadOnly) {
        if (probe_escape(dots[0][n]) && probe_escape(dots[1][n])) p.out[row] = dots[0][n];
      } else {
        p.out[pair[n] * p.rows + row] =
            live ? gate_up_output(p, pair[n], row, p.scales[kGate * p.n_pairs + pair[n]],
                                  p.scales[kUp * p.n_pairs + pair[n]], dots[0][n], dots[1][n])
                 : 0.0f;
      }
    }
  }
}

template <Format kGateFormat, Format kUpFormat, bool kLaneMajor, bool kAhead, int kPairs,
          RowsArm kArm = RowsArm::kServed>
constexpr GateUpKernel entry(const char* name, uint32_t key) {
  return {kArm,
          kGateFormat == Format::kV2,
          kUpFormat == Format::kV2,
          key,
          name,
          rows_gate_up_kernel<kGateFormat, kUpFormat, kLaneMajor, kAhead, kPairs, kArm>};
}

constexpr Format kV1 = Format::kV1;
constexpr Format kV2 = Format::kV2;
constexpr uint32_t kIlp = MEMRA_ROWS_ILP;
constexpr uint32_t kDedup = MEMRA_ROWS_DEDUP_ORDER;
constexpr uint32_t kLane = MEMRA_ROWS_LANE_MAJOR;

// Keys hold the bits that choose machine code; ORD and PACK choose only the launch.
constexpr GateUpKernel kKernels[] = {
    entry<kV1, kV1, false, false, 1>("gate_up_v1", 0),
    entry<kV1, kV1, false, true, 1>("gate_up_v1_ilp", kIlp),
    entry<kV1, kV1, false, false, kSharedPairs>("gate_up_v1_dedup", kDedup),
    entry<kV2, kV2, false, false, 1>("gate_up_v2", 0),
    entry<kV2, kV2, false, true, 1>("gate_up_v2_ilp", kIlp),
    entry<kV2, kV2, false, false, kSharedPairs>("gate_up_v2_dedup", kDedup),
    entry<kV2, kV2, true, true, 1>("gate_up_v2_lane_major", kLane),
    entry<kV2, kV2, true, false, kSharedPairs>("gate_up_v2_lane_major_dedup", kLane | kDedup),
    entry<kV1, kV2, false, false, 1>("gate_up_v1_v2", 0),
    entry<kV1, kV2, false, false, kSharedPairs>("gate_up_v1_v2_dedup", kDedup),
    entry<kV2, kV1, false, false, 1>("gate_up_v2_v1", 0),
    entry<kV2, kV1, false, false, kSharedPairs>("gate_up_v2_v1_dedup", kDedup),
    entry<kV1, kV1, false, true, 1, RowsArm::kLoadOnly>("gate_up_v1_ilp_loadonly", kIlp),
    entry<kV1, kV1, false, true, 1, RowsArm::kMathOnly>("gate_up_v1_ilp_mathonly", kIlp),
    entry<kV2, kV2, false, true, 1, RowsArm::kLoadOnly>("gate_up_v2_ilp_loadonly", kIlp),
    entry<kV2, kV2, false, true, 1, RowsArm::kMathOnly>("gate_up_v2_ilp_mathonly", kIlp),
    entry<kV2, kV2, true, true, 1, RowsArm::kLoadOnly>("gate_up_v2_lane_major_loadonly", kLane),
    entry<kV2, kV2, true, true, 1, RowsArm::kMathOnly>("gate_up_v2_lane_major_mathonly", kLane),
};

}  // namespace

std::span<const GateUpKernel> gate_up_kernels() {
  return kKernels;
}

}  // namespace memra::cuda
