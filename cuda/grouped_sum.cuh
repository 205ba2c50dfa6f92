#pragma once

// The last step of the grouped path: pair outputs to those of tokens, whatever form pair outputs
// have. A form `Out` is what a thread holds of one pair's:
//
//   struct Out {
//     using Source = ...;               // a parameter of the kernel: where all pairs' outputs are
//     static constexpr int kBatch = 4;  // slots read at once, a power of two
//     __device__ void load(const Source& source, const SumSlotsArgs& p, int64_t place,
//                          int64_t column);              // kColumns of them from `column` on
//     // Their dot products, without the scale of the row of activations.
//     __device__ void widen(float (&x)[kColumns]) const;
//   };

#include <algorithm>

#include "grouped.h"
#include "grouped_activation.cuh"
#include "grouped_fragment.cuh"
#include "launch.h"
#include "numerics/dot.h"
#include "numerics/half.h"
#include "ptx.cuh"

namespace memra::cuda::sum {

inline constexpr int kMaxThreads = 256;
// At least: with more than 64 registers fewer bytes are on their way.
inline constexpr int kBlocksOfSm = 4;
inline constexpr int kColumns = 8;  // of a thread at once
inline constexpr int64_t kMaxGridY = 65535;

// The slots of a token that have a place, in their order.
struct Slots {
  int32_t place[MEMRA_MAX_TOP_K];
  float scale[MEMRA_MAX_TOP_K];      // that of the row of activations included,
  float row_scale[MEMRA_MAX_TOP_K];  // or else by itself
  float weight[MEMRA_MAX_TOP_K];
  const float* bias[MEMRA_MAX_TOP_K];
  int count;
  bool apart;  // some row_scale is not 1
};

// Whether a finite scale times a power of two is not normal. What is not finite stays what it is.
__device__ __forceinline__ bool leaves_range(float scale, float product) {
  const uint32_t magnitude = numerics::magnitude_bits(product);
  const bool normal = magnitude >= 0x00800000u && magnitude < numerics::kInfBits;
  return !normal && scale != 0.0f && numerics::magnitude_bits(scale) < numerics::kInfBits &&
         magnitude <= numerics::kInfBits;
}

// By one warp.
__device__ inline void collect_slots(const SumSlotsArgs& p, int64_t token, int lane, Slots& slots) {
  int count = 0;
  bool any_apart = false;
  for (int first = 0; first < p.top_k; first += 32) {
    const int64_t pair = token * p.top_k + first + lane;
    const int32_t place = first + lane < p.top_k ? p.inverse[pair] : -1;
    const uint32_t placed = __ballot_sync(~0u, place >= 0);
    bool apart = false;
    if (place >= 0) {
      const int at = count + __popc(placed & ((1u << lane) - 1u));
      const int64_t expert = p.topk_ids[pair] - p.local_expert_offset;
      const float weight = p.topk_weights[pair];
      slots.place[at] = place;
      const float scale = numerics::pair_scale(weight, p.scales[expert]);
      const float of_row = __fmul_rn(row_scale(p.exponents[place]), kWeightUnit);
      // The row's is a power of two, and the product exact unless it leaves f32's range.
      const float both = __fmul_rn(scale, of_row);
      apart = leaves_range(scale, both);
      slots.scale[at] = apart ? scale : both;
      slots.row_scale[at] = apart ? of_row : 1.0f;
      slots.weight[at] = weight;
      slots.bias[at] = p.bias != nullptr ? p.bias[expert] : nullptr;
    }
    any_apart = __ballot_sync(~0u, apart) != 0 || any_apart;
    count += __popc(placed);
  }
  if (lane == 0) {
    slots.count = count;
    slots.apart = any_apart;
  }
}

// A thread's columns as they lie in memory.
template <class Type>
struct Columns {
  using Storage = typename Type::Storage;
  static constexpr int kVectors = kColumns * sizeof(Storage) / 16;
  uint4 vectors[kVectors];

  __device__ void load(const void* base, int64_t index) {
    const auto* const from =
        reinterpret_cast<const uint4*>(static_cast<const Storage*>(base) + index);
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      vectors[i] = load_streaming(from + i);
  }
  __device__ void store(void* base, int64_t index) const {
    auto* const to = reinterpret_cast<uint4*>(static_cast<Storage*>(base) + index);
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      to[i] = vectors[i];
  }
  __device__ void widen(float (&x)[kColumns]) const {
    Storage values[kColumns];
    __builtin_memcpy(values, vectors, sizeof(values));
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      x[i] = Type::load(&values[i]);
  }
  __device__ void narrow(const float (&x)[kColumns]) {
    Storage values[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      Type::store(&values[i], x[i]);
    __builtin_memcpy(vectors, values, sizeof(values));
  }
};

// Slots from `first` on, kBatch at a time and then the rest in halves, by whole warps. Their
// meeting keeps the compiler from moving each load to where it is used.
template <class Out, bool kBias, bool kApart, int kBatch>
__device__ inline void add_slots(const typename Out::Source& source, const SumSlotsArgs& p,
                                 const Slots& slots, int first, int64_t column,
                                 float (&y)[kColumns]) {
  for (; first + kBatch <= slots.count; first += kBatch) {
    Out out[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      out[i].load(source, p, slots.place[first + i], column);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float x[kColumns];
      out[i].widen(x);
      if constexpr (kApart) {
        const float row_scale = slots.row_scale[first + i];
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          x[c] = __fmul_rn(x[c], row_scale);
      }
      const float scale = slots.scale[first + i];
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        y[c] = numerics::slot_step(scale, x[c], y[c]);
      if constexpr (kBias) {
        const float* const bias = slots.bias[first + i];
        const float weight = slots.weight[first + i];
#pragma unroll
        for (int c = 0; c < kColumns && bias != nullptr; ++c)
          y[c] = numerics::slot_bias_step(weight, bias[column + c], y[c]);
      }
    }
  }
  if constexpr (kBatch > 1) {
    add_slots<Out, kBias, kApart, kBatch / 2>(source, p, slots, first, column, y);
  }
}

// A block has one token, and its part of the columns.
template <class Out, class Type>
__global__ void __launch_bounds__(kMaxThreads, kBlocksOfSm)
    sum_slots_kernel(SumSlotsArgs p, typename Out::Source source) {
  __shared__ Slots slots;
  dependency_wait();
  dependency_release();
  const int64_t token = blockIdx.x;
  if (threadIdx.x < 32) collect_slots(p, token, static_cast<int>(threadIdx.x), slots);
  __syncthreads();
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.x * kColumns;
  const int lane_column = static_cast<int>(threadIdx.x) % 32 * kColumns;
  for (int64_t first =
           (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kColumns - lane_column;
       first < p.columns; first += step) {
    // What is beyond the row does the last columns once more, and does not store them.
    const int64_t column = min(first + lane_column, p.columns - kColumns);
    const int64_t at = token * p.y_stride + column;
    Columns<Type> columns{};
    if (p.accumulate) columns.load(p.y, at);
    float y[kColumns];
    columns.widen(y);
    if (slots.apart) {
      add_slots<Out, true, true, 1>(source, p, slots, 0, column, y);
    } else if (p.bias == nullptr) {
      add_slots<Out, false, false, Out::kBatch>(source, p, slots, 0, column, y);
    } else {
      add_slots<Out, true, false, Out::kBatch>(source, p, slots, 0, column, y);
    }
    columns.narrow(y);
    if (first + lane_column < p.columns) columns.store(p.y, at);
  }
}

template <class Out>
auto choose_kernel(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return sum_slots_kernel<Out, numerics::F16>;
    case MEMRA_BF16:
      return sum_slots_kernel<Out, numerics::Bf16>;
    default:
      return sum_slots_kernel<Out, numerics::F32>;
  }
}

template <class Out>
Status sum_slots(const Device& device, const SumSlotsArgs& args, const typename Out::Source& source,
                 const Launch& launch) {
  const int64_t lanes = args.columns / kColumns;
  const int64_t threads = std::min<int64_t>((lanes + 31) / 32 * 32, kMaxThreads);
  const int64_t blocks = std::min((lanes + threads - 1) / threads, kMaxGridY);
  const Grid grid{dim3(static_cast<unsigned>(args.tokens), static_cast<unsigned>(blocks)),
                  static_cast<unsigned>(threads)};
  return launch_kernel(device, launch, grid, choose_kernel<Out>(args.y_dtype), args, source);
}

template <class Out>
Status load_kernels() {
  for (const memra_dtype dtype : {MEMRA_F32, MEMRA_F16, MEMRA_BF16})
    MEMRA_TRY(load_kernel(choose_kernel<Out>(dtype)));
  return MEMRA_OK;
}

}  // namespace memra::cuda::sum
