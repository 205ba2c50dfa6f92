#include "layer_stages.h"

#include <algorithm>

namespace memra::bench {
namespace {

uint32_t flags(bool inputs_stable) {
  return inputs_stable ? uint32_t{MEMRA_FLAG_INPUTS_STABLE} : 0U;
}

// Everything but tables, activations and outputs.
memra_rows_gate_up_args gate_up_args(const Shape& shape, const Activation& activation,
                                     const CallOptions& options) {
  memra_rows_gate_up_args args = MEMRA_ROWS_GATE_UP_ARGS_INIT;
  args.flags = flags(options.inputs_stable);
  args.tokens = shape.tokens;
  args.top_k = shape.top_k;
  args.hidden_size = shape.hidden_size;
  args.intermediate_size = shape.intermediate_size;
  args.gate_format = MEMRA_NVFP4_V2;
  args.up_format = MEMRA_NVFP4_V2;
  args.activation = activation.kind;
  args.limit = activation.limit;
  args.alpha = activation.alpha;
  args.variant = options.variant;
  return args;
}

memra_rows_down_args down_args(const Shape& shape, const CallOptions& options) {
  memra_rows_down_args args = MEMRA_ROWS_DOWN_ARGS_INIT;
  args.flags = flags(options.inputs_stable);
  args.tokens = shape.tokens;
  args.top_k = shape.top_k;
  args.intermediate_size = shape.intermediate_size;
  args.hidden_size = shape.hidden_size;
  args.format = MEMRA_NVFP4_V2;
  args.y_dtype = MEMRA_F32;
  args.variant = options.variant;
  return args;
}

}  // namespace

LayerRoof::LayerRoof(const LayerCalls& calls) : calls_(calls) {
  const LayerFixture& fixture = calls.fixture();
  std::vector<const void*> ptrs;
  for (const std::vector<int32_t>& experts : calls.routing().unique) {
    const Shape shape = roof_shape(calls.shape(), static_cast<int64_t>(experts.size()));
    shapes_.push_back(shape);
    begins_.push_back(static_cast<int64_t>(ptrs.size()));
    for (const Plane plane : {kGate, kUp, kDown}) {
      for (const int32_t expert : experts)
        ptrs.push_back(fixture.slab(plane, expert));
      ptrs.resize(ptrs.size() + static_cast<size_t>(shape.n_pairs()) - experts.size());
    }
  }
  const Session& session = fixture.session();
  ptrs_ = session.upload(ptrs);
  const Shape& shape = calls.shape();
  const int64_t widest = std::max(shape.hidden_size, shape.intermediate_size);
  const size_t floats = static_cast<size_t>(shape.n_pairs() * std::max<int64_t>(widest, kPlanes));
  scratch_ = session.device_memory(floats * sizeof(float));
  out_ = session.device_memory(floats * sizeof(float));
  session.fill(scratch_, 0);
  session.synchronize();
}

void LayerRoof::launch(int64_t call, Stage stage, bool dependent) const {
  const Session& session = calls_.fixture().session();
  const auto index = static_cast<size_t>(call);
  const auto* ptrs = ptrs_.as<const void* const>() + begins_[index];
  const CallOptions options = {MEMRA_ROWS_PLAIN, dependent};
  memra_rows_gate_up_args gate_up =
      gate_up_args(shapes_[index], calls_.fixture().activation(), options);
  gate_up.ptrs = ptrs;
  gate_up.scales = scratch_.as<const float>();
  gate_up.q = scratch_.as<const int8_t>();
  gate_up.d = scratch_.as<const float>();
  gate_up.out = out_.as<float>();
  memra_rows_down_args down = down_args(shapes_[index], options);
  down.ptrs = ptrs;
  down.scales = gate_up.scales;
  down.q = gate_up.q;
  down.d = gate_up.d;
  down.y = out_.as();
  memra_rows_probe_args args = MEMRA_ROWS_PROBE_ARGS_INIT;
  args.arm = MEMRA_PROBE_STREAM;
  args.gate_up = stage == Stage::kGateUp ? &gate_up : nullptr;
  args.down = stage == Stage::kDown ? &down : nullptr;
  check(memra_moe_rows_probe(session.engine(), &args, session.stream()), "memra_moe_rows_probe");
}

LayerStages::LayerStages(const LayerCalls& calls) : calls_(calls) {
  const LayerFixture& fixture = calls.fixture();
  const Session& session = fixture.session();
  const Shape& shape = calls.shape();
  std::vector<const void*> ptrs;
  std::vector<float> scales;
  std::vector<int32_t> order;
  for (const std::vector<int32_t>& ids : calls.routing().ids) {
    for (const Plane plane : {kGate, kUp, kDown}) {
      for (size_t pair = 0; pair < ids.size(); ++pair) {
        ptrs.push_back(fixture.slab(plane, ids[pair]));
        const float weight = plane == kDown ? calls.topk_weights()[pair] : 1.0F;
        scales.push_back(weight * fixture.scale(plane, ids[pair]));
      }
    }
    const std::vector<int32_t> sorted = expert_order(ids);
    order.insert(order.end(), sorted.begin(), sorted.end());
  }
  ptrs_ = session.upload(ptrs);
  scales_ = session.upload(scales);
  order_ = session.upload(order);
  const int64_t n_pairs = shape.n_pairs();
  input_ = make_quantized(session, shape.tokens, shape.hidden_size);
  down_input_ = make_quantized(session, n_pairs, shape.intermediate_size);
  gate_up_out_ =
      session.device_memory(static_cast<size_t>(n_pairs * shape.intermediate_size) * sizeof(float));
  y_ = session.device_memory(static_cast<size_t>(shape.tokens * shape.hidden_size) * sizeof(float));
  quantize(session, calls.x(), MEMRA_BF16, shape.tokens, shape.hidden_size, input_);
  launch_gate_up(0, {}, fixture.activation());
  quantize(session, gate_up_out_, MEMRA_F32, n_pairs, shape.intermediate_size, down_input_);
  session.synchronize();
}

void LayerStages::launch_gate_up(int64_t call, const CallOptions& options,
                                 const Activation& activation) const {
  const Session& session = calls_.fixture().session();
  const int64_t n_pairs = calls_.shape().n_pairs();
  memra_rows_gate_up_args args = gate_up_args(calls_.shape(), activation, options);
  args.ptrs = ptrs_.as<const void* const>() + call * kPlanes * n_pairs;
  args.scales = scales_.as<const float>() + call * kPlanes * n_pairs;
  args.order = order_.as<const int32_t>() + call * n_pairs;
  args.q = input_.values(options.variant);
  args.d = input_.scales();
  args.out = gate_up_out_.as<float>();
  check(memra_moe_rows_gate_up(session.engine(), &args, session.stream()),
        "memra_moe_rows_gate_up");
}

void LayerStages::launch_down(int64_t call, const CallOptions& options) const {
  const Session& session = calls_.fixture().session();
  const int64_t n_pairs = calls_.shape().n_pairs();
  memra_rows_down_args args = down_args(calls_.shape(), options);
  args.ptrs = ptrs_.as<const void* const>() + call * kPlanes * n_pairs;
  args.scales = scales_.as<const float>() + call * kPlanes * n_pairs;
  args.q = down_input_.values(options.variant);
  args.d = down_input_.scales();
  args.y = y_.as();
  check(memra_moe_rows_down(session.engine(), &args, session.stream()), "memra_moe_rows_down");
}

void LayerStages::launch(int64_t call, Stage stage, const CallOptions& options) const {
  if (stage == Stage::kGateUp) {
    launch_gate_up(call, options, calls_.fixture().activation());
  } else {
    launch_down(call, options);
  }
}

std::vector<float> LayerStages::gate_up_output(const Activation& activation) const {
  calls_.fixture().session().fill(gate_up_out_, 0xFF);
  launch_gate_up(0, {}, activation);
  return calls_.fixture().session().download<float>(gate_up_out_);
}

std::vector<float> LayerStages::output() const {
  calls_.fixture().session().fill(y_, 0xFF);
  launch_down(0, {});
  return calls_.fixture().session().download<float>(y_);
}

}  // namespace memra::bench
