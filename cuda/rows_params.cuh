#pragma once

// Parameters and small device helpers shared by the kernels of the rows path.

#include <cstdint>

#include "numerics/activation.h"
#include "numerics/half.h"
#include "rows_dot.cuh"

namespace memra::cuda {

// The copies of an entry's arguments that its kernels read; sizes in elements.
struct GateUpParams {
  const void* const* ptrs;
  const float* scales;
  const float* const* bias;  // or null
  const int32_t* order;      // or null: pairs in their own order
  const int8_t* q;
  const float* d;
  float* out;
  int64_t n_pairs;
  int64_t top_k;
  int64_t in;    // hidden_size
  int64_t rows;  // intermediate_size
  numerics::Activation activation;
  numerics::ActivationParams activation_params;
  bool prefetch;  // weights and tables may be read before the dependency wait
};

struct DownParams {
  const void* const* ptrs;
  const float* scales;
  const float* const* bias;   // or null
  const float* topk_weights;  // with bias
  const int8_t* q;
  const float* d;
  void* y;
  memra_dtype y_dtype;
  int64_t y_stride;
  int64_t tokens;
  int64_t top_k;
  int64_t in;    // intermediate_size
  int64_t rows;  // hidden_size
  bool accumulate;
  bool rows_outermost;  // all tokens of a row block side by side (ORD)
  bool prefetch;
};

enum Plane { kGate = 0, kUp = 1, kDown = 2 };

const __device__ __forceinline__ uint8_t* slab_of(const void* const* ptrs, int64_t n_pairs,
                                                  int plane, int64_t pair) {
  return static_cast<const uint8_t*>(ptrs[plane * n_pairs + pair]);
}

// Rules 4 and 7 for one output of a pair.
__device__ __forceinline__ float gate_up_output(const GateUpParams& p, int64_t pair, int64_t row,
                                                float gate_scale, float up_scale, float gate_acc,
                                                float up_acc) {
  const float* gate_bias = p.bias != nullptr ? p.bias[kGate * p.n_pairs + pair] : nullptr;
  const float* up_bias = p.bias != nullptr ? p.bias[kUp * p.n_pairs + pair] : nullptr;
  const float g =
      numerics::plane_value(numerics::finish_dot(gate_acc), gate_scale, gate_bias != nullptr,
                            gate_bias != nullptr ? gate_bias[row] : 0.0f);
  const float u = numerics::plane_value(numerics::finish_dot(up_acc), up_scale, up_bias != nullptr,
                                        up_bias != nullptr ? up_bias[row] : 0.0f);
  return numerics::activate(p.activation, g, u, p.activation_params);
}

__device__ __forceinline__ float load_y(const DownParams& p, int64_t at) {
  switch (p.y_dtype) {
    case MEMRA_F16:
      return numerics::f16_to_f32(static_cast<const uint16_t*>(p.y)[at]);
    case MEMRA_BF16:
      return numerics::bf16_to_f32(static_cast<const uint16_t*>(p.y)[at]);
    default:
      return static_cast<const float*>(p.y)[at];
  }
}

__device__ __forceinline__ void store_y(const DownParams& p, int64_t at, float value) {
  switch (p.y_dtype) {
    case MEMRA_F16:
      static_cast<uint16_t*>(p.y)[at] = numerics::f32_to_f16(value);
      break;
    case MEMRA_BF16:
      static_cast<uint16_t*>(p.y)[at] = numerics::f32_to_bf16(value);
      break;
    default:
      static_cast<float*>(p.y)[at] = numerics::canon(value);
  }
}

// Rule 6 for one slot and one output.
__device__ __forceinline__ float down_slot(const DownParams& p, int64_t pair, int64_t row,
                                           float scale, float acc, float y) {
  y = numerics::slot_step(scale, numerics::finish_dot(acc), y);
  if (p.bias != nullptr) {
    const float* bias = p.bias[kDown * p.tokens * p.top_k + pair];
    if (bias != nullptr) y = numerics::slot_bias_step(p.topk_weights[pair], bias[row], y);
  }
  return y;
}

// Keeps a probe's loads alive: practically never true, and the compiler cannot know.
__device__ __forceinline__ bool probe_escape(float bits) {
  return __float_as_uint(bits) == 0x9E3779B9u;
}

}  // namespace memra::cuda
