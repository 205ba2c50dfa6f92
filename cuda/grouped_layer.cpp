// The grouped path as a whole: routing, and six launches more.

#include <cstddef>

#include "grouped.h"
#include "grouped_products.h"
#include "grouped_workspace.h"

namespace memra::cuda {
namespace {

class Layer {
 public:
  Layer(const Device& device, const GroupedLayerArgs& args, const Launch& launch)
      : device_(device),
        args_(args),
        shape_(args.shape),
        places_(shape_, args.tokens),
        launch_(launch) {}

  Status run() {
    if (wants(MEMRA_GROUPED_ROUTE)) {
      MEMRA_TRY(enqueue([&] { return route_pairs(); }));
      MEMRA_TRY(enqueue([&] { return plan_tiles(device_, experts(), tiles(), launch_); }));
    }
    if (wants(MEMRA_GROUPED_GATHER)) MEMRA_TRY(enqueue([&] { return scatter(); }));
    // Lists of an earlier call have been taken from.
    if (!wants(MEMRA_GROUPED_ROUTE) && wants(MEMRA_GROUPED_GATE_UP | MEMRA_GROUPED_DOWN)) {
      MEMRA_TRY(enqueue([&] { return rewind_tiles(device_, tiles(), launch_); }));
    }
    if (wants(MEMRA_GROUPED_GATE_UP)) {
      MEMRA_TRY(enqueue([&] { return gate_up(); }));
      MEMRA_TRY(enqueue([&] { return finish(); }));
    }
    if (wants(MEMRA_GROUPED_DOWN)) MEMRA_TRY(enqueue([&] { return down(); }));
    if (wants(MEMRA_GROUPED_SUM)) MEMRA_TRY(enqueue([&] { return sum(); }));
    return MEMRA_OK;
  }

 private:
  // Any of them.
  bool wants(uint32_t stages) const { return (args_.stages & stages) != 0; }

  // All but the first are chained.
  template <class Step>
  Status enqueue(const Step& step) {
    MEMRA_TRY(step());
    launch_.chained = true;
    return MEMRA_OK;
  }

  template <typename T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(args_.workspace) + offset);
  }
  TilePlans tiles() const {
    return tile_plans(device_, experts(),
                      {shape_.gate_format, shape_.up_format, shape_.down_format, shape_.hidden_size,
                       shape_.intermediate_size},
                      at<void>(places_.tiles));
  }
  ExpertRows experts() const {
    return {at<int32_t>(places_.n_active), at<int32_t>(places_.active),
            at<int32_t>(places_.offsets), shape_.n_local_experts, args_.tokens * shape_.top_k};
  }
  // Of plane 0 gate, 1 up, 2 down.
  PlaneTables plane(int64_t which) const {
    const int64_t first = which * shape_.n_local_experts;
    return {args_.expert_ptrs + first, args_.expert_scales + first,
            args_.expert_bias != nullptr ? args_.expert_bias + first : nullptr};
  }

  Status route_pairs() const {
    memra_moe_route_args route_args{};
    route_args.tokens = args_.tokens;
    route_args.top_k = shape_.top_k;
    route_args.n_experts = shape_.n_experts;
    route_args.local_expert_offset = shape_.local_expert_offset;
    route_args.n_local_experts = shape_.n_local_experts;
    route_args.topk_ids = args_.topk_ids;
    route_args.expert_ptrs = args_.expert_ptrs;
    route_args.n_active = at<int32_t>(places_.n_active);
    route_args.active_experts = at<int32_t>(places_.active);
    route_args.offsets = at<int32_t>(places_.offsets);
    route_args.pair_order = at<int32_t>(places_.order);
    route_args.inverse = at<int32_t>(places_.inverse);
    route_args.invalid_ids = args_.invalid_ids;
    route_args.workspace = at<void*>(places_.route);
    return route(device_, route_args, launch_);
  }

  Status scatter() const {
    ScatterF16Args scatter_args;
    scatter_args.x = args_.x;
    scatter_args.x_dtype = args_.x_dtype;
    scatter_args.x_stride = args_.x_stride;
    scatter_args.tokens = args_.tokens;
    scatter_args.top_k = shape_.top_k;
    scatter_args.columns = shape_.hidden_size;
    scatter_args.inverse = at<int32_t>(places_.inverse);
    scatter_args.z = at<void>(places_.z);
    scatter_args.zs = at<float>(places_.zs);
    return scatter_f16(device_, scatter_args, launch_);
  }

  Status gate_up() const {
    GateUpProductArgs product{};
    product.rows = experts();
    product.tiles = tiles().gate_up;
    product.x = {at<uint16_t>(places_.z), at<float>(places_.zs), shape_.hidden_size};
    product.gate = plane(0);
    product.up = plane(1);
    product.gate_format = shape_.gate_format;
    product.up_format = shape_.up_format;
    product.outputs = shape_.intermediate_size;
    product.activation = args_.activation;
    product.limit = args_.limit;
    product.alpha = args_.alpha;
    product.act = at<uint16_t>(places_.act);
    product.exponents = at<int8_t>(places_.exponents);
    return gate_up_product(device_, product, launch_);
  }

  Status finish() const {
    return finish_activations(device_,
                              {experts(), shape_.intermediate_size, at<uint16_t>(places_.act),
                               at<int8_t>(places_.exponents)},
                              launch_);
  }

  // Scales and bias belong to the sum over slots.
  Status down() const {
    PlaneProductArgs product{};
    product.rows = experts();
    product.tiles = tiles().plane;
    product.turn = 1;
    product.x = {at<uint16_t>(places_.act), nullptr, shape_.intermediate_size};
    product.plane.slabs = plane(2).slabs;
    product.format = shape_.down_format;
    product.outputs = shape_.hidden_size;
    product.packed = at<uint32_t>(places_.packed);
    return plane_product(device_, product, launch_);
  }

  Status sum() const {
    SumSlotsArgs sum_args;
    sum_args.tokens = args_.tokens;
    sum_args.top_k = shape_.top_k;
    sum_args.columns = shape_.hidden_size;
    sum_args.inverse = at<int32_t>(places_.inverse);
    sum_args.exponents = at<int8_t>(places_.exponents);
    sum_args.topk_ids = args_.topk_ids;
    sum_args.topk_weights = args_.topk_weights;
    sum_args.local_expert_offset = shape_.local_expert_offset;
    sum_args.scales = plane(2).scales;
    sum_args.bias = plane(2).bias;
    sum_args.y = args_.y;
    sum_args.y_dtype = args_.y_dtype;
    sum_args.y_stride = args_.y_stride;
    sum_args.accumulate = (args_.flags & MEMRA_FLAG_ACCUMULATE) != 0;
    return sum_slots(device_, sum_args, at<uint32_t>(places_.packed), launch_);
  }

  const Device& device_;
  const GroupedLayerArgs& args_;
  const GroupedShape& shape_;
  const GroupedWorkspace places_;
  Launch launch_;
};

}  // namespace

uint64_t grouped_layer_workspace(const GroupedShape& shape, int64_t tokens) {
  return GroupedWorkspace(shape, tokens).bytes;
}

Status grouped_layer(const Device& device, const GroupedLayerArgs& args, const Launch& launch) {
  return Layer(device, args, launch).run();
}

}  // namespace memra::cuda
