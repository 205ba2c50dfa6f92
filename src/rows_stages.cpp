// The stages of the rows path one by one, and the probe of their kernels.

#include "check.h"
#include "entry.h"
#include "memra.h"
#include "rows_variants.h"
#include "structs.h"

namespace memra {
namespace {

// Rows of one quantisation: the grid of a GPU ends there.
constexpr int64_t kMaxQuantizeRows = 0x7FFFFFFF;

Status check_quantize(memra_q8_1_args* args) {
  MEMRA_TRY(check_dimension(args->columns, MEMRA_COLUMN_MULTIPLE, "columns"));
  MEMRA_TRY(check_dtype(args->x_dtype, "x_dtype"));
  MEMRA_TRY(check_pointer(args->x, 16, "x"));
  MEMRA_TRY(check_pointer(args->q, 16, "q"));
  MEMRA_TRY(check_pointer(args->d, 16, "d"));
  const int64_t bytes = dtype_bytes(args->x_dtype);
  MEMRA_TRY(take_row_stride(&args->x_stride, args->columns, bytes, "x_stride"));
  const Area x = rows_area(args->x, args->rows, args->x_stride, args->columns, bytes);
  const Area q = block_area(args->q, args->rows * args->columns, 1);
  const Area d = block_area(args->d, args->rows * (args->columns / 32), 4);
  MEMRA_TRY(check_area(x, "x", "x_stride"));
  MEMRA_TRY(check_area(q, "q"));
  MEMRA_TRY(check_area(d, "d"));
  MEMRA_TRY(check_apart(q, "q", x, "x"));
  MEMRA_TRY(check_apart(d, "d", x, "x"));
  return check_apart(d, "d", q, "q");
}

Status check_lane_major(const int8_t* q, int64_t rows, int64_t columns, const int8_t* out) {
  MEMRA_TRY(check_dimension(columns, MEMRA_COLUMN_MULTIPLE, "columns"));
  MEMRA_TRY(check_pointer(q, 16, "q"));
  MEMRA_TRY(check_pointer(out, 16, "out"));
  const Area from = block_area(q, rows * columns, 1);
  const Area to = block_area(out, rows * columns, 1);
  MEMRA_TRY(check_area(from, "q"));
  MEMRA_TRY(check_area(to, "out"));
  return check_apart(to, "out", from, "q");
}

// What the two stages share.
Status check_stage_shape(int64_t top_k, int64_t hidden_size, int64_t intermediate_size) {
  MEMRA_TRY(check_range(top_k, 1, MEMRA_MAX_TOP_K, "top_k"));
  MEMRA_TRY(check_dimension(hidden_size, MEMRA_COLUMN_MULTIPLE, "hidden_size"));
  return check_dimension(intermediate_size, MEMRA_COLUMN_MULTIPLE, "intermediate_size");
}

Status check_stage_tables(const void* ptrs, const void* scales, const void* bias) {
  MEMRA_TRY(check_pointer(ptrs, alignof(void*), "ptrs"));
  MEMRA_TRY(check_pointer(scales, alignof(float), "scales"));
  return check_optional_pointer(bias, alignof(float*), "bias");
}

// int8 activations [rows, columns] and their scales, which the output must not overlap.
Status check_stage_data(const int8_t* q, const float* d, int64_t rows, int64_t columns,
                        const Area& out, const Name& out_name) {
  MEMRA_TRY(check_pointer(q, 16, "q"));
  MEMRA_TRY(check_pointer(d, 16, "d"));
  MEMRA_TRY(check_pointer(out.begin, 16, out_name));
  const Area q_area = block_area(q, rows * columns, 1);
  const Area d_area = block_area(d, rows * (columns / 32), 4);
  MEMRA_TRY(check_area(q_area, "q"));
  MEMRA_TRY(check_area(d_area, "d"));
  MEMRA_TRY(check_area(out, out_name, "y_stride"));
  MEMRA_TRY(check_apart(out, out_name, q_area, "q"));
  return check_apart(out, out_name, d_area, "d");
}

// A stage's activations are in natural order where its caller said AUTO.
uint32_t stage_auto(const RowsPolicy& policy, uint32_t choice, bool order_possible) {
  const RowsLimits limits{.lane_major_possible = false, .order_possible = order_possible};
  return policy.default_fits(limits) ? policy.default_variant : policy.adjust(choice, limits);
}

Status check_gate_up_variant(const memra_rows_gate_up_args& args) {
  MEMRA_TRY(check_variant(args.variant, all_v2(args.gate_format, args.up_format), "variant"));
  MEMRA_TRY(check_optional_pointer(args.order, alignof(int32_t), "order"));
  if ((args.variant & kRowsOrdered) != 0 && args.order == nullptr) {
    return invalid("order") << " is NULL: must be given for MEMRA_ROWS_ORD and "
                            << "MEMRA_ROWS_DEDUP_ORDER";
  }
  return MEMRA_OK;
}

// Reads, checks and completes the arguments. With zero tokens there is nothing to check.
Status take_gate_up(const EngineState& state, const memra_rows_gate_up_args* caller,
                    const char* name, memra_rows_gate_up_args* args) {
  MEMRA_TRY(read_struct(caller, name, args));
  MEMRA_TRY(check_range(args->tokens, 0, MEMRA_ROWS_MAX_TOKENS, "tokens"));
  if (args->tokens == 0) return MEMRA_OK;
  MEMRA_TRY(check_flags(args->flags, MEMRA_FLAG_INPUTS_STABLE, "flags"));
  MEMRA_TRY(check_stage_shape(args->top_k, args->hidden_size, args->intermediate_size));
  MEMRA_TRY(check_format(args->gate_format, "gate_format"));
  MEMRA_TRY(check_format(args->up_format, "up_format"));
  MEMRA_TRY(check_activation(args->activation, args->limit, args->alpha));
  MEMRA_TRY(check_gate_up_variant(*args));
  MEMRA_TRY(check_stage_tables(args->ptrs, args->scales, args->bias));
  const Area out = block_area(args->out, args->tokens * args->top_k * args->intermediate_size, 4);
  MEMRA_TRY(check_stage_data(args->q, args->d, args->tokens, args->hidden_size, out, "out"));
  if (args->variant == MEMRA_ROWS_AUTO) {
    const RowsShape shape{.hidden_size = args->hidden_size,
                          .intermediate_size = args->intermediate_size,
                          .top_k = args->top_k,
                          .gate_format = args->gate_format,
                          .up_format = args->up_format,
                          .down_format = args->gate_format};
    const RowsChoice choice = state.backend->choose_rows(shape, args->tokens);
    args->variant = stage_auto(state.rows, choice.gate_up_variant, args->order != nullptr);
  }
  return MEMRA_OK;
}

Status check_down_output(memra_rows_down_args* args, Area* y) {
  const int64_t bytes = dtype_bytes(args->y_dtype);
  MEMRA_TRY(take_row_stride(&args->y_stride, args->hidden_size, bytes, "y_stride"));
  *y = rows_area(args->y, args->tokens, args->y_stride, args->hidden_size, bytes);
  return MEMRA_OK;
}

Status take_down(const EngineState& state, const memra_rows_down_args* caller, const char* name,
                 memra_rows_down_args* args) {
  MEMRA_TRY(read_struct(caller, name, args));
  MEMRA_TRY(check_range(args->tokens, 0, MEMRA_ROWS_MAX_TOKENS, "tokens"));
  if (args->tokens == 0) return MEMRA_OK;
  MEMRA_TRY(check_reserved(args->reserved, "reserved"));
  MEMRA_TRY(check_flags(args->flags, MEMRA_FLAG_ACCUMULATE | MEMRA_FLAG_INPUTS_STABLE, "flags"));
  MEMRA_TRY(check_stage_shape(args->top_k, args->hidden_size, args->intermediate_size));
  MEMRA_TRY(check_format(args->format, "format"));
  MEMRA_TRY(check_dtype(args->y_dtype, "y_dtype"));
  MEMRA_TRY(check_variant(args->variant, args->format == MEMRA_NVFP4_V2, "variant"));
  MEMRA_TRY(check_stage_tables(args->ptrs, args->scales, args->bias));
  MEMRA_TRY(check_optional_pointer(args->topk_weights, alignof(float), "topk_weights"));
  if (args->bias != nullptr && args->topk_weights == nullptr) {
    return invalid("topk_weights") << " is NULL: must be given with bias";
  }
  Area y;
  MEMRA_TRY(check_down_output(args, &y));
  MEMRA_TRY(check_stage_data(args->q, args->d, args->tokens * args->top_k, args->intermediate_size,
                             y, "y"));
  if (args->variant == MEMRA_ROWS_AUTO) {
    const RowsShape shape{.hidden_size = args->hidden_size,
                          .intermediate_size = args->intermediate_size,
                          .top_k = args->top_k,
                          .gate_format = args->format,
                          .up_format = args->format,
                          .down_format = args->format};
    const RowsChoice choice = state.backend->choose_rows(shape, args->tokens);
    args->variant = stage_auto(state.rows, choice.down_variant, true);
  }
  return MEMRA_OK;
}

Status probe(const EngineState& state, const memra_rows_probe_args& args, memra_stream stream) {
  MEMRA_TRY(check_range(args.arm, MEMRA_PROBE_LOADONLY, MEMRA_PROBE_STREAM, "arm"));
  if ((args.gate_up == nullptr) == (args.down == nullptr)) {
    return invalid("gate_up") << " is " << args.gate_up << " and down is " << args.down
                              << ": exactly one must be given";
  }
  if (args.gate_up != nullptr) {
    memra_rows_gate_up_args gate_up;
    MEMRA_TRY(take_gate_up(state, args.gate_up, "gate_up", &gate_up));
    if (gate_up.tokens == 0) return MEMRA_OK;
    return state.backend->rows_probe_gate_up(args.arm, gate_up,
                                             stage_launch(gate_up.flags, stream));
  }
  memra_rows_down_args down;
  MEMRA_TRY(take_down(state, args.down, "down", &down));
  if (down.tokens == 0) return MEMRA_OK;
  return state.backend->rows_probe_down(args.arm, down, stage_launch(down.flags, stream));
}

}  // namespace
}  // namespace memra

using memra::EngineState;
using memra::Status;

extern "C" {

memra_status memra_quantize_q8_1(memra_engine* engine, const memra_q8_1_args* args,
                                 memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra::QuantizeQ8Args quantize;
    memra_q8_1_args& copy = quantize.q8;
    MEMRA_TRY(memra::read_struct(args, "args", &copy));
    MEMRA_TRY(memra::check_range(copy.rows, 0, memra::kMaxQuantizeRows, "rows"));
    if (copy.rows == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_quantize(&copy));
    return state.backend->quantize_q8(quantize, memra::stage_launch(0, stream));
  });
}

memra_status memra_q8_to_lane_major(memra_engine* engine, const int8_t* q, int64_t rows,
                                    int64_t columns, int8_t* out, memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    MEMRA_TRY(memra::check_range(rows, 0, memra::kMaxQuantizeRows, "rows"));
    if (rows == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_lane_major(q, rows, columns, out));
    return state.backend->q8_to_lane_major(q, rows, columns, out, stream);
  });
}

memra_status memra_moe_rows_gate_up(memra_engine* engine, const memra_rows_gate_up_args* args,
                                    memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra_rows_gate_up_args copy;
    MEMRA_TRY(memra::take_gate_up(state, args, "args", &copy));
    if (copy.tokens == 0) return MEMRA_OK;
    return state.backend->rows_gate_up(copy, memra::stage_launch(copy.flags, stream));
  });
}

memra_status memra_moe_rows_down(memra_engine* engine, const memra_rows_down_args* args,
                                 memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra_rows_down_args copy;
    MEMRA_TRY(memra::take_down(state, args, "args", &copy));
    if (copy.tokens == 0) return MEMRA_OK;
    return state.backend->rows_down(copy, memra::stage_launch(copy.flags, stream));
  });
}

memra_status memra_moe_rows_probe(memra_engine* engine, const memra_rows_probe_args* args,
                                  memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    memra_rows_probe_args copy;
    MEMRA_TRY(memra::read_struct(args, "args", &copy));
    return memra::probe(state, copy, stream);
  });
}

}  // extern "C"
