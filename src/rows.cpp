// The layer in one call: prepare, quantise, gate and up, quantise, down; or the backend's own way.

#include <cstddef>

#include "check.h"
#include "entry.h"
#include "layer.h"
#include "memra.h"
#include "structs.h"

namespace memra {
namespace {

Area rows_area(const void* begin, int64_t rows, int64_t stride, int64_t columns, int64_t bytes) {
  return {.begin = begin,
          .count = static_cast<uint64_t>(rows),
          .stride = static_cast<uint64_t>(stride * bytes),
          .item_bytes = static_cast<uint64_t>(columns * bytes)};
}

Status check_activations(const memra_moe_layer& layer, memra_moe_args* args, Area* x, Area* y) {
  const int64_t hidden = layer.shape.hidden_size;
  MEMRA_TRY(check_dtype(args->x_dtype, "x_dtype"));
  MEMRA_TRY(check_dtype(args->y_dtype, "y_dtype"));
  MEMRA_TRY(check_pointer(args->x, 16, "x"));
  MEMRA_TRY(check_pointer(args->y, 16, "y"));
  const int64_t x_bytes = dtype_bytes(args->x_dtype);
  const int64_t y_bytes = dtype_bytes(args->y_dtype);
  MEMRA_TRY(take_row_stride(&args->x_stride, hidden, x_bytes, "x_stride"));
  MEMRA_TRY(take_row_stride(&args->y_stride, hidden, y_bytes, "y_stride"));
  *x = rows_area(args->x, args->tokens, args->x_stride, hidden, x_bytes);
  *y = rows_area(args->y, args->tokens, args->y_stride, hidden, y_bytes);
  MEMRA_TRY(check_area(*x, "x", "x_stride"));
  MEMRA_TRY(check_area(*y, "y", "y_stride"));
  return check_apart(*y, "y", *x, "x");
}

Status check_tables(const memra_moe_layer& layer, const memra_moe_args& args) {
  MEMRA_TRY(check_pointer(args.topk_ids, alignof(int32_t), "topk_ids"));
  MEMRA_TRY(check_pointer(args.topk_weights, alignof(float), "topk_weights"));
  MEMRA_TRY(check_optional_pointer(args.expert_ptrs, alignof(void*), "expert_ptrs"));
  MEMRA_TRY(check_optional_pointer(args.expert_scales, alignof(float), "expert_scales"));
  MEMRA_TRY(check_optional_pointer(args.invalid_ids, alignof(uint64_t), "invalid_ids"));
  if (args.expert_ptrs == nullptr && !layer.has_slabs) {
    return invalid("expert_ptrs") << " is NULL: must be given, because the layer has a bank "
                                  << "without slabs";
  }
  return MEMRA_OK;
}

Status check_workspace(const memra_moe_layer& layer, const memra_moe_args& args, const Area& x,
                       const Area& y) {
  const uint64_t needed = layer.workspace(args.tokens).bytes;
  if (args.workspace_bytes < needed) {
    return fail(MEMRA_ERROR_WORKSPACE_TOO_SMALL)
           << "workspace_bytes is " << args.workspace_bytes << ": must be at least " << needed
           << " for " << args.tokens << " tokens";
  }
  MEMRA_TRY(check_pointer(args.workspace, MEMRA_WORKSPACE_ALIGNMENT, "workspace"));
  const Area workspace{.begin = args.workspace, .item_bytes = needed};
  MEMRA_TRY(check_area(workspace, "workspace"));
  MEMRA_TRY(check_apart(workspace, "workspace", x, "x"));
  return check_apart(workspace, "workspace", y, "y");
}

// Fills in what zero stands for. Zero tokens have been dealt with.
Status check_args(const memra_moe_layer& layer, memra_moe_args* args) {
  MEMRA_TRY(check_reserved(args->reserved, "reserved"));
  MEMRA_TRY(check_flags(args->flags, MEMRA_FLAG_ACCUMULATE | MEMRA_FLAG_INPUTS_STABLE, "flags"));
  MEMRA_TRY(check_variant(args->variant, layer.all_v2(), "variant"));
  Area x;
  Area y;
  MEMRA_TRY(check_activations(layer, args, &x, &y));
  MEMRA_TRY(check_tables(layer, *args));
  return check_workspace(layer, *args, x, y);
}

// One call: where its intermediates lie and what it runs.
class RowsCall {
 public:
  RowsCall(const memra_moe_layer& layer, const memra_moe_args& args, memra_stream stream)
      : layer_(layer),
        args_(args),
        backend_(*layer.state->backend),
        stream_(stream),
        choice_(layer.choose_rows(args.tokens, args.variant)),
        n_pairs_(args.tokens * layer.shape.top_k),
        // The table of bias pointers exists where the layer has a bias.
        bias_(layer.tables.bias != nullptr) {
    const RowsWorkspace places = layer.workspace(args.tokens);
    q_ = at<int8_t>(places.q);
    d_ = at<float>(places.d);
    ptrs_ = at<const void*>(places.ptrs);
    scales_ = at<float>(places.scales);
    if (bias_) pair_bias_ = at<const float*>(places.bias);
    if ((choice_.gate_up_variant & kRowsOrdered) != 0) order_ = at<int32_t>(places.order);
    act_ = at<float>(places.act);
    act_q_ = at<int8_t>(places.act_q);
    act_d_ = at<float>(places.act_d);
    dots_ = at<float>(places.dots);
  }

  Status run() {
    RowsLayerArgs whole;
    whole.pairs = pairs_args();
    whole.x = args_.x;
    whole.x_dtype = args_.x_dtype;
    whole.x_stride = args_.x_stride;
    whole.gate_up = gate_up_args();
    whole.down = down_args();
    whole.act_q = act_q_;
    whole.act_d = act_d_;
    whole.dots = dots_;
    whole.workspace = args_.workspace;
    bool taken = false;
    MEMRA_TRY(backend_.rows_layer(whole, launch(false), &taken));
    if (taken) return MEMRA_OK;
    MEMRA_TRY(backend_.prepare_pairs(whole.pairs, launch(false)));
    MEMRA_TRY(quantize(args_.x, args_.x_dtype, args_.x_stride, args_.tokens,
                       layer_.shape.hidden_size, choice_.gate_up_variant, q_, d_));
    MEMRA_TRY(backend_.rows_gate_up(whole.gate_up, launch(true)));
    MEMRA_TRY(quantize(act_, MEMRA_F32, layer_.shape.intermediate_size, n_pairs_,
                       layer_.shape.intermediate_size, choice_.down_variant, act_q_, act_d_));
    return backend_.rows_down(whole.down, launch(true));
  }

 private:
  template <typename T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(args_.workspace) + offset);
  }

  Launch launch(bool chained) const {
    return {.stream = stream_,
            .chained = chained,
            .inputs_stable = (args_.flags & MEMRA_FLAG_INPUTS_STABLE) != 0};
  }

  PreparePairsArgs pairs_args() const {
    PreparePairsArgs prepare;
    prepare.tokens = args_.tokens;
    prepare.top_k = layer_.shape.top_k;
    prepare.n_experts = layer_.n_experts;
    prepare.local_expert_offset = layer_.local_expert_offset;
    prepare.n_local_experts = layer_.n_local_experts;
    prepare.topk_ids = args_.topk_ids;
    prepare.topk_weights = args_.topk_weights;
    prepare.expert_ptrs = args_.expert_ptrs != nullptr ? args_.expert_ptrs : layer_.tables.ptrs;
    prepare.expert_scales =
        args_.expert_scales != nullptr ? args_.expert_scales : layer_.tables.scales;
    prepare.expert_bias = layer_.tables.bias;
    prepare.invalid_ids = args_.invalid_ids;
    prepare.ptrs = ptrs_;
    prepare.scales = scales_;
    prepare.bias = pair_bias_;
    prepare.order = order_;
    return prepare;
  }

  Status quantize(const void* x, memra_dtype dtype, int64_t stride, int64_t rows, int64_t columns,
                  uint32_t variant, int8_t* q, float* d) const {
    QuantizeQ8Args quantize;
    quantize.q8 = {.struct_size = sizeof(memra_q8_1_args),
                   .x_dtype = dtype,
                   .x = x,
                   .x_stride = stride,
                   .rows = rows,
                   .columns = columns,
                   .q = q,
                   .d = d};
    quantize.lane_major = (variant & MEMRA_ROWS_LANE_MAJOR) != 0;
    return backend_.quantize_q8(quantize, launch(true));
  }

  memra_rows_gate_up_args gate_up_args() const {
    memra_rows_gate_up_args gate_up{};
    gate_up.struct_size = sizeof(gate_up);
    gate_up.flags = args_.flags & MEMRA_FLAG_INPUTS_STABLE;
    gate_up.tokens = args_.tokens;
    gate_up.top_k = layer_.shape.top_k;
    gate_up.hidden_size = layer_.shape.hidden_size;
    gate_up.intermediate_size = layer_.shape.intermediate_size;
    gate_up.gate_format = layer_.shape.gate_format;
    gate_up.up_format = layer_.shape.up_format;
    gate_up.activation = layer_.activation;
    gate_up.limit = layer_.limit;
    gate_up.alpha = layer_.alpha;
    gate_up.variant = choice_.gate_up_variant;
    gate_up.ptrs = ptrs_;
    gate_up.scales = scales_;
    gate_up.bias = pair_bias_;
    gate_up.order = order_;
    gate_up.q = q_;
    gate_up.d = d_;
    gate_up.out = act_;
    return gate_up;
  }

  memra_rows_down_args down_args() const {
    memra_rows_down_args down{};
    down.struct_size = sizeof(down);
    down.flags = args_.flags;
    down.tokens = args_.tokens;
    down.top_k = layer_.shape.top_k;
    down.intermediate_size = layer_.shape.intermediate_size;
    down.hidden_size = layer_.shape.hidden_size;
    down.format = layer_.shape.down_format;
    down.y_dtype = args_.y_dtype;
    down.variant = choice_.down_variant;
    down.ptrs = ptrs_;
    down.scales = scales_;
    down.bias = pair_bias_;
    down.topk_weights = args_.topk_weights;
    down.q = act_q_;
    down.d = act_d_;
    down.y = args_.y;
    down.y_stride = args_.y_stride;
    return down;
  }

  const memra_moe_layer& layer_;
  const memra_moe_args& args_;
  Backend& backend_;
  memra_stream stream_;
  RowsChoice choice_;
  int64_t n_pairs_;
  bool bias_;
  int8_t* q_;
  float* d_;
  const void** ptrs_;
  float* scales_;
  const float** pair_bias_ = nullptr;
  int32_t* order_ = nullptr;
  float* act_;
  int8_t* act_q_;
  float* act_d_;
  float* dots_;
};

}  // namespace
}  // namespace memra

extern "C" {

memra_status memra_moe_rows(memra_moe_layer* layer, const memra_moe_args* args,
                            memra_stream stream) {
  if (layer == nullptr) return memra::missing_handle("layer", "memra_moe_layer_create");
  return memra::run_on(*layer->state, [&]() -> memra::Status {
    memra_moe_args copy;
    MEMRA_TRY(memra::read_struct(args, "args", &copy));
    MEMRA_TRY(memra::check_range(copy.tokens, 0, layer->rows_max_tokens(), "tokens"));
    if (copy.tokens == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_args(*layer, &copy));
    return memra::RowsCall(*layer, copy, stream).run();
  });
}

}  // extern "C"
