// The stages of the rows path on a device: the tables of a problem's pairs, and each stage by
// itself or chained by hand.
#pragma once

#include <vector>

#include "conformance/device_problem.h"
#include "conformance/problems.h"

namespace memra::test {

class DeviceStages {
 public:
  // Keeps references to both.
  DeviceStages(const DeviceProblem& device, const Solved& solved);

  Engine& engine() const { return device_.engine(); }

  // x to q and d; poisons the outputs first, as all stages here do.
  void quantize_x() const;
  void gate_up(std::uint32_t variant) const;
  void quantize_act() const;
  void down(std::uint32_t variant) const;

  // Every variant that the header's rules allow for the formats, AUTO first.
  std::vector<std::uint32_t> gate_up_variants() const;
  std::vector<std::uint32_t> down_variants() const;

  // What gate_up(), quantize_act() and down() read, as the reference has it.
  void feed_gate_up() const;
  void feed_quantize_act() const;
  void feed_down() const;

  ::testing::AssertionResult check_x_q() const;
  ::testing::AssertionResult check_act() const;
  ::testing::AssertionResult check_act_q() const;
  ::testing::AssertionResult check_y() const;
  ::testing::AssertionResult inputs_intact() const;

  // Another table than the problem's, [3 * n_pairs] or [n_pairs].
  void replace_ptrs(const std::vector<const void*>& ptrs) { ptrs_.replace(bytes_of(ptrs)); }
  // Pointers into the problem's slabs and biases become their device addresses.
  void replace_tables(const reference::Tables& tables, const reference::MoeProblem& problem);
  void replace_order(const std::vector<std::int32_t>& order) { order_.replace(bytes_of(order)); }
  std::vector<const void*> ptrs() const { return ptrs_.buffer().download_values<const void*>(); }
  std::vector<float> act() const { return act_.download_values<float>(); }
  const Buffer& act_buffer() const { return act_; }
  const Buffer& y_buffer() const { return y_; }

  memra_rows_gate_up_args gate_up_args(std::uint32_t variant) const;
  memra_rows_down_args down_args(std::uint32_t variant) const;

 private:
  void quantize(const Buffer& x, memra_dtype dtype, std::int64_t stride, std::int64_t rows,
                std::int64_t columns, const Buffer& q, const Buffer& d) const;
  std::vector<std::uint32_t> variants_of(bool lane_major_possible) const;
  // q in the order that the variant reads.
  const Buffer* in_order(const Buffer& q, const Buffer& permuted, std::int64_t rows,
                         std::int64_t columns, std::uint32_t variant) const;
  void upload_tables();
  std::vector<std::int32_t> expert_order() const;
  ::testing::AssertionResult check_q(const Buffer& q, const Buffer& d,
                                     const reference::QuantizedRows& expected) const;

  const DeviceProblem& device_;
  const Solved& solved_;
  const reference::MoeProblem& problem_;
  std::int64_t n_pairs_;
  bool has_bias_ = false;
  Input x_, ptrs_, scales_, bias_, weights_, order_;
  Buffer q_, d_, q_permuted_, act_, act_q_, act_d_, act_q_permuted_, y_;
};

}  // namespace memra::test
