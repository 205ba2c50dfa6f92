// Activations to int8, and the lane-major order.

#include <algorithm>

#include "launch.h"
#include "q8_lanes.cuh"
#include "stages.h"

namespace memra::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kMaxGridY = 65535;

// ---- Quantisation

struct Q8Params {
  const void* x;
  int64_t x_stride;
  int64_t rows;
  int64_t columns;
  int8_t* q;
  float* d;
  bool lane_major;
};

template <class Type>
__global__ void __launch_bounds__(kThreads) quantize_q8_kernel(Q8Params p) {
  dependency_wait();
  dependency_release();
  const int64_t lane_of_row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t column = lane_of_row * kQ8LaneColumns;
  const bool exists = column < p.columns;
  for (int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
    Q8LaneLoad<Type> loaded{};
    if (exists) {
      loaded.load(static_cast<const typename Type::Storage*>(p.x) + row * p.x_stride + column);
    }
    float x[kQ8LaneColumns];
    loaded.widen(x);
    const Q8Lane lane = quantize_lane(x, p.lane_major, static_cast<int>(lane_of_row % 4));
    if (!exists) continue;
    *reinterpret_cast<uint2*>(p.q + row * p.columns + column) = lane.q;
    if (lane_of_row % kQ8LanesPerGroup == 0) {
      p.d[row * (p.columns / numerics::kGroup) + lane_of_row / kQ8LanesPerGroup] = lane.d;
    }
  }
}

using Kernel = void (*)(Q8Params);

Kernel choose(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return quantize_q8_kernel<numerics::F16>;
    case MEMRA_BF16:
      return quantize_q8_kernel<numerics::Bf16>;
    default:
      return quantize_q8_kernel<numerics::F32>;
  }
}

// ---- Permutation alone

__global__ void __launch_bounds__(kThreads)
    q8_to_lane_major_kernel(const uint4* q, int64_t n_halves, uint4* out) {
  dependency_wait();
  dependency_release();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n_halves;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const uint4 v = q[i];
    const uint2 first = interleave(v.x, v.z);
    const uint2 second = interleave(v.y, v.w);
    out[i] = make_uint4(first.x, first.y, second.x, second.y);
  }
}

}  // namespace

Status quantize_q8(const Device& device, const QuantizeQ8Args& args, const Launch& launch) {
  const memra_q8_1_args& q8 = args.q8;
  const Q8Params params{q8.x, q8.x_stride, q8.rows, q8.columns, q8.q, q8.d, args.lane_major};
  const int64_t n_lanes = q8.columns / kQ8LaneColumns;
  const dim3 blocks(static_cast<unsigned>((n_lanes + kThreads - 1) / kThreads),
                    static_cast<unsigned>(std::min(q8.rows, kMaxGridY)));
  return launch_kernel(device, launch, Grid{blocks, kThreads}, choose(q8.x_dtype), params);
}

Status q8_to_lane_major(const Device& device, const int8_t* q, int64_t rows, int64_t columns,
                        int8_t* out, memra_stream stream) {
  const int64_t n_halves = rows * (columns / 16);
  const int64_t blocks = std::min<int64_t>((n_halves + kThreads - 1) / kThreads, 1 << 30);
  return launch_kernel(device, Launch{stream}, Grid{static_cast<unsigned>(blocks), kThreads},
                       q8_to_lane_major_kernel, reinterpret_cast<const uint4*>(q), n_halves,
                       reinterpret_cast<uint4*>(out));
}

Status stages_q8_load() {
  MEMRA_TRY(load_kernel(q8_to_lane_major_kernel));
  for (const memra_dtype dtype : {MEMRA_F32, MEMRA_F16, MEMRA_BF16}) {
    MEMRA_TRY(load_kernel(choose(dtype)));
  }
  return MEMRA_OK;
}

}  // namespace memra::cuda
