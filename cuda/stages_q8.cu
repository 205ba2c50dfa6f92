// Activations to int8, and the lane-major order.

#include <algorithm>

#include "launch.h"
#include "numerics/half.h"
#include "numerics/lane_major.h"
#include "numerics/q8.h"
#include "ptx.cuh"
#include "stages.h"

namespace memra::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLaneColumns = 8;  // of one lane: four lanes to a group
constexpr int kLanesPerGroup = numerics::kGroup / kLaneColumns;
constexpr int64_t kMaxGridY = 65535;

// ---- Lane-major order: 8 bytes of the low values and 8 of the high values of a half, interleaved

constexpr bool interleaving_is_lane_major() {
  for (int position = 0; position < numerics::kGroup; ++position) {
    const int half = position / 16;
    const int byte = position % 16 / 2;
    const int high = position % 2;
    if (numerics::lane_major_column(position) != half * 16 + byte + high * 8) return false;
  }
  return true;
}
static_assert(interleaving_is_lane_major());

__device__ inline uint2 interleave(uint32_t low, uint32_t high) {
  return make_uint2(byte_permute(low, high, 0x5140), byte_permute(low, high, 0x7362));
}

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
__device__ void load_lane(const typename Type::Storage* p, float (&x)[kLaneColumns]) {
  using Storage = typename Type::Storage;
  constexpr int kVectors = kLaneColumns * sizeof(Storage) / 16;
  uint4 vectors[kVectors];
  for (int i = 0; i < kVectors; ++i)
    vectors[i] = reinterpret_cast<const uint4*>(p)[i];
  Storage values[kLaneColumns];
  __builtin_memcpy(values, vectors, sizeof(values));
  for (int i = 0; i < kLaneColumns; ++i)
    x[i] = Type::load(&values[i]);
}

template <class Type>
__global__ void __launch_bounds__(kThreads) quantize_q8_kernel(Q8Params p) {
  dependency_wait();
  dependency_release();
  const int64_t lane_of_row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t column = lane_of_row * kLaneColumns;
  const bool exists = column < p.columns;
  const bool is_high = lane_of_row % 2 != 0;
  for (int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
    float x[kLaneColumns] = {};
    if (exists) {
      load_lane<Type>(static_cast<const typename Type::Storage*>(p.x) + row * p.x_stride + column,
                      x);
    }
    uint32_t amax_bits = 0;
    for (int i = 0; i < kLaneColumns; ++i) {
      amax_bits = max(amax_bits, numerics::magnitude_bits(x[i]));
    }
    for (int distance = 1; distance < kLanesPerGroup; distance *= 2) {
      amax_bits = max(amax_bits, __shfl_xor_sync(~0u, amax_bits, distance));
    }
    const numerics::Q8Scale scale = numerics::q8_scale(amax_bits);
    uint32_t words[2] = {};
    for (int i = 0; i < kLaneColumns; ++i) {
      words[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(numerics::q8(x[i], scale)))
                      << (i % 4 * 8);
    }
    uint2 out = make_uint2(words[0], words[1]);
    if (p.lane_major) {
      // The lanes of the low and of the high values of a half complete 8 positions each.
      const uint32_t received = __shfl_xor_sync(~0u, is_high ? words[0] : words[1], 1);
      out = is_high ? interleave(received, words[1]) : interleave(words[0], received);
    }
    if (!exists) continue;
    *reinterpret_cast<uint2*>(p.q + row * p.columns + column) = out;
    if (lane_of_row % kLanesPerGroup == 0) {
      p.d[row * (p.columns / numerics::kGroup) + lane_of_row / kLanesPerGroup] = scale.d;
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
  const int64_t n_lanes = q8.columns / kLaneColumns;
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
