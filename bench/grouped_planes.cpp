#include "grouped_planes.h"

#include "inputs.h"

namespace memra::bench {
namespace {

constexpr uint32_t kActivationSeed = 24;

}  // namespace

GroupedPlanes::GroupedPlanes(const GroupedCalls& calls) : calls_(calls) {
  const GroupedBanks& banks = calls.banks();
  const Session& session = banks.session();
  const Shape& shape = calls.shape();
  const auto n_pairs = static_cast<size_t>(shape.n_pairs());
  const auto n_experts = static_cast<size_t>(shape.n_experts);
  n_active_ = session.device_memory(sizeof(int32_t));
  active_ = session.device_memory(n_experts * sizeof(int32_t));
  offsets_ = session.device_memory((n_experts + 1) * sizeof(int32_t));
  order_ = session.device_memory(n_pairs * sizeof(int32_t));
  uint64_t bytes = 0;
  check(memra_moe_route_workspace_size(session.engine(), shape.tokens, shape.top_k, shape.n_experts,
                                       &bytes),
        "memra_moe_route_workspace_size");
  const Memory workspace = session.device_memory(bytes);
  memra_moe_route_args route = MEMRA_MOE_ROUTE_ARGS_INIT;
  route.tokens = shape.tokens;
  route.top_k = shape.top_k;
  route.n_experts = shape.n_experts;
  route.topk_ids = calls.device_ids();
  route.n_active = n_active_.as<int32_t>();
  route.active_experts = active_.as<int32_t>();
  route.offsets = offsets_.as<int32_t>();
  route.pair_order = order_.as<int32_t>();
  route.workspace = workspace.as();
  route.workspace_bytes = workspace.bytes();
  check(memra_moe_route(session.engine(), &route, session.stream()), "memra_moe_route");
  order_values_ = session.download<int32_t>(order_);

  // Slot by slot, so that the host makes those of one slot only.
  activation_values_ = random_floats(shape.tokens * shape.intermediate_size, kActivationSeed);
  const size_t slot_bytes = activation_values_.size() * sizeof(float);
  activations_ = session.device_memory(static_cast<size_t>(shape.top_k) * slot_bytes);
  for (int64_t slot = 0; slot < shape.top_k; ++slot) {
    session.copy(activations_.as<std::byte>() + static_cast<size_t>(slot) * slot_bytes,
                 activation_values_.data(), slot_bytes);
  }
  const auto hidden = static_cast<size_t>(shape.hidden_size);
  const auto intermediate = static_cast<size_t>(shape.intermediate_size);
  x_z_ = session.device_memory(n_pairs * hidden * sizeof(uint16_t));
  x_zs_ = session.device_memory(n_pairs * sizeof(float));
  activation_z_ = session.device_memory(n_pairs * intermediate * sizeof(uint16_t));
  activation_zs_ = session.device_memory(n_pairs * sizeof(float));
  check(memra_moe_grouped_gemm_workspace_size(session.engine(), shape.n_pairs(), shape.n_experts,
                                              &bytes),
        "memra_moe_grouped_gemm_workspace_size");
  if (bytes != 0) workspace_ = session.device_memory(bytes);
  for (const Plane plane : {kGate, kUp, kDown}) {
    const auto outputs = static_cast<size_t>(plane_rows(shape, plane));
    outputs_[plane] = session.device_memory(n_pairs * outputs * sizeof(float));
    session.fill(outputs_[plane], 0xFF);
  }
  launch_gathers();
  session.synchronize();
}

void GroupedPlanes::gather(const memra_moe_gather_f16_args& inputs, const Memory& z,
                           const Memory& zs) const {
  const Session& session = calls_.banks().session();
  memra_moe_gather_f16_args args = inputs;
  args.rows = calls_.shape().n_pairs();
  args.z = z.as();
  args.zs = zs.as<float>();
  check(memra_moe_gather_f16(session.engine(), &args, session.stream()), "memra_moe_gather_f16");
}

void GroupedPlanes::launch_gathers() const {
  const Shape& shape = calls_.shape();
  memra_moe_gather_f16_args x = MEMRA_MOE_GATHER_F16_ARGS_INIT;
  x.x_dtype = MEMRA_BF16;
  x.x = calls_.device_x().as();
  x.source_rows = shape.tokens;
  x.columns = shape.hidden_size;
  x.index = order_.as<const int32_t>();
  x.top_k = shape.top_k;
  gather(x, x_z_, x_zs_);
  memra_moe_gather_f16_args activations = MEMRA_MOE_GATHER_F16_ARGS_INIT;
  activations.x_dtype = MEMRA_F32;
  activations.x = activations_.as();
  activations.source_rows = shape.n_pairs();
  activations.columns = shape.intermediate_size;
  gather(activations, activation_z_, activation_zs_);
}

void GroupedPlanes::launch_product(int64_t bank, Plane plane) const {
  const GroupedBanks& banks = calls_.banks();
  const Shape& shape = calls_.shape();
  memra_moe_grouped_gemm_args args = MEMRA_MOE_GROUPED_GEMM_ARGS_INIT;
  args.rows = shape.n_pairs();
  args.columns = plane_columns(shape, plane);
  args.outputs = plane_rows(shape, plane);
  args.n_experts = shape.n_experts;
  args.format = banks.format();
  args.plane = plane;
  args.ptrs = banks.ptrs(bank);
  args.n_active = n_active_.as<const int32_t>();
  args.active_experts = active_.as<const int32_t>();
  args.offsets = offsets_.as<const int32_t>();
  args.z = (plane == kDown ? activation_z_ : x_z_).as();
  args.zs = (plane == kDown ? activation_zs_ : x_zs_).as<const float>();
  args.out = outputs_[plane].as<float>();
  args.scales = banks.scales();
  args.workspace = workspace_.as();
  args.workspace_bytes = workspace_.bytes();
  const Session& session = banks.session();
  check(memra_moe_grouped_gemm(session.engine(), &args, session.stream()),
        "memra_moe_grouped_gemm");
}

std::vector<float> GroupedPlanes::input(Plane plane, int64_t row) const {
  const Shape& shape = calls_.shape();
  std::vector<float> values;
  if (plane == kDown) {
    const int64_t begin = row % shape.tokens * shape.intermediate_size;
    const auto first = activation_values_.begin() + begin;
    values.assign(first, first + shape.intermediate_size);
    return values;
  }
  const int64_t token = order_values_[static_cast<size_t>(row)] / shape.top_k;
  for (int64_t i = 0; i < shape.hidden_size; ++i)
    values.push_back(bf16_value(calls_.x()[static_cast<size_t>(token * shape.hidden_size + i)]));
  return values;
}

std::vector<float> GroupedPlanes::output(Plane plane, int64_t row) const {
  const Session& session = calls_.banks().session();
  std::vector<float> values(static_cast<size_t>(plane_rows(calls_.shape(), plane)));
  const size_t bytes = values.size() * sizeof(float);
  session.copy(values.data(),
               outputs_[plane].as<const std::byte>() + static_cast<size_t>(row) * bytes, bytes);
  session.synchronize();
  return values;
}

}  // namespace memra::bench
