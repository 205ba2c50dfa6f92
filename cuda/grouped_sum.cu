// The last step of the grouped path: pair outputs to those of tokens.

#include <algorithm>

#include "grouped.h"
#include "grouped_layout.cuh"
#include "launch.h"
#include "numerics/dot.h"
#include "numerics/f16_rows.h"
#include "numerics/half.h"
#include "ptx.cuh"

namespace memra::cuda {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kColumns = 8;  // of a thread at once
constexpr int64_t kMaxGridY = 65535;
static_assert(kExponentColumns % kColumns == 0);

// The slots of a token that have a place, in their order.
struct Slots {
  int32_t place[MEMRA_MAX_TOP_K];
  float scale[MEMRA_MAX_TOP_K];
  float weight[MEMRA_MAX_TOP_K];
  const float* bias[MEMRA_MAX_TOP_K];
  int count;
};

// By one warp.
__device__ inline void collect_slots(const SumSlotsArgs& p, int64_t token, int lane, Slots& slots) {
  int count = 0;
  for (int first = 0; first < p.top_k; first += 32) {
    const int64_t pair = token * p.top_k + first + lane;
    const int32_t place = first + lane < p.top_k ? p.inverse[pair] : -1;
    const uint32_t placed = __ballot_sync(~0u, place >= 0);
    if (place >= 0) {
      const int at = count + __popc(placed & ((1u << lane) - 1u));
      const int64_t expert = p.topk_ids[pair] - p.local_expert_offset;
      const float weight = p.topk_weights[pair];
      slots.place[at] = place;
      slots.scale[at] = numerics::pair_scale(weight, p.scales[expert]);
      slots.weight[at] = weight;
      slots.bias[at] = p.bias != nullptr ? p.bias[expert] : nullptr;
    }
    count += __popc(placed);
  }
  if (lane == 0) slots.count = count;
}

template <class Type>
__device__ inline void load_columns(const void* base, int64_t index, float (&x)[kColumns]) {
  using Storage = typename Type::Storage;
  Storage values[kColumns];
  uint4 vectors[sizeof(values) / 16];
  const auto* const from =
      reinterpret_cast<const uint4*>(static_cast<const Storage*>(base) + index);
#pragma unroll
  for (size_t i = 0; i < sizeof(values) / 16; ++i)
    vectors[i] = from[i];
  __builtin_memcpy(values, vectors, sizeof(values));
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    x[i] = Type::load(&values[i]);
}

template <class Type>
__device__ inline void store_columns(void* base, int64_t index, const float (&x)[kColumns]) {
  using Storage = typename Type::Storage;
  Storage values[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    Type::store(&values[i], x[i]);
  uint4 vectors[sizeof(values) / 16];
  __builtin_memcpy(vectors, values, sizeof(values));
  auto* const to = reinterpret_cast<uint4*>(static_cast<Storage*>(base) + index);
#pragma unroll
  for (size_t i = 0; i < sizeof(values) / 16; ++i)
    to[i] = vectors[i];
}

// Pair outputs in either form.
struct OutF32 {
  static __device__ void load(const SumSlotsArgs& p, int64_t place, int64_t column,
                              float (&x)[kColumns]) {
    load_columns<numerics::F32>(p.out, place * p.columns + column, x);
  }
};
struct OutF16 {
  static __device__ void load(const SumSlotsArgs& p, int64_t place, int64_t column,
                              float (&x)[kColumns]) {
    load_columns<numerics::F16>(p.out16, place * p.columns + column, x);
    const int8_t e = p.exponents[exponent_index(p.tokens * p.top_k, place, column)];
    const float factor =
        e == kNotFinite ? numerics::bits_float(numerics::kCanonicalNan) : numerics::power_of_two(e);
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      x[i] = numerics::mul(x[i], factor);
  }
};

template <class Out, bool kBias>
__device__ inline void add_slots(const SumSlotsArgs& p, const Slots& slots, int64_t column,
                                 float (&y)[kColumns]) {
#pragma unroll 4
  for (int slot = 0; slot < slots.count; ++slot) {
    float x[kColumns];
    Out::load(p, slots.place[slot], column, x);
    const float scale = slots.scale[slot];
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      y[i] = numerics::slot_step(scale, x[i], y[i]);
    if constexpr (kBias) {
      const float* const bias = slots.bias[slot];
      if (bias == nullptr) continue;
      const float weight = slots.weight[slot];
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        y[i] = numerics::slot_bias_step(weight, bias[column + i], y[i]);
    }
  }
}

template <class Out, class Type>
__global__ void __launch_bounds__(kMaxThreads) sum_slots_kernel(SumSlotsArgs p) {
  __shared__ Slots slots;
  dependency_wait();
  dependency_release();
  const int64_t token = blockIdx.x;
  if (threadIdx.x < 32) collect_slots(p, token, static_cast<int>(threadIdx.x), slots);
  __syncthreads();
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.x * kColumns;
  for (int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kColumns;
       column < p.columns; column += step) {
    float y[kColumns] = {};
    if (p.accumulate) load_columns<Type>(p.y, token * p.y_stride + column, y);
    if (p.bias == nullptr) {
      add_slots<Out, false>(p, slots, column, y);
    } else {
      add_slots<Out, true>(p, slots, column, y);
    }
    store_columns<Type>(p.y, token * p.y_stride + column, y);
  }
}

using Kernel = void (*)(SumSlotsArgs);

template <class Out>
Kernel choose_kernel(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return sum_slots_kernel<Out, numerics::F16>;
    case MEMRA_BF16:
      return sum_slots_kernel<Out, numerics::Bf16>;
    default:
      return sum_slots_kernel<Out, numerics::F32>;
  }
}

}  // namespace

Status sum_slots(const Device& device, const SumSlotsArgs& args, const Launch& launch) {
  const int64_t lanes = args.columns / kColumns;
  const int64_t threads = std::min<int64_t>((lanes + 31) / 32 * 32, kMaxThreads);
  const int64_t blocks = std::min((lanes + threads - 1) / threads, kMaxGridY);
  const Grid grid{dim3(static_cast<unsigned>(args.tokens), static_cast<unsigned>(blocks)),
                  static_cast<unsigned>(threads)};
  return launch_kernel(device, launch, grid,
                       args.out != nullptr ? choose_kernel<OutF32>(args.y_dtype)
                                           : choose_kernel<OutF16>(args.y_dtype),
                       args);
}

Status sum_slots_load() {
  for (const memra_dtype dtype : {MEMRA_F32, MEMRA_F16, MEMRA_BF16}) {
    MEMRA_TRY(load_kernel(choose_kernel<OutF32>(dtype)));
    MEMRA_TRY(load_kernel(choose_kernel<OutF16>(dtype)));
  }
  return MEMRA_OK;
}

}  // namespace memra::cuda
