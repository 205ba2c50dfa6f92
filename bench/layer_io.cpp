#include "layer_io.h"

#include "inputs.h"

namespace memra::bench {

LayerIo::LayerIo(const LayerFixture& fixture, int64_t tokens, const std::vector<int32_t>& ids,
                 const void* x)
    : fixture_(fixture), tokens_(tokens), x_(x) {
  const Session& session = fixture.session();
  Shape shape = fixture.shape();
  shape.tokens = tokens;
  ids_ = session.upload(std::vector<int32_t>(ids.begin(), ids.begin() + shape.n_pairs()));
  weights_ = session.upload(random_router_weights(shape));
  y_ = session.device_memory(static_cast<size_t>(tokens * shape.hidden_size) * sizeof(float));
  uint64_t bytes = 0;
  check(memra_moe_workspace_size(fixture.layer(), tokens, &bytes), "memra_moe_workspace_size");
  workspace_ = session.device_memory(bytes);
}

void LayerIo::launch(memra_path path, int64_t first, int64_t count, memra_stream stream) const {
  const Shape& shape = fixture_.shape();
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  args.tokens = count;
  args.x = static_cast<const float*>(x_) + first * shape.hidden_size;
  args.y = y_.as<float>() + first * shape.hidden_size;
  args.topk_ids = ids_.as<const int32_t>() + first * shape.top_k;
  args.topk_weights = weights_.as<const float>() + first * shape.top_k;
  args.workspace = workspace_.as();
  args.workspace_bytes = workspace_.bytes();
  args.path = path;
  check(memra_moe(fixture_.layer(), &args, stream), "memra_moe");
}

}  // namespace memra::bench
