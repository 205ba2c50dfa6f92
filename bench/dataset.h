// What the launches read and write, on the device: slab sets to rotate over, their tables,
// quantised activations, outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "console.h"
#include "quantized.h"
#include "session.h"
#include "shape.h"
#include "weights.h"

namespace memra::bench {

// Slab sets of each stage. A set holds the slabs of the experts that one launch touches.
struct Copies {
  int64_t gate_up = 1;
  int64_t down = 1;

  int64_t of(bool is_down) const { return is_down ? down : gate_up; }
};

class DataSet {
 public:
  DataSet(const Session& session, const Shape& shape, const WeightSource& weights,
          const Copies& copies, Progress* progress);

  // Experts touched by a launch: pairs that share one count once.
  static int64_t count_unique_experts(const Shape& shape);

  const Shape& shape() const { return shape_; }
  const Copies& copies() const { return copies_; }
  int64_t unique_experts() const { return unique_experts_; }
  // Weight bytes that one launch of a stage has to read.
  double launch_bytes(bool is_down) const;
  // Scale codes that the repack found invalid (only real files have such).
  uint64_t invalid_scales() const { return invalid_scales_; }

  // Tables [3 * n_pairs] of a set.
  const void* const* v1_ptrs(int64_t copy) const { return table(v1_ptrs_, copy, shape_); }
  const void* const* v2_ptrs(int64_t copy) const { return table(v2_ptrs_, copy, shape_); }
  const float* scales(int64_t copy) const {
    return scales_.as<const float>() + copy * kPlanes * shape_.n_pairs();
  }
  // The table in which each slab of a set stands once, for a stage of the roof's shape.
  const void* const* roof_ptrs(int64_t copy) const { return table(roof_ptrs_, copy, roof_shape_); }
  const Shape& roof() const { return roof_shape_; }

  const Quantized& input() const { return input_; }
  const Quantized& down_input() const { return down_input_; }
  const Memory& gate_up_out() const { return gate_up_out_; }
  const Memory& y() const { return y_; }

  // Quantises what gate_up_out() holds as down's input.
  void requantize() const;

 private:
  static const void* const* table(const Memory& memory, int64_t copy, const Shape& shape) {
    return memory.as<const void* const>() + copy * kPlanes * shape.n_pairs();
  }
  void route();
  int64_t expert_of(int64_t copy, int64_t unique_index) const;
  void upload_plane(const WeightSource& weights, Plane plane, Progress* progress);
  void upload_tables(const WeightSource& weights);
  void make_inputs();

  const Session& session_;
  Shape shape_;
  Copies copies_;
  int64_t unique_experts_ = 0;
  uint64_t invalid_scales_ = 0;
  std::vector<int32_t> unique_ids_;   // expert of a unique index, in set 0
  std::vector<int64_t> pair_unique_;  // unique index of a pair
  Shape roof_shape_;
  uint64_t v2_stride_[kPlanes] = {};
  Memory v1_[kPlanes];  // down's is dropped once it is repacked
  Memory v2_[kPlanes];
  Memory v1_ptrs_, v2_ptrs_, roof_ptrs_, scales_;
  Quantized input_, down_input_;
  Memory gate_up_out_, y_;
};

}  // namespace memra::bench
