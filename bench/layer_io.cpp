#include "layer_io.h"

namespace memra::bench {

LayerIo::LayerIo(const LayerFixture& fixture, const LayerInputs& inputs)
    : fixture_(fixture),
      tokens_(static_cast<int64_t>(inputs.weights.size()) / fixture.shape().top_k),
      x_(inputs.x),
      dtype_(inputs.dtype) {
  const Session& session = fixture.session();
  ids_ = session.upload(inputs.ids);
  weights_ = session.upload(inputs.weights);
  y_ = session.device_memory(static_cast<size_t>(tokens_) * row_bytes());
  uint64_t bytes = 0;
  check(memra_moe_workspace_size(fixture.layer(), tokens_, &bytes), "memra_moe_workspace_size");
  workspace_ = session.device_memory(bytes);
}

size_t LayerIo::row_bytes() const {
  return static_cast<size_t>(fixture_.shape().hidden_size) * (dtype_ == MEMRA_F32 ? 4 : 2);
}

void* LayerIo::y_row(int64_t token) const {
  return y_.as<std::byte>() + static_cast<size_t>(token) * row_bytes();
}

void LayerIo::launch(memra_path path, int64_t first, int64_t count) const {
  if (count == 0) return;
  const int64_t top_k = fixture_.shape().top_k;
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  args.tokens = count;
  args.x_dtype = dtype_;
  args.y_dtype = dtype_;
  args.x = static_cast<const std::byte*>(x_) + static_cast<size_t>(first) * row_bytes();
  args.y = y_row(first);
  args.topk_ids = ids_.as<const int32_t>() + first * top_k;
  args.topk_weights = weights_.as<const float>() + first * top_k;
  args.workspace = workspace_.as();
  args.workspace_bytes = workspace_.bytes();
  args.path = path;
  check(memra_moe(fixture_.layer(), &args, fixture_.session().stream()), "memra_moe");
}

}  // namespace memra::bench
