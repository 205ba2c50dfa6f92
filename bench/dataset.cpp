#include "dataset.h"

#include <algorithm>

#include "routing.h"

namespace memra::bench {
namespace {

constexpr uint32_t kRoutingSeed = 11;
constexpr uint32_t kInputSeed = 12;
constexpr uint32_t kRouterSeed = 13;

std::vector<int32_t> draw(const Shape& shape) {
  Lcg lcg(kRoutingSeed);
  return draw_experts(shape, &lcg);
}

}  // namespace

DataSet::DataSet(const Session& session, const Shape& shape, const WeightSource& weights,
                 const Copies& copies, Progress* progress)
    : session_(session), shape_(shape), copies_(copies) {
  route();
  for (const Plane plane : {kGate, kUp, kDown})
    upload_plane(weights, plane, progress);
  upload_tables(weights);
  make_inputs();
}

int64_t DataSet::count_unique_experts(const Shape& shape) {
  return static_cast<int64_t>(distinct(draw(shape)).size());
}

double DataSet::launch_bytes(bool is_down) const {
  const size_t slabs =
      is_down ? slab_bytes(shape_, kDown) : slab_bytes(shape_, kGate) + slab_bytes(shape_, kUp);
  return static_cast<double>(unique_experts_) * static_cast<double>(slabs);
}

void DataSet::route() {
  const std::vector<int32_t> ids = draw(shape_);
  unique_ids_ = distinct(ids);
  for (const int32_t id : ids)
    pair_unique_.push_back(std::find(unique_ids_.begin(), unique_ids_.end(), id) -
                           unique_ids_.begin());
  unique_experts_ = static_cast<int64_t>(unique_ids_.size());
  roof_shape_ = roof_shape(shape_, unique_experts_);
}

// Every set has its own experts (until they run out) in the same pattern of repeats, so that all
// launches touch the same number of bytes.
int64_t DataSet::expert_of(int64_t copy, int64_t unique_index) const {
  const int64_t first{unique_ids_[static_cast<size_t>(unique_index)]};
  return (first + copy * unique_experts_) % shape_.n_experts;
}

void DataSet::upload_plane(const WeightSource& weights, Plane plane, Progress* progress) {
  const int64_t n_sets = copies_.of(plane == kDown);
  const int64_t n_slabs = n_sets * unique_experts_;
  const size_t bytes = slab_bytes(shape_, plane);
  const Memory staging = session_.host_memory(bytes);
  Memory v1 = session_.device_memory(static_cast<size_t>(n_slabs) * bytes);
  for (int64_t i = 0; i < n_slabs; ++i) {
    progress->show("weights: plane " + std::to_string(plane + 1) + " of 3, slab " +
                   std::to_string(i + 1) + " of " + std::to_string(n_slabs));
    const int64_t copy = i / unique_experts_;
    weights.fill(plane, copy, expert_of(copy, i % unique_experts_),
                 {staging.as<std::byte>(), bytes});
    session_.copy(v1.as<std::byte>() + static_cast<size_t>(i) * bytes, staging.as(), bytes);
    session_.synchronize();
  }

  memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
  repack.rows = plane_rows(shape_, plane);
  repack.columns = plane_columns(shape_, plane);
  repack.n_experts = n_slabs;
  uint64_t v2_bytes = 0;
  check(memra_bank_bytes(MEMRA_NVFP4_V2, repack.rows, repack.columns, n_slabs, &v2_stride_[plane],
                         &v2_bytes),
        "memra_bank_bytes");
  v2_[plane] = session_.device_memory(v2_bytes);
  const Memory report = session_.device_memory(sizeof(memra_weight_report));
  repack.src = v1.as();
  repack.src_stride = bytes;
  repack.dst = v2_[plane].as();
  repack.dst_stride = v2_stride_[plane];
  repack.report = report.as<memra_weight_report>();
  check(memra_repack_v2(session_.engine(), &repack, session_.stream()), "memra_repack_v2");
  invalid_scales_ += session_.download<memra_weight_report>(report).front().invalid_scales;
  if (plane != kDown) v1_[plane] = std::move(v1);
}

void DataSet::upload_tables(const WeightSource& weights) {
  const size_t n_pairs = static_cast<size_t>(shape_.n_pairs());
  const size_t n_sets = static_cast<size_t>(std::max(copies_.gate_up, copies_.down));
  const size_t roof_pairs = static_cast<size_t>(roof_shape_.n_pairs());
  const size_t n_entries = n_sets * kPlanes * n_pairs;
  std::vector<const void*> v1(n_entries), v2(n_entries), roof(n_sets * kPlanes * roof_pairs);
  std::vector<float> scales(n_entries);

  Lcg router(kRouterSeed);
  std::vector<float> topk_weights(n_pairs);
  for (float& weight : topk_weights)
    weight = (0.25F + router.unit()) / static_cast<float>(shape_.top_k);

  for (size_t set = 0; set < n_sets; ++set) {
    for (const Plane plane : {kGate, kUp, kDown}) {
      // The stage with fewer sets has no entries in the others: NULL is a skipped pair.
      if (static_cast<int64_t>(set) >= copies_.of(plane == kDown)) continue;
      for (size_t pair = 0; pair < n_pairs; ++pair) {
        const size_t unique = static_cast<size_t>(pair_unique_[pair]);
        const size_t slab = set * static_cast<size_t>(unique_experts_) + unique;
        const size_t entry = (set * kPlanes + plane) * n_pairs + pair;
        v2[entry] = v2_[plane].as<std::byte>() + slab * v2_stride_[plane];
        if (plane != kDown) {
          v1[entry] = v1_[plane].as<std::byte>() + slab * slab_bytes(shape_, plane);
        }
        roof[(set * kPlanes + plane) * roof_pairs + unique] = v2[entry];
        scales[entry] = weights.scale(
            plane, expert_of(static_cast<int64_t>(set), static_cast<int64_t>(unique)));
        if (plane == kDown) scales[entry] *= topk_weights[pair];
      }
    }
  }
  v1_ptrs_ = session_.upload(v1);
  v2_ptrs_ = session_.upload(v2);
  roof_ptrs_ = session_.upload(roof);
  scales_ = session_.upload(scales);
}

void DataSet::make_inputs() {
  const int64_t n_pairs = shape_.n_pairs();
  Lcg lcg(kInputSeed);
  std::vector<float> x(static_cast<size_t>(shape_.tokens * shape_.hidden_size));
  for (float& value : x)
    value = 2.0F * lcg.unit() - 1.0F;
  const Memory device_x = session_.upload(x);
  input_ = make_quantized(session_, shape_.tokens, shape_.hidden_size);
  down_input_ = make_quantized(session_, n_pairs, shape_.intermediate_size);
  gate_up_out_ = session_.device_memory(static_cast<size_t>(n_pairs * shape_.intermediate_size) *
                                        sizeof(float));
  y_ = session_.device_memory(x.size() * sizeof(float));
  quantize(session_, device_x, MEMRA_F32, shape_.tokens, shape_.hidden_size, input_);
  session_.synchronize();
}

void DataSet::requantize() const {
  quantize(session_, gate_up_out_, MEMRA_F32, shape_.n_pairs(), shape_.intermediate_size,
           down_input_);
}

}  // namespace memra::bench
