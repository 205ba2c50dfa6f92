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

__device__ __forceinline__ const uint8_t* slab_of(const void* const* ptrs, int64_t n_pairs,
                                                  int plane, int64_t pair) {
  return static_cast<const uint8_t*>(ptrs[plane * n_pairs + pair]);
}

// Rules 4 and 7 for one output of a pair.
__device__ __forceinline__ float gate_up_output(const GateUpParams& p, int64_t pair, int64_t row,
                                                float gate_acc, float up_acc) {
  const float* gate_bias = p.bias != nullptr ? p.bias[kGate * p.n_pairs + pair] : nullptr;
  const float* up_bias = p.bias != nullptr ? p.bias[kUp * p.n_pairs + pair] : nullptr;
  const float g = numerics::plane_value(
      numerics::finish_dot(gate_acc), p.scales[kGate * p.n_pairs + pair], gate_bias != nullptr,
      gate_bias != nullptr ? gate_bias[row] : 0.0f);
  const float u = numerics::plane_value(
      numerics::finish_dot(up_acc), p.scales[kUp * p.n_pairs + pair], up_bias != nullptr,
      up_bias != nullptr ? up_bias[row] : 0.0f);
  return numerics::activate(p.activation, g, u, p.activation_params);
}

// Keeps a probe's loads alive: practically never true, and the compiler cannot know.
__device__ __forceinline__ bool probe_escape(float bits) {
  return __float_as_uint(bits) == 0x9E3779B9u;
}

}  // namespace memra::cuda
