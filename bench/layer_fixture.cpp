#include "layer_fixture.h"

#include <algorithm>
#include <vector>

namespace memra::bench {
namespace {

// Different slabs of a plane that are made on the host; the other experts hold copies. Banks of
// hundreds of experts would take minutes to make.
constexpr int64_t kDistinctSlabs = 8;
constexpr int64_t kCpuExperts = 16;

}  // namespace

int64_t usual_experts(const Shape& shape, bool on_cpu) {
  if (!on_cpu) return shape.n_experts;
  return std::min(shape.n_experts, std::max(shape.top_k, kCpuExperts));
}

LayerFixture::LayerFixture(const Session& session, const Shape& shape, const Activation& activation,
                           memra_format format)
    : session_(session),
      shape_(shape),
      activation_(activation),
      format_(format),
      weights_(make_synthetic_weights(shape)) {
  for (const Plane plane : {kGate, kUp, kDown})
    fill_bank(plane);
  session_.synchronize();
  create_layer();
}

double LayerFixture::bank_bytes(const Shape& shape) {
  double sum = 0;
  for (const Plane plane : {kGate, kUp, kDown})
    sum += static_cast<double>(shape.n_experts) * static_cast<double>(slab_bytes(shape, plane));
  return sum;
}

void LayerFixture::fill_bank(Plane plane) {
  const size_t bytes = slab_bytes(shape_, plane);
  memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
  repack.rows = plane_rows(shape_, plane);
  repack.columns = plane_columns(shape_, plane);
  repack.n_experts = 1;
  uint64_t bank_bytes = 0;
  check(memra_bank_bytes(format_, repack.rows, repack.columns, shape_.n_experts, &strides_[plane],
                         &bank_bytes),
        "memra_bank_bytes");
  banks_[plane] = session_.device_memory(bank_bytes);
  const Memory staging = session_.host_memory(bytes);
  const Memory v1 = session_.device_memory(bytes);
  repack.src = v1.as();
  const int64_t n_distinct = std::min(kDistinctSlabs, shape_.n_experts);
  for (int64_t expert = 0; expert < n_distinct; ++expert) {
    weights_->fill(plane, 0, expert, {staging.as<std::byte>(), bytes});
    repack.dst = slab_bytes_at(plane, expert);
    const bool is_v2 = format_ == MEMRA_NVFP4_V2;
    session_.copy(is_v2 ? v1.as() : repack.dst, staging.as(), bytes);
    if (is_v2)
      check(memra_repack_v2(session_.engine(), &repack, session_.stream()), "memra_repack_v2");
    session_.synchronize();
  }
  for (int64_t expert = n_distinct; expert < shape_.n_experts; ++expert)
    session_.copy(slab_bytes_at(plane, expert), slab(plane, expert % n_distinct), bytes);
}

void LayerFixture::create_layer() {
  memra_bank banks[kPlanes];
  std::vector<float> scales[kPlanes];
  for (const Plane plane : {kGate, kUp, kDown}) {
    for (int64_t e = 0; e < shape_.n_experts; ++e)
      scales[plane].push_back(weights_->scale(plane, e));
    banks[plane] = MEMRA_BANK_INIT;
    banks[plane].format = format_;
    banks[plane].base = banks_[plane].as();
    banks[plane].expert_stride = strides_[plane];
    banks[plane].expert_scales = scales[plane].data();
  }
  memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
  desc.activation = activation_.kind;
  desc.hidden_size = shape_.hidden_size;
  desc.intermediate_size = shape_.intermediate_size;
  desc.n_experts = shape_.n_experts;
  desc.top_k = shape_.top_k;
  desc.max_tokens = shape_.tokens;
  desc.limit = activation_.limit;
  desc.alpha = activation_.alpha;
  desc.gate = &banks[kGate];
  desc.up = &banks[kUp];
  desc.down = &banks[kDown];
  memra_moe_layer* layer = nullptr;
  check(memra_moe_layer_create(session_.engine(), &desc, &layer), "memra_moe_layer_create");
  layer_.reset(layer);
  check(memra_moe_layer_properties_init(&properties_, sizeof(properties_)),
        "memra_moe_layer_properties_init");
  check(memra_moe_layer_info(layer, &properties_), "memra_moe_layer_info");
}

const memra_rows_plan* LayerFixture::plan(int64_t tokens) const {
  for (int32_t i = 0; i < properties_.n_rows_plans; ++i) {
    const memra_rows_plan& plan = properties_.rows_plans[i];
    if (plan.tokens_min <= tokens && tokens <= plan.tokens_max) return &plan;
  }
  return nullptr;
}

}  // namespace memra::bench
