// The layer by the rows path: prepare, quantise, gate and up, quantise, down; or the backend's own
// way.

#include <cstddef>

#include "layer.h"
#include "memra.h"
#include "moe.h"

namespace memra {
namespace {

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
    const RowsWorkspace places = layer.rows_workspace(args.tokens);
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

Status run_rows(const memra_moe_layer& layer, const memra_moe_args& args, memra_stream stream) {
  return RowsCall(layer, args, stream).run();
}

}  // namespace memra

extern "C" {

memra_status memra_moe_rows(memra_moe_layer* layer, const memra_moe_args* args,
                            memra_stream stream) {
  return memra::moe_entry(layer, args, MEMRA_PATH_ROWS, stream);
}

}  // extern "C"
