#include "layer_calls.h"

#include "console.h"
#include "inputs.h"

namespace memra::bench {
namespace {

// What goes by before a slab is read again must not be in a cache.
constexpr double kMinRepeatBytes = 300e6;

}  // namespace

void require_sound(const Bf16Bits& y) {
  size_t zeros = 0;
  size_t not_finite = 0;
  for (const uint16_t bits : y) {
    zeros += (bits & 0x7FFF) == 0 ? 1U : 0U;
    not_finite += (bits & 0x7F80) == 0x7F80 ? 1U : 0U;
  }
  if (not_finite > 0 || 2 * zeros > y.size() || y.empty()) {
    throw Failure(format("outputs are degenerate: of %zu, %zu are not finite and %zu are zero",
                         y.size(), not_finite, zeros));
  }
}

LayerCalls::LayerCalls(const LayerFixture& fixture, int64_t tokens)
    : fixture_(fixture), shape_(fixture.shape()) {
  shape_.tokens = tokens;
  routing_ = draw_routing(shape_, kMinRepeatBytes);
  std::vector<int32_t> ids;
  for (const std::vector<int32_t>& call : routing_.ids)
    ids.insert(ids.end(), call.begin(), call.end());

  const Session& session = fixture_.session();
  ids_ = session.upload(ids);
  weight_values_ = random_router_weights(shape_);
  weights_ = session.upload(weight_values_);
  x_ = session.upload(random_bf16(tokens * shape_.hidden_size));
  y_ = session.device_memory(x_.bytes());
  uint64_t bytes = 0;
  check(memra_moe_workspace_size(fixture_.layer(), tokens, &bytes), "memra_moe_workspace_size");
  workspace_ = session.device_memory(bytes);
}

double LayerCalls::gate_up_bytes() const {
  return routing_.mean_unique() *
         static_cast<double>(slab_bytes(shape_, kGate) + slab_bytes(shape_, kUp));
}

double LayerCalls::down_bytes() const {
  return routing_.mean_unique() * static_cast<double>(slab_bytes(shape_, kDown));
}

void LayerCalls::launch(int64_t call, const CallOptions& options) const {
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  args.flags = options.inputs_stable ? uint32_t{MEMRA_FLAG_INPUTS_STABLE} : 0U;
  args.tokens = shape_.tokens;
  args.x = x_.as();
  args.y = y_.as();
  args.x_dtype = MEMRA_BF16;
  args.y_dtype = MEMRA_BF16;
  args.topk_ids = ids_.as<const int32_t>() + call * shape_.n_pairs();
  args.topk_weights = weights_.as<const float>();
  args.workspace = workspace_.as();
  args.workspace_bytes = workspace_.bytes();
  args.variant = options.variant;
  check(memra_moe_rows(fixture_.layer(), &args, fixture_.session().stream()), "memra_moe_rows");
}

Bf16Bits LayerCalls::output(int64_t call, const CallOptions& options) const {
  fixture_.session().fill(y_, 0xFF);
  launch(call, options);
  return fixture_.session().download<uint16_t>(y_);
}

void LayerCalls::check_outputs() const {
  for (int64_t call = 0; call < count(); ++call)
    require_sound(output(call, {}));
}

}  // namespace memra::bench
