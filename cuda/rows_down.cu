// Down for any architecture: a block computes 8 outputs of one token. Its warps share the slots, so
// that eight experts per output do not wait for one another; the weighted sum then runs in slot
// order.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"

namespace memra::cuda {
namespace {

template <Format kFormat, bool kLaneMajor, bool kAhead, RowsArm kArm>
__global__ void __launch_bounds__(512, 1) rows_down_kernel(const __grid_constant__ DownParams p) {
  __shared__ float slot_dot[MEMRA_MAX_TOP_K][kRowBlock];
  __shared__ float slot_scale[MEMRA_MAX_TOP_K];
  __shared__ bool slot_live[MEMRA_MAX_TOP_K];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int64_t row_blocks = p.rows / kRowBlock;
  const int64_t n_pairs = p.tokens * p.top_k;
  const int64_t n_units = p.tokens * row_blocks;
  const DecodeConstants k = DecodeConstants::make();
  dependency_wait();
  dependency_release();

  for (int64_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
    const int64_t token = p.rows_outermost ? unit % p.tokens : unit / row_blocks;
    const int64_t row_block = p.rows_outermost ? unit / p.tokens : unit % row_blocks;
    for (int slot = warp; slot < p.top_k; slot += warps) {
      const int64_t pair = token * p.top_k + slot;
      const uint8_t* slab = slab_of(p.ptrs, n_pairs, kDown, pair);
      float dots[1][1] = {};
      if (slab != nullptr) {
        const DotOperands<1, 1> o{{slab},
                                  {p.q + pair * p.in},
                                  {p.d + pair * (p.in / numerics::kGroupValues)},
                                  p.rows,
                                  p.in,
                                  row_block};
        block_dots<kFormat, 1, 1, kLaneMajor, kAhead, kArm>(k, o, lane, dots);
      }
      if (lane % 4 == 0) slot_dot[slot][lane / 4] = dots[0][0];
      if (lane == 0) {
        slot_scale[slot] = p.scales[kDown * n_pairs + pair];
        slot_live[slot] = slab != nullptr;
      }
    }
    __syncthreads();
    if (threadIdx.x < kRowBlock) {
      const int64_t row = row_block * kRowBlock + threadIdx.x;
      const int64_t at = token * p.y_stride + row;
      if constexpr (kArm == RowsArm::kLoadOnly) {
        if (probe_escape(slot_dot[0][threadIdx.x])) store_y(p, at, 0.0f);
      } else {
        float y = p.accumulate ? load_y(p, at) : 0.0f;
        for (int slot = 0; slot < p.top_k; ++slot) {
          if (!slot_live[slot]) continue;
          y = down_slot(p, token * p.top_k + slot, row, slot_scale[slot],
                        slot_dot[slot][threadIdx.x], y);
        }
        store_y(p, at, y);
      }
    }
    __syncthreads();
  }
}

template <Format kFormat, bool kLaneMajor, bool kAhead, RowsArm kArm = RowsArm::kServed>
constexpr DownKernel entry(const char* name, uint32_t key) {
  return {kArm, kFormat == Format::kV2, key, name,
          rows_down_kernel<kFormat, kLaneMajor, kAhead, kArm>};
}

constexpr Format kV1 = Format::kV1;
constexpr Format kV2 = Format::kV2;
constexpr uint32_t kIlp = MEMRA_ROWS_ILP;
constexpr uint32_t kLane = MEMRA_ROWS_LANE_MAJOR;

constexpr DownKernel kKernels[] = {
    entry<kV1, false, false>("down_v1", 0),
    entry<kV1, false, true>("down_v1_ilp", kIlp),
    entry<kV2, false, false>("down_v2", 0),
    entry<kV2, false, true>("down_v2_ilp", kIlp),
    entry<kV2, true, true>("down_v2_lane_major", kLane),
    entry<kV1, false, true, RowsArm::kLoadOnly>("down_v1_ilp_loadonly", kIlp),
    entry<kV1, false, true, RowsArm::kMathOnly>("down_v1_ilp_mathonly", kIlp),
    entry<kV2, false, true, RowsArm::kLoadOnly>("down_v2_ilp_loadonly", kIlp),
    entry<kV2, false, true, RowsArm::kMathOnly>("down_v2_ilp_mathonly", kIlp),
    entry<kV2, true, true, RowsArm::kLoadOnly>("down_v2_lane_major_loadonly", kLane),
    entry<kV2, true, true, RowsArm::kMathOnly>("down_v2_lane_major_mathonly", kLane),
};

}  // namespace

std::span<const DownKernel> down_kernels() {
  return kKernels;
}

}  // namespace memra::cuda
