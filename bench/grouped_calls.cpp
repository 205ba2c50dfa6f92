#include "grouped_calls.h"

#include <algorithm>
#include <cmath>

#include "inputs.h"
#include "routing.h"

namespace memra::bench {
namespace {

// What goes by before a slab is read again must not be in a GPU's cache.
constexpr double kMinRepeatBytes = 300e6;
constexpr double kMaxRounds = 16;

}  // namespace

GroupedCalls::GroupedCalls(const GroupedBanks& banks, int64_t tokens, double skew)
    : banks_(banks), shape_(banks.shape()) {
  shape_.tokens = tokens;
  ids_ = {hashed_experts(shape_, skew)};
  const Session& session = banks.session();
  if (!session.on_cpu()) {
    const double rotation = bytes() * static_cast<double>(banks.count());
    const double rounds = std::min(std::ceil(kMinRepeatBytes / rotation), kMaxRounds);
    for (int64_t round = 1; round < static_cast<int64_t>(rounds); ++round)
      ids_.push_back(hashed_experts(shape_, skew, round * shape_.n_pairs()));
  }
  count_ = static_cast<int64_t>(ids_.size()) * banks.count();

  std::vector<int32_t> all_ids;
  for (const std::vector<int32_t>& ids : ids_)
    all_ids.insert(all_ids.end(), ids.begin(), ids.end());
  device_ids_ = session.upload(all_ids);
  weight_values_ = random_router_weights(shape_);
  weights_ = session.upload(weight_values_);
  x_values_ = random_bf16(tokens * shape_.hidden_size);
  x_ = session.upload(x_values_);
  y_ = session.device_memory(x_.bytes());
  uint64_t bytes = 0;
  check(memra_moe_workspace_size(banks.fixture(0).layer(), tokens, &bytes),
        "memra_moe_workspace_size");
  workspace_ = session.device_memory(bytes);
}

double GroupedCalls::mean_active() const {
  double sum = 0;
  for (const std::vector<int32_t>& ids : ids_)
    sum += static_cast<double>(distinct(ids).size());
  return sum / static_cast<double>(ids_.size());
}

double GroupedCalls::bytes() const {
  double slabs = 0;
  for (const Plane plane : {kGate, kUp, kDown})
    slabs += static_cast<double>(slab_bytes(shape_, plane));
  return mean_active() * slabs;
}

double GroupedCalls::flops() const {
  return 2.0 * kPlanes * static_cast<double>(shape_.n_pairs()) *
         static_cast<double>(shape_.hidden_size) * static_cast<double>(shape_.intermediate_size);
}

memra_moe_args GroupedCalls::args(int64_t call, const GroupedCall& options) const {
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  args.tokens = shape_.tokens;
  args.x = x_.as();
  args.y = y_.as();
  args.x_dtype = MEMRA_BF16;
  args.y_dtype = MEMRA_BF16;
  args.topk_ids = device_ids() + call / banks_.count() * shape_.n_pairs();
  args.topk_weights = weights_.as<const float>();
  args.workspace = workspace_.as();
  args.workspace_bytes = workspace_.bytes();
  args.path = options.path;
  if (options.tables) {
    args.expert_ptrs = banks_.ptrs(call % banks_.count());
    args.expert_scales = banks_.scales();
  }
  return args;
}

void GroupedCalls::launch(int64_t call, const GroupedCall& options) const {
  const int64_t bank = options.tables ? 0 : call % banks_.count();
  const memra_moe_args call_args = args(call, options);
  check(memra_moe(banks_.fixture(bank).layer(), &call_args, banks_.session().stream()),
        "memra_moe");
}

void GroupedCalls::launch_stages(int64_t call, uint32_t stages) const {
  const memra_moe_args call_args = args(call, {});
  check(memra_moe_grouped_probe(banks_.fixture(call).layer(), &call_args, stages,
                                banks_.session().stream()),
        "memra_moe_grouped_probe");
}

std::vector<float> GroupedCalls::output(int64_t call) const {
  const Session& session = banks_.session();
  const Memory y = session.device_memory(2 * y_.bytes());
  session.fill(y, 0xFF);
  memra_moe_args call_args = args(call, {});
  call_args.y = y.as();
  call_args.y_dtype = MEMRA_F32;
  check(memra_moe(banks_.fixture(call % banks_.count()).layer(), &call_args, session.stream()),
        "memra_moe");
  return session.download<float>(y);
}

}  // namespace memra::bench
