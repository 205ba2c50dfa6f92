#include "layer_fixture.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <vector>

#include "weights.h"

namespace memra::bench {
namespace {

constexpr uint32_t kSeed = 21;

uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

}  // namespace

LayerFixture::LayerFixture(const Session& session, const Shape& shape, const Activation& activation,
                           int batches)
    : session_(session), shape_(shape), batches_(batches) {
  upload_banks();
  create_layer(activation);
  make_batches();
}

void LayerFixture::upload_banks() {
  const auto weights = make_synthetic_weights(shape_);
  for (const Plane plane : {kGate, kUp, kDown}) {
    const size_t bytes = slab_bytes(shape_, plane);
    memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
    repack.rows = plane_rows(shape_, plane);
    repack.columns = plane_columns(shape_, plane);
    repack.n_experts = 1;
    uint64_t stride = 0;
    uint64_t bank_bytes = 0;
    check(memra_bank_bytes(MEMRA_NVFP4_V2, repack.rows, repack.columns, shape_.n_experts, &stride,
                           &bank_bytes),
          "memra_bank_bytes");
    banks_[plane] = session_.device_memory(bank_bytes);
    const Memory staging = session_.host_memory(bytes);
    const Memory v1 = session_.device_memory(bytes);
    repack.src = v1.as();
    for (int64_t expert = 0; expert < shape_.n_experts; ++expert) {
      weights->fill(plane, 0, expert, {staging.as<std::byte>(), bytes});
      session_.copy(v1.as(), staging.as(), bytes);
      repack.dst = banks_[plane].as<std::byte>() + static_cast<uint64_t>(expert) * stride;
      check(memra_repack_v2(session_.engine(), &repack, session_.stream()), "memra_repack_v2");
      session_.synchronize();
    }
  }
}

void LayerFixture::create_layer(const Activation& activation) {
  const auto weights = make_synthetic_weights(shape_);
  memra_bank banks[kPlanes];
  std::vector<float> scales[kPlanes];
  for (const Plane plane : {kGate, kUp, kDown}) {
    for (int64_t e = 0; e < shape_.n_experts; ++e)
      scales[plane].push_back(weights->scale(plane, e));
    banks[plane] = MEMRA_BANK_INIT;
    banks[plane].format = MEMRA_NVFP4_V2;
    banks[plane].base = banks_[plane].as();
    banks[plane].expert_scales = scales[plane].data();
  }
  memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
  desc.activation = activation.kind;
  desc.hidden_size = shape_.hidden_size;
  desc.intermediate_size = shape_.intermediate_size;
  desc.n_experts = shape_.n_experts;
  desc.top_k = shape_.top_k;
  desc.max_tokens = shape_.tokens;
  desc.limit = activation.limit;
  desc.alpha = activation.alpha;
  desc.gate = &banks[kGate];
  desc.up = &banks[kUp];
  desc.down = &banks[kDown];
  memra_moe_layer* layer = nullptr;
  check(memra_moe_layer_create(session_.engine(), &desc, &layer), "memra_moe_layer_create");
  layer_.reset(layer);
  uint64_t bytes = 0;
  check(memra_moe_workspace_size(layer, shape_.tokens, &bytes), "memra_moe_workspace_size");
  workspace_ = session_.device_memory(bytes);
}

void LayerFixture::make_batches() {
  Lcg lcg(kSeed);
  const auto n_experts = static_cast<size_t>(shape_.n_experts);
  std::vector<int32_t> ids;
  double unique = 0;
  for (int batch = 0; batch < batches_; ++batch) {
    std::set<int32_t> touched;
    for (int64_t token = 0; token < shape_.tokens; ++token) {
      std::vector<int32_t> all(n_experts);
      std::iota(all.begin(), all.end(), 0);
      for (size_t slot = 0; slot < static_cast<size_t>(shape_.top_k); ++slot) {
        const auto step = static_cast<size_t>(lcg.unit() * static_cast<float>(n_experts - slot));
        std::swap(all[slot], all[std::min(slot + step, n_experts - 1)]);
        ids.push_back(all[slot]);
        touched.insert(all[slot]);
      }
    }
    unique += static_cast<double>(touched.size()) / batches_;
  }
  const size_t all_planes =
      slab_bytes(shape_, kGate) + slab_bytes(shape_, kUp) + slab_bytes(shape_, kDown);
  launch_bytes_ = unique * static_cast<double>(all_planes);
  ids_ = session_.upload(ids);
  weights_ = session_.upload(std::vector<float>(static_cast<size_t>(shape_.n_pairs()),
                                                1.0F / static_cast<float>(shape_.top_k)));
  std::vector<uint16_t> x(static_cast<size_t>(shape_.tokens * shape_.hidden_size));
  for (uint16_t& value : x)
    value = to_bf16(2.0F * lcg.unit() - 1.0F);
  x_ = session_.upload(x);
  y_ = session_.device_memory(x_.bytes());
}

void LayerFixture::launch(int batch) const {
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  args.tokens = shape_.tokens;
  args.x = x_.as();
  args.y = y_.as();
  args.x_dtype = MEMRA_BF16;
  args.y_dtype = MEMRA_BF16;
  args.topk_ids = ids_.as<const int32_t>() + batch * shape_.n_pairs();
  args.topk_weights = weights_.as<const float>();
  args.workspace = workspace_.as();
  args.workspace_bytes = workspace_.bytes();
  check(memra_moe_rows(layer_.get(), &args, session_.stream()), "memra_moe_rows");
}

}  // namespace memra::bench
