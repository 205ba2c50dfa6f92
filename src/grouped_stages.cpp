// Routing, and the stages of the grouped path one by one.

#include <cmath>

#include "check.h"
#include "entry.h"
#include "layer.h"
#include "memra.h"
#include "structs.h"

namespace memra {
namespace {

// What bulk copies of a GPU ask of the rows of activations.
constexpr uint64_t kRowsAlignment = 128;

Status check_switch(int32_t value, const Name& name) {
  return check_range(value, 0, 1, name);
}

// An array that a call writes, apart from what it reads.
Status check_output(const Area& out, uint64_t alignment, const Name& name, const Area& in,
                    const Name& in_name) {
  MEMRA_TRY(check_pointer(out.begin, alignment, name));
  MEMRA_TRY(check_area(out, name));
  return check_apart(out, name, in, in_name);
}

// ---- Top-k ----

// Experts that may be chosen: all, or those of top_k_groups groups.
Status check_groups(const memra_moe_topk_args& args, int64_t* eligible) {
  *eligible = args.n_experts;
  MEMRA_TRY(check_range(args.group_score, MEMRA_GROUP_SCORE_MAX, MEMRA_GROUP_SCORE_TOP2_SUM,
                        "group_score"));
  MEMRA_TRY(check_range(args.n_groups, 0, MEMRA_TOPK_MAX_GROUPS, "n_groups"));
  if (args.n_groups == 0) return check_range(args.top_k_groups, 0, 0, "top_k_groups");
  if (args.n_experts % args.n_groups != 0) {
    return invalid("n_groups") << " is " << args.n_groups << ": must divide n_experts, which is "
                               << args.n_experts;
  }
  MEMRA_TRY(check_range(args.top_k_groups, 1, args.n_groups, "top_k_groups"));
  const int64_t group = args.n_experts / args.n_groups;
  if (args.group_score == MEMRA_GROUP_SCORE_TOP2_SUM && group < 2) {
    return invalid("group_score") << " is MEMRA_GROUP_SCORE_TOP2_SUM: must be "
                                  << "MEMRA_GROUP_SCORE_MAX with one expert to a group";
  }
  *eligible = args.top_k_groups * group;
  return MEMRA_OK;
}

Status check_topk(memra_moe_topk_args* args) {
  MEMRA_TRY(check_dtype(args->logits_dtype, "logits_dtype"));
  MEMRA_TRY(check_range(args->n_experts, 1, MEMRA_TOPK_MAX_EXPERTS, "n_experts"));
  MEMRA_TRY(check_range(args->scoring, MEMRA_SCORING_SOFTMAX, MEMRA_SCORING_SIGMOID, "scoring"));
  MEMRA_TRY(check_switch(args->renormalize, "renormalize"));
  int64_t eligible = 0;
  MEMRA_TRY(check_groups(*args, &eligible));
  const int64_t most = eligible < MEMRA_MAX_TOP_K ? eligible : MEMRA_MAX_TOP_K;
  MEMRA_TRY(check_range(args->top_k, 1, most, "top_k"));
  if (!std::isfinite(args->scaling_factor)) {
    return invalid("scaling_factor") << " is " << args->scaling_factor << ": must be finite";
  }
  if (args->scaling_factor == 0.0f) args->scaling_factor = 1.0f;
  MEMRA_TRY(check_pointer(args->logits, 4, "logits"));
  MEMRA_TRY(check_optional_pointer(args->bias, alignof(float), "bias"));
  MEMRA_TRY(
      take_elements(&args->logits_stride, args->n_experts, args->n_experts, 1, "logits_stride"));
  const Area logits = rows_area(args->logits, args->tokens, args->logits_stride, args->n_experts,
                                dtype_bytes(args->logits_dtype));
  MEMRA_TRY(check_area(logits, "logits", "logits_stride"));
  const int64_t n_pairs = args->tokens * args->top_k;
  const Area ids = block_area(args->topk_ids, n_pairs, 4);
  const Area weights = block_area(args->topk_weights, n_pairs, 4);
  MEMRA_TRY(check_output(ids, alignof(int32_t), "topk_ids", logits, "logits"));
  MEMRA_TRY(check_output(weights, alignof(float), "topk_weights", logits, "logits"));
  return check_apart(weights, "topk_weights", ids, "topk_ids");
}

// ---- Route ----

Status check_pairs(int64_t tokens, int64_t top_k) {
  MEMRA_TRY(check_range(top_k, 1, MEMRA_MAX_TOP_K, "top_k"));
  return check_range(tokens, 0, MEMRA_GROUPED_MAX_PAIRS / top_k, "tokens");
}

Status check_route_outputs(const memra_moe_route_args& args, uint64_t needed) {
  const int64_t n_pairs = args.tokens * args.top_k;
  const Area ids = block_area(args.topk_ids, n_pairs, 4);
  MEMRA_TRY(check_area(ids, "topk_ids"));
  struct Output {
    const char* name;
    const void* begin;
    int64_t count;
    bool optional;
  };
  const Output outputs[] = {{"n_active", args.n_active, 1, false},
                            {"active_experts", args.active_experts, args.n_local_experts, false},
                            {"offsets", args.offsets, args.n_local_experts + 1, false},
                            {"pair_order", args.pair_order, n_pairs, false},
                            {"inverse", args.inverse, n_pairs, true}};
  Area workspace;
  MEMRA_TRY(check_workspace(args.workspace, args.workspace_bytes, needed, args.tokens, &workspace));
  MEMRA_TRY(check_apart(workspace, "workspace", ids, "topk_ids"));
  for (const Output& output : outputs) {
    if (output.optional && output.begin == nullptr) continue;
    const Area area = block_area(output.begin, output.count, 4);
    MEMRA_TRY(check_output(area, alignof(int32_t), output.name, ids, "topk_ids"));
    MEMRA_TRY(check_apart(area, output.name, workspace, "workspace"));
    for (const Output* other = outputs; other != &output; ++other) {
      MEMRA_TRY(
          check_apart(area, output.name, block_area(other->begin, other->count, 4), other->name));
    }
  }
  return MEMRA_OK;
}

Status check_route(const Backend& backend, memra_moe_route_args* args) {
  MEMRA_TRY(check_flags(args->flags, MEMRA_FLAG_INPUTS_STABLE, "flags"));
  MEMRA_TRY(take_local_experts(args->n_experts, args->local_expert_offset, &args->n_local_experts));
  MEMRA_TRY(check_pointer(args->topk_ids, alignof(int32_t), "topk_ids"));
  MEMRA_TRY(check_optional_pointer(args->expert_ptrs, alignof(void*), "expert_ptrs"));
  MEMRA_TRY(check_optional_pointer(args->invalid_ids, alignof(uint64_t), "invalid_ids"));
  uint64_t needed = 0;
  MEMRA_TRY(backend.route_workspace(args->tokens * args->top_k, args->n_local_experts, &needed));
  return check_route_outputs(*args, needed);
}

// ---- Gather ----

Status check_gather(memra_moe_gather_f16_args* args) {
  MEMRA_TRY(check_dimension(args->columns, MEMRA_COLUMN_MULTIPLE, "columns"));
  MEMRA_TRY(check_dtype(args->x_dtype, "x_dtype"));
  MEMRA_TRY(check_range(args->source_rows, 0, MEMRA_GROUPED_MAX_PAIRS, "source_rows"));
  MEMRA_TRY(check_range(args->top_k, 0, MEMRA_MAX_TOP_K, "top_k"));
  if (args->top_k == 0) args->top_k = 1;
  MEMRA_TRY(check_optional_pointer(args->index, alignof(int32_t), "index"));
  MEMRA_TRY(check_optional_pointer(args->row_count, alignof(int32_t), "row_count"));
  if (args->index == nullptr && args->top_k > 1) {
    return invalid("index") << " is NULL: must be given with a top_k of " << args->top_k;
  }
  MEMRA_TRY(check_pointer(args->x, 16, "x"));
  const int64_t bytes = dtype_bytes(args->x_dtype);
  MEMRA_TRY(take_row_stride(&args->x_stride, args->columns, bytes, "x_stride"));
  const Area x = rows_area(args->x, args->source_rows, args->x_stride, args->columns, bytes);
  MEMRA_TRY(check_area(x, "x", "x_stride"));
  const Area z = rows_area(args->z, args->rows, args->columns, args->columns, 2);
  const Area zs = block_area(args->zs, args->rows, 4);
  MEMRA_TRY(check_output(z, kRowsAlignment, "z", x, "x"));
  MEMRA_TRY(check_output(zs, alignof(float), "zs", x, "x"));
  return check_apart(zs, "zs", z, "z");
}

// ---- Grouped GEMM ----

Status check_gemm_tables(const memra_moe_grouped_gemm_args& args) {
  MEMRA_TRY(check_pointer(args.ptrs, alignof(void*), "ptrs"));
  MEMRA_TRY(check_pointer(args.n_active, alignof(int32_t), "n_active"));
  MEMRA_TRY(check_pointer(args.active_experts, alignof(int32_t), "active_experts"));
  MEMRA_TRY(check_pointer(args.offsets, alignof(int32_t), "offsets"));
  MEMRA_TRY(check_optional_pointer(args.scales, alignof(float), "scales"));
  return check_optional_pointer(args.bias, alignof(float*), "bias");
}

Status check_gemm_workspace(const Backend& backend, const memra_moe_grouped_gemm_args& args,
                            const Area& out) {
  uint64_t needed = 0;
  MEMRA_TRY(backend.grouped_gemm_workspace(args.rows, args.n_experts, &needed));
  if (needed == 0) {
    return check_optional_pointer(args.workspace, MEMRA_WORKSPACE_ALIGNMENT, "workspace");
  }
  if (args.workspace_bytes < needed) {
    return fail(MEMRA_ERROR_WORKSPACE_TOO_SMALL)
           << "workspace_bytes is " << args.workspace_bytes << ": must be at least " << needed
           << " for " << args.rows << " rows of " << args.n_experts << " experts";
  }
  MEMRA_TRY(check_pointer(args.workspace, MEMRA_WORKSPACE_ALIGNMENT, "workspace"));
  const Area workspace{.begin = args.workspace, .item_bytes = needed};
  MEMRA_TRY(check_area(workspace, "workspace"));
  return check_apart(workspace, "workspace", out, "out");
}

Status check_gemm(const Backend& backend, const memra_moe_grouped_gemm_args& args) {
  MEMRA_TRY(check_flags(args.flags, MEMRA_FLAG_INPUTS_STABLE, "flags"));
  MEMRA_TRY(check_dimension(args.columns, MEMRA_COLUMN_MULTIPLE, "columns"));
  MEMRA_TRY(check_dimension(args.outputs, MEMRA_COLUMN_MULTIPLE, "outputs"));
  MEMRA_TRY(check_range(args.n_experts, 1, kMaxExperts, "n_experts"));
  MEMRA_TRY(check_format(args.format, "format"));
  MEMRA_TRY(check_range(args.plane, kGate, kDown, "plane"));
  MEMRA_TRY(check_gemm_tables(args));
  MEMRA_TRY(check_pointer(args.z, kRowsAlignment, "z"));
  MEMRA_TRY(check_pointer(args.zs, alignof(float), "zs"));
  const Area z = rows_area(args.z, args.rows, args.columns, args.columns, 2);
  const Area zs = block_area(args.zs, args.rows, 4);
  MEMRA_TRY(check_area(z, "z"));
  MEMRA_TRY(check_area(zs, "zs"));
  const Area out = rows_area(args.out, args.rows, args.outputs, args.outputs, 4);
  MEMRA_TRY(check_output(out, 16, "out", z, "z"));
  MEMRA_TRY(check_apart(out, "out", zs, "zs"));
  return check_gemm_workspace(backend, args, out);
}

}  // namespace
}  // namespace memra

using memra::EngineState;
using memra::Status;

extern "C" {

memra_status memra_moe_topk(memra_engine* engine, const memra_moe_topk_args* args,
                            memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra_moe_topk_args copy;
    MEMRA_TRY(memra::read_struct(args, "args", &copy));
    MEMRA_TRY(memra::check_range(copy.tokens, 0, MEMRA_GROUPED_MAX_PAIRS, "tokens"));
    if (copy.tokens == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_topk(&copy));
    return state.backend->topk(copy, memra::stage_launch(0, stream));
  });
}

memra_status memra_moe_route(memra_engine* engine, const memra_moe_route_args* args,
                             memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra_moe_route_args copy;
    MEMRA_TRY(memra::read_struct(args, "args", &copy));
    if (copy.tokens == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_pairs(copy.tokens, copy.top_k));
    MEMRA_TRY(memra::check_route(*state.backend, &copy));
    return state.backend->route(copy, memra::stage_launch(copy.flags, stream));
  });
}

memra_status memra_moe_route_workspace_size(memra_engine* engine, int64_t tokens, int64_t top_k,
                                            int64_t n_local_experts, uint64_t* bytes) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_out(bytes, "bytes"));
    MEMRA_TRY(memra::check_pairs(tokens, top_k));
    MEMRA_TRY(memra::check_range(n_local_experts, 1, memra::kMaxExperts, "n_local_experts"));
    uint64_t needed = 0;
    MEMRA_TRY(state.backend->route_workspace(tokens * top_k, n_local_experts, &needed));
    *bytes = tokens == 0 ? 0 : needed;
    return MEMRA_OK;
  });
}

memra_status memra_moe_gather_f16(memra_engine* engine, const memra_moe_gather_f16_args* args,
                                  memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra_moe_gather_f16_args copy;
    MEMRA_TRY(memra::read_struct(args, "args", &copy));
    MEMRA_TRY(memra::check_range(copy.rows, 0, MEMRA_GROUPED_MAX_PAIRS, "rows"));
    if (copy.rows == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_gather(&copy));
    return state.backend->gather_f16(copy, memra::stage_launch(0, stream));
  });
}

memra_status memra_moe_grouped_gemm(memra_engine* engine, const memra_moe_grouped_gemm_args* args,
                                    memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra_moe_grouped_gemm_args copy;
    MEMRA_TRY(memra::read_struct(args, "args", &copy));
    MEMRA_TRY(memra::check_range(copy.rows, 0, MEMRA_GROUPED_MAX_PAIRS, "rows"));
    if (copy.rows == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_gemm(*state.backend, copy));
    return state.backend->grouped_gemm(copy, memra::stage_launch(copy.flags, stream));
  });
}

memra_status memra_moe_grouped_gemm_workspace_size(memra_engine* engine, int64_t rows,
                                                   int64_t n_experts, uint64_t* bytes) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_out(bytes, "bytes"));
    MEMRA_TRY(memra::check_range(rows, 0, MEMRA_GROUPED_MAX_PAIRS, "rows"));
    MEMRA_TRY(memra::check_range(n_experts, 1, memra::kMaxExperts, "n_experts"));
    uint64_t needed = 0;
    MEMRA_TRY(state.backend->grouped_gemm_workspace(rows, n_experts, &needed));
    *bytes = rows == 0 ? 0 : needed;
    return MEMRA_OK;
  });
}

}  // extern "C"
