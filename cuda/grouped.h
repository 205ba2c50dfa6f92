#pragma once

// Routing, and the stages of the grouped path around its matrix kernels. Layouts:
// grouped_layout.cuh.

#include "device.h"
#include "memra.h"

namespace memra::cuda {

// Loads the kernels of a file, once per engine.
Status topk_load();
Status route_load();
Status gather_f16_load();
Status sum_slots_load();

Status topk(const Device& device, const memra_moe_topk_args& args, const Launch& launch);

// Rises with both.
uint64_t route_workspace(int64_t n_pairs, int64_t n_local_experts);
Status route(const Device& device, const memra_moe_route_args& args, const Launch& launch);

Status gather_f16(const Device& device, const memra_moe_gather_f16_args& args,
                  const Launch& launch);

// The same from tokens to the places of their pairs, so that each token is read and converted once:
// row inverse[token * top_k + slot] of z is row `token` of x, and rows of no pair are left alone.
struct ScatterF16Args {
  const void* x = nullptr;
  memra_dtype x_dtype = MEMRA_F32;
  int64_t x_stride = 0;
  int64_t tokens = 0, top_k = 0;
  int64_t columns = 0;
  const int32_t* inverse = nullptr;  // [tokens * top_k] of memra_moe_route
  void* z = nullptr;                 // of tokens * top_k rows
  float* zs = nullptr;
};
Status scatter_f16(const Device& device, const ScatterF16Args& args, const Launch& launch);

// Rule 6: y = the weighted sum of a token's pair outputs, in the order of slots, in f32. Their own
// form is grouped_sum.cuh's matter.
struct SumSlotsArgs {
  int64_t tokens = 0, top_k = 0;
  int64_t columns = 0;
  const int32_t* inverse = nullptr;   // [tokens * top_k] of memra_moe_route
  const int8_t* exponents = nullptr;  // of rows of activations, by place (grouped_activation.cuh)
  const int32_t* topk_ids = nullptr;  // as are these
  const float* topk_weights = nullptr;
  int64_t local_expert_offset = 0;
  const float* scales = nullptr;       // of the down plane, [n_local_experts]
  const float* const* bias = nullptr;  // likewise, with NULL for none; or null
  void* y = nullptr;
  memra_dtype y_dtype = MEMRA_F32;
  int64_t y_stride = 0;
  bool accumulate = false;
};
// packed: dot products by place in the order of pairs, [tokens * top_k, columns / 2]
// (grouped_pairs.cuh).
Status sum_slots(const Device& device, const SumSlotsArgs& args, const uint32_t* packed,
                 const Launch& launch);

// With a workspace of tile_list_size() (grouped_products.h).
Status grouped_gemm(const Device& device, const memra_moe_grouped_gemm_args& args,
                    const Launch& launch);

// memra_moe_grouped.
uint64_t grouped_layer_workspace(const GroupedShape& shape, int64_t tokens);
Status grouped_layer(const Device& device, const GroupedLayerArgs& args, const Launch& launch);

}  // namespace memra::cuda
