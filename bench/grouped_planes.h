// The three products of a call as stage calls, a plane each, with f32 outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "grouped_calls.h"

namespace memra::bench {

// Routed and gathered as the calls' first set of ids. Down works on random activations.
class GroupedPlanes {
 public:
  explicit GroupedPlanes(const GroupedCalls& calls);

  // x by pairs, and the activations of down, to f16.
  void launch_gathers() const;
  void launch_product(int64_t bank, Plane plane) const;

  // Pairs in the order of the rows.
  const std::vector<int32_t>& order() const { return order_values_; }
  // What a product reads and returns in a row, in f32.
  std::vector<float> input(Plane plane, int64_t row) const;
  std::vector<float> output(Plane plane, int64_t row) const;

 private:
  void gather(const memra_moe_gather_f16_args& inputs, const Memory& z, const Memory& zs) const;

  const GroupedCalls& calls_;
  std::vector<int32_t> order_values_;
  std::vector<float> activation_values_;  // of a token: those of its pairs are alike
  Memory n_active_, active_, offsets_, order_;
  Memory activations_;
  Memory x_z_, x_zs_, activation_z_, activation_zs_;
  Memory outputs_[kPlanes];
  Memory workspace_;  // of one product at a time
};

}  // namespace memra::bench
