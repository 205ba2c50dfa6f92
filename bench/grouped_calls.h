// Calls of a layer with many tokens, and of the stages that they consist of.
#pragma once

#include <cstdint>
#include <vector>

#include "grouped_banks.h"

namespace memra::bench {

struct GroupedCall {
  memra_path path = MEMRA_PATH_GROUPED;
  bool tables = false;  // the bank as tables of the call, through the first bank's layer
};

// bf16 in and out, experts by hashed_experts(). Calls rotate over the banks and, where that is too
// little to come from memory, over sets of ids.
class GroupedCalls {
 public:
  GroupedCalls(const GroupedBanks& banks, int64_t tokens, double skew);

  const GroupedBanks& banks() const { return banks_; }
  const Shape& shape() const { return shape_; }  // with the tokens of a call
  int64_t count() const { return count_; }
  // Experts with tokens, on average, and the weight bytes that a call has to read.
  double mean_active() const;
  double bytes() const;
  // Of the three products.
  double flops() const;

  // Of the first banks().count() calls.
  const std::vector<int32_t>& ids() const { return ids_.front(); }
  const int32_t* device_ids() const { return device_ids_.as<const int32_t>(); }
  const std::vector<uint16_t>& x() const { return x_values_; }
  const Memory& device_x() const { return x_; }
  const std::vector<float>& topk_weights() const { return weight_values_; }

  void launch(int64_t call, const GroupedCall& options) const;
  // MEMRA_GROUPED_* of calls below banks().count(), which share the workspace and what is in it.
  void launch_stages(int64_t call, uint32_t stages) const;
  // Outputs of one call by the grouped path in f32, [tokens, hidden_size].
  std::vector<float> output(int64_t call) const;

 private:
  memra_moe_args args(int64_t call, const GroupedCall& options) const;

  const GroupedBanks& banks_;
  Shape shape_;
  int64_t count_ = 0;
  std::vector<std::vector<int32_t>> ids_;  // of each round over the banks
  std::vector<uint16_t> x_values_;
  std::vector<float> weight_values_;
  Memory x_, y_, device_ids_, weights_, workspace_;
};

}  // namespace memra::bench
