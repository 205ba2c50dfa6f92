// The entries of routing and of the grouped path's stages.
#pragma once

#include "api_fields.h"

namespace memra::api_test {

inline Entry topk_entry(World& world) {
  using Args = memra_moe_topk_args;
  return {
      "memra_moe_topk",
      bytes_of(world.topk_args()),
      offsetof(Args, scoring),
      {
          number32(MEMRA_FIELD(Args, logits_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
          pointer(MEMRA_FIELD(Args, logits), 4),
          number64(MEMRA_FIELD(Args, logits_stride), {-1, 1, kRouted - 1, kNever, INT64_MIN},
                   {kRouted, kRouted + 1}),
          number64(MEMRA_FIELD(Args, tokens), {-1, int64_t{1} << 31, INT64_MAX}, {0, 1}),
          number64(MEMRA_FIELD(Args, n_experts), {-1, 0, MEMRA_TOPK_MAX_EXPERTS + 1, INT64_MAX}),
          // Two of the four groups hold four experts.
          number64(MEMRA_FIELD(Args, top_k), {-1, 0, 5, MEMRA_MAX_TOP_K + 1}, {1, 4}),
          pointer(MEMRA_FIELD(Args, topk_ids), 4),
          pointer(MEMRA_FIELD(Args, topk_weights), 4),
          number32(MEMRA_FIELD(Args, scoring), {-1, 2, INT32_MAX}, {MEMRA_SCORING_SIGMOID}),
          number32(MEMRA_FIELD(Args, renormalize), {-1, 2}, {1}),
          pointer(MEMRA_FIELD(Args, bias), 4, true),
          number64(MEMRA_FIELD(Args, n_groups), {-1, 3, 5, MEMRA_TOPK_MAX_GROUPS + 1}, {2, 8}),
          number64(MEMRA_FIELD(Args, top_k_groups), {-1, 0, 5, INT64_MAX}, {1, 4}),
          number32(MEMRA_FIELD(Args, group_score), {-1, 2}, {MEMRA_GROUP_SCORE_TOP2_SUM}),
      },
      {&world.ids_out, &world.weights_out},
      [&world](const void* args) {
        return world.finish(memra_moe_topk(world.engine, static_cast<const Args*>(args), nullptr));
      }};
}

inline Entry route_entry(World& world) {
  using Args = memra_moe_route_args;
  return {
      "memra_moe_route",
      bytes_of(world.route_args()),
      sizeof(Args),
      {
          number32(MEMRA_FIELD(Args, flags), {MEMRA_FLAG_ACCUMULATE, 4, -1},
                   {MEMRA_FLAG_INPUTS_STABLE}),
          number64(MEMRA_FIELD(Args, tokens), {-1, int64_t{1} << 31, INT64_MAX}, {0, 1}),
          number64(MEMRA_FIELD(Args, top_k), {-1, 0, MEMRA_MAX_TOP_K + 1, INT64_MAX}, {1}),
          number64(MEMRA_FIELD(Args, n_experts), {-1, 0, MEMRA_MAX_DIMENSION + 1}, {5, 8}),
          number64(MEMRA_FIELD(Args, local_expert_offset), {-1, 4, INT64_MAX, INT64_MIN}, {0, 3}),
          number64(MEMRA_FIELD(Args, n_local_experts), {-1, 5, INT64_MAX, INT64_MIN}, {0, 1, 4}),
          pointer(MEMRA_FIELD(Args, topk_ids), 4),
          pointer(MEMRA_FIELD(Args, expert_ptrs), 8, true),
          pointer(MEMRA_FIELD(Args, n_active), 4),
          pointer(MEMRA_FIELD(Args, active_experts), 4),
          pointer(MEMRA_FIELD(Args, offsets), 4),
          pointer(MEMRA_FIELD(Args, pair_order), 4),
          pointer(MEMRA_FIELD(Args, inverse), 4, true),
          pointer(MEMRA_FIELD(Args, invalid_ids), 8, true),
          pointer(MEMRA_FIELD(Args, workspace), 256),
          {MEMRA_FIELD(Args, workspace_bytes),
           FieldType::kInt64,
           {0, 1},
           {-1, 64 * 1024},
           1,
           false,
           MEMRA_ERROR_WORKSPACE_TOO_SMALL},
      },
      {&world.n_active_out, &world.active_out, &world.offsets_out, &world.order_out,
       &world.inverse_out, &world.counter},
      [&world](const void* args) {
        return world.finish(memra_moe_route(world.engine, static_cast<const Args*>(args), nullptr));
      }};
}

inline Entry gather_entry(World& world) {
  using Args = memra_moe_gather_f16_args;
  return {"memra_moe_gather_f16",
          bytes_of(world.gather_args()),
          offsetof(Args, index),
          {
              number32(MEMRA_FIELD(Args, x_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
              pointer(MEMRA_FIELD(Args, x), 16),
              number64(MEMRA_FIELD(Args, x_stride), {-1, 64, 130, kNever}, {kHidden}),
              number64(MEMRA_FIELD(Args, source_rows), {-1, int64_t{1} << 31, INT64_MAX}, {0, 1}),
              number64(MEMRA_FIELD(Args, rows), {-1, int64_t{1} << 31, INT64_MAX}, {0, 1}),
              dimension(MEMRA_FIELD(Args, columns), 64, {64}),
              pointer(MEMRA_FIELD(Args, z), 128),
              pointer(MEMRA_FIELD(Args, zs), 4),
              pointer(MEMRA_FIELD(Args, index), 4),
              number64(MEMRA_FIELD(Args, top_k), {-1, MEMRA_MAX_TOP_K + 1, INT64_MAX}, {0, 1}),
              pointer(MEMRA_FIELD(Args, row_count), 4, true),
          },
          {&world.z_out, &world.zs_out},
          [&world](const void* args) {
            return world.finish(
                memra_moe_gather_f16(world.engine, static_cast<const Args*>(args), nullptr));
          }};
}

inline Entry gemm_entry(World& world) {
  using Args = memra_moe_grouped_gemm_args;
  uint64_t needed = 0;
  memra_moe_grouped_gemm_workspace_size(world.engine, 1, 1, &needed);
  return {"memra_moe_grouped_gemm",
          bytes_of(world.gemm_args()),
          offsetof(Args, scales),
          {
              number32(MEMRA_FIELD(Args, flags), {MEMRA_FLAG_ACCUMULATE, 4, -1},
                       {MEMRA_FLAG_INPUTS_STABLE}),
              number64(MEMRA_FIELD(Args, rows), {-1, int64_t{1} << 31, INT64_MAX}, {0, 1}),
              dimension(MEMRA_FIELD(Args, columns), 64, {64}),
              dimension(MEMRA_FIELD(Args, outputs), 64),
              number64(MEMRA_FIELD(Args, n_experts), {-1, 0, MEMRA_MAX_DIMENSION + 1}, {1}),
              number32(MEMRA_FIELD(Args, format), kWrongFormats, {MEMRA_NVFP4}),
              number32(MEMRA_FIELD(Args, plane), {-1, 3, INT32_MAX}, {0, 2}),
              pointer(MEMRA_FIELD(Args, ptrs), 8),
              pointer(MEMRA_FIELD(Args, n_active), 4),
              pointer(MEMRA_FIELD(Args, active_experts), 4),
              pointer(MEMRA_FIELD(Args, offsets), 4),
              pointer(MEMRA_FIELD(Args, z), 128),
              pointer(MEMRA_FIELD(Args, zs), 4),
              pointer(MEMRA_FIELD(Args, out), 16),
              pointer(MEMRA_FIELD(Args, scales), 4, true),
              pointer(MEMRA_FIELD(Args, bias), 8, true),
              pointer(MEMRA_FIELD(Args, workspace), 256, needed == 0),
          },
          {&world.act},
          [&world](const void* args) {
            return world.finish(
                memra_moe_grouped_gemm(world.engine, static_cast<const Args*>(args), nullptr));
          }};
}

}  // namespace memra::api_test
