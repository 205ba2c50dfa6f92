#pragma once

// Parameters and small device helpers shared by the kernels of the rows path.

#include <cstdint>

#include "numerics/activation.h"
#include "numerics/half.h"
#include "rows_dot.cuh"
#include "rows_route.cuh"

namespace memra::cuda {

// Activations as a caller has them, to be quantised by the kernel that uses them; or no x.
struct ActivationSource {
  const void* x;
  memra_dtype dtype;
  int64_t stride;
};

// The copies of an entry's arguments that its kernels read; sizes in elements. With route.topk_ids
// the tables over pairs are not there, and likewise q and d with source.x.
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
  // Of the ring kernels, for the layer in one call.
  Route route;
  ActivationSource source;
  int8_t* out_q;  // the outputs quantised in place of `out`, lane-major; or null
  float* out_d;
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
  // Of the ring kernels, for the layer in one call.
  Route route;
  float* dots;  // [pairs, rows], in place of y; or null
};

enum Plane { kGate = 0, kUp = 1, kDown = 2 };

const __device__ __forceinline__ uint8_t* slab_of(const void* const* ptrs, int64_t n_pairs,
                                                  int plane, int64_t pair) {
  return static_cast<const uint8_t*>(ptrs[plane * n_pairs + pair]);
}

// What kernels know of a pair's slab of one plane. scale: down's is times the router weight.
struct PairPlane {
  const uint8_t* slab;  // null: skipped
  float scale;
};

__device__ __forceinline__ PairPlane routed_plane(const Route& r, int plane, int64_t pair) {
  const float weight = plane == kDown ? r.topk_weights[pair] : 1.0f;
  const int64_t expert = local_expert(r, pair);
  if (expert == kNotLocal) return {nullptr, 0.0f};
  const int64_t entry = plane * r.n_local + expert;
  const void* slab = r.expert_ptrs[entry];
  const float scale = r.expert_scales[entry];
  if (!has_slabs(r, expert)) return {nullptr, 0.0f};
  return {static_cast<const uint8_t*>(slab),
          numerics::canon(plane == kDown ? numerics::pair_scale(weight, scale) : scale)};
}
__device__ __forceinline__ PairPlane pair_plane(const GateUpParams& p, int plane, int64_t pair) {
  if (p.route.topk_ids != nullptr) return routed_plane(p.route, plane, pair);
  return {slab_of(p.ptrs, p.n_pairs, plane, pair), p.scales[plane * p.n_pairs + pair]};
}
__device__ __forceinline__ PairPlane pair_plane(const DownParams& p, int64_t pair) {
  if (p.route.topk_ids != nullptr) return routed_plane(p.route, kDown, pair);
  const int64_t n_pairs = p.tokens * p.top_k;
  return {slab_of(p.ptrs, n_pairs, kDown, pair), p.scales[kDown * n_pairs + pair]};
}

// `table`: over pairs, or null.
__device__ __forceinline__ const float* bias_of(const Route& r, const float* const* table,
                                                int64_t n_pairs, int plane, int64_t pair) {
  if (r.topk_ids != nullptr && r.expert_bias != nullptr) {
    const int64_t expert = local_expert(r, pair);
    return expert != kNotLocal ? r.expert_bias[plane * r.n_local + expert] : nullptr;
  }
  return table != nullptr ? table[plane * n_pairs + pair] : nullptr;
}

// Rules 4 and 7 for one output of a pair.
__device__ __forceinline__ float gate_up_output(const GateUpParams& p, int64_t pair, int64_t row,
                                                float gate_scale, float up_scale, float gate_acc,
                                                float up_acc) {
  const float* gate_bias = bias_of(p.route, p.bias, p.n_pairs, kGate, pair);
  const float* up_bias = bias_of(p.route, p.bias, p.n_pairs, kUp, pair);
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
  const float* bias = bias_of(p.route, p.bias, p.tokens * p.top_k, kDown, pair);
  return bias != nullptr ? numerics::slot_bias_step(p.topk_weights[pair], bias[row], y) : y;
}

// Keeps a probe's loads alive: practically never true, and the compiler cannot know.
__device__ __forceinline__ bool probe_escape(float bits) {
  return __float_as_uint(bits) == 0x9E3779B9u;
}

}  // namespace memra::cuda
