// Rule 6 over dots that lie in memory: y = the weighted sum of a token's slots, in order.

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"

namespace memra::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ DownParams p) {
  __shared__ float scale[MEMRA_MAX_TOP_K];
  __shared__ bool live[MEMRA_MAX_TOP_K];
  const int64_t token = blockIdx.y;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int top_k = static_cast<int>(p.top_k);
  // Ids and scales were there before the kernel ahead of this one began.
  for (int s = static_cast<int>(threadIdx.x); s < top_k; s += kThreads) {
    const PairPlane plane = pair_plane(p, token * top_k + s);
    scale[s] = plane.scale;
    live[s] = plane.slab != nullptr;
  }
  __syncthreads();
  dependency_wait();
  dependency_release();
  if (row >= p.rows) return;
  const int64_t to = token * p.y_stride + row;
  float y = p.accumulate ? load_y(p, to) : 0.0f;
#pragma unroll 4
  for (int s = 0; s < top_k; ++s) {
    const int64_t pair = token * top_k + s;
    if (live[s]) y = down_slot(p, pair, row, scale[s], p.dots[pair * p.rows + row], y);
  }
  store_y(p, to, y);
}

}  // namespace

Status combine_load() {
  return load_kernel(combine_kernel);
}

Status combine(const Device& device, const DownParams& params, const Launch& launch) {
  const Grid grid{dim3(static_cast<unsigned>((params.rows + kThreads - 1) / kThreads),
                       static_cast<unsigned>(params.tokens)),
                  dim3(kThreads), 0};
  return launch_kernel(device, launch, grid, combine_kernel, params);
}

}  // namespace memra::cuda
