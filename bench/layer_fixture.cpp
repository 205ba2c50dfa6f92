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
                           const LayerPart& part)
    : session_(session),
      shape_(shape),
      local_shape_(shape),
      activation_(activation),
      part_(part),
      weights_(make_synthetic_weights(shape)) {
  const auto rest = [](int64_t count, int64_t all, int64_t begin) {
    return count > 0 ? count : all - begin;
  };
  local_shape_.intermediate_size =
      rest(part.intermediate_count, shape.intermediate_size, part.intermediate_begin);
  local_shape_.n_experts = rest(part.expert_count, shape.n_experts, part.expert_begin);
  if (part.format != MEMRA_NVFP4_V2 && local_shape_.intermediate_size != shape.intermediate_size)
    throw Failure("a part of the intermediate size needs V2");
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

memra_slice LayerFixture::slice(Plane plane) const {
  memra_slice slice = {};
  const int64_t begin = part_.intermediate_begin;
  const int64_t count = local_shape_.intermediate_size;
  if (plane == kDown) {
    slice.column_begin = begin;
    slice.column_count = count;
  } else {
    slice.row_begin = begin;
    slice.row_count = count;
  }
  return slice;
}

void LayerFixture::fill_bank(Plane plane) {
  const size_t source_bytes = slab_bytes(shape_, plane);
  const size_t bytes = slab_bytes(local_shape_, plane);
  const int64_t n_experts = local_shape_.n_experts;
  uint64_t bank_bytes = 0;
  check(memra_bank_bytes(part_.format, plane_rows(local_shape_, plane),
                         plane_columns(local_shape_, plane), n_experts, &strides_[plane],
                         &bank_bytes),
        "memra_bank_bytes");
  banks_[plane] = session_.device_memory(bank_bytes);
  if (part_.zero_banks) return session_.fill(banks_[plane], 0);

  const Memory staging = session_.host_memory(source_bytes);
  const Memory v1 = session_.device_memory(source_bytes);
  memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
  repack.rows = plane_rows(shape_, plane);
  repack.columns = plane_columns(shape_, plane);
  repack.n_experts = 1;
  repack.slice = slice(plane);
  repack.src = v1.as();
  const int64_t n_distinct = std::min(kDistinctSlabs, n_experts);
  for (int64_t expert = 0; expert < n_distinct; ++expert) {
    // The same slab for an expert, whichever rank holds it.
    const int64_t source = (part_.expert_begin + expert) % kDistinctSlabs;
    weights_->fill(plane, 0, source, {staging.as<std::byte>(), source_bytes});
    session_.copy(v1.as(), staging.as(), source_bytes);
    if (part_.format == MEMRA_NVFP4_V2) {
      repack.dst = slab_bytes_at(plane, expert);
      check(memra_repack_v2(session_.engine(), &repack, session_.stream()), "memra_repack_v2");
    } else {
      session_.copy(slab_bytes_at(plane, expert), v1.as(), bytes);
    }
    session_.synchronize();
  }
  for (int64_t expert = n_distinct; expert < n_experts; ++expert)
    session_.copy(slab_bytes_at(plane, expert), slab(plane, expert % n_distinct), bytes);
}

void LayerFixture::create_layer() {
  memra_bank banks[kPlanes];
  std::vector<float> scales[kPlanes];
  for (const Plane plane : {kGate, kUp, kDown}) {
    for (int64_t e = 0; e < local_shape_.n_experts; ++e)
      scales[plane].push_back(scale(plane, e));
    banks[plane] = MEMRA_BANK_INIT;
    banks[plane].format = part_.format;
    banks[plane].base = banks_[plane].as();
    banks[plane].expert_stride = strides_[plane];
    banks[plane].expert_scales = scales[plane].data();
  }
  memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
  desc.activation = activation_.kind;
  desc.hidden_size = shape_.hidden_size;
  desc.intermediate_size = local_shape_.intermediate_size;
  desc.local_expert_offset = part_.expert_begin;
  desc.n_local_experts = local_shape_.n_experts;
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
