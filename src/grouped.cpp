// The layer by the grouped path, whole or in some of its stages: one call of the backend.

#include "entry.h"
#include "layer.h"
#include "memra.h"
#include "moe.h"

namespace memra {

Status run_grouped(const memra_moe_layer& layer, const memra_moe_args& args, uint32_t stages,
                   memra_stream stream) {
  GroupedLayerArgs whole;
  whole.shape = layer.grouped_shape();
  whole.activation = layer.activation;
  whole.limit = layer.limit;
  whole.alpha = layer.alpha;
  whole.flags = args.flags;
  whole.x_dtype = args.x_dtype;
  whole.y_dtype = args.y_dtype;
  whole.tokens = args.tokens;
  whole.x = args.x;
  whole.x_stride = args.x_stride;
  whole.y = args.y;
  whole.y_stride = args.y_stride;
  whole.topk_ids = args.topk_ids;
  whole.topk_weights = args.topk_weights;
  whole.expert_ptrs = args.expert_ptrs != nullptr ? args.expert_ptrs : layer.tables.ptrs;
  whole.expert_scales = args.expert_scales != nullptr ? args.expert_scales : layer.tables.scales;
  whole.expert_bias = layer.tables.bias;
  whole.invalid_ids = args.invalid_ids;
  whole.workspace = args.workspace;
  whole.stages = stages;
  return layer.state->backend->grouped_layer(whole, stage_launch(args.flags, stream));
}

}  // namespace memra

extern "C" {

memra_status memra_moe_grouped(memra_moe_layer* layer, const memra_moe_args* args,
                               memra_stream stream) {
  return memra::moe_entry(layer, args, MEMRA_PATH_GROUPED, stream);
}

memra_status memra_moe_grouped_probe(memra_moe_layer* layer, const memra_moe_args* args,
                                     uint32_t stages, memra_stream stream) {
  return memra::moe_entry(layer, args, MEMRA_PATH_GROUPED, stream, stages);
}

}  // extern "C"
