// A whole MoE layer on synthetic weights.
#pragma once

#include <cstdint>
#include <memory>

#include "session.h"
#include "shape.h"
#include "weights.h"

namespace memra::bench {

struct LayerDeleter {
  void operator()(memra_moe_layer* layer) const { memra_moe_layer_destroy(layer); }
};

// Experts of a bank that nobody gave a number of: a model's own on a GPU; on the CPU, where banks
// of hundreds take longer to make than to measure, 16 at most.
int64_t usual_experts(const Shape& shape, bool on_cpu);

// Which part of a model's layer a rank holds, and how. Counts of 0: all from the begin on. A part
// of the intermediate size needs V2.
struct LayerPart {
  memra_format format = MEMRA_NVFP4_V2;
  bool zero_banks = false;  // all bytes 0
  int64_t intermediate_begin = 0, intermediate_count = 0;
  int64_t expert_begin = 0, expert_count = 0;
};

class LayerFixture {
 public:
  // Banks of the part's experts, each slab in memory of its own, and a layer for at most
  // shape.tokens. The shape is that of the whole model.
  LayerFixture(const Session& session, const Shape& shape, const Activation& activation,
               const LayerPart& part = {});

  // Memory that the banks take.
  static double bank_bytes(const Shape& shape);

  const Session& session() const { return session_; }
  const Shape& shape() const { return shape_; }
  // What this rank holds of it: its intermediate size and number of experts.
  const Shape& local_shape() const { return local_shape_; }
  const LayerPart& part() const { return part_; }
  const Activation& activation() const { return activation_; }
  memra_format format() const { return part_.format; }
  memra_moe_layer* layer() const { return layer_.get(); }
  const memra_moe_layer_properties& properties() const { return properties_; }
  // What AUTO runs for so many tokens; NULL where the library does not list it.
  const memra_rows_plan* plan(int64_t tokens) const;

  // Experts are the part's own, from 0 on.
  const void* slab(Plane plane, int64_t expert) const { return slab_bytes_at(plane, expert); }
  float scale(Plane plane, int64_t expert) const {
    return weights_->scale(plane, part_.expert_begin + expert);
  }

 private:
  std::byte* slab_bytes_at(Plane plane, int64_t expert) const {
    return banks_[plane].as<std::byte>() + static_cast<uint64_t>(expert) * strides_[plane];
  }
  void fill_bank(Plane plane);
  memra_slice slice(Plane plane) const;
  void create_layer();

  const Session& session_;
  Shape shape_;
  Shape local_shape_;
  Activation activation_;
  LayerPart part_;
  std::unique_ptr<WeightSource> weights_;
  uint64_t strides_[kPlanes] = {};
  Memory banks_[kPlanes];
  std::unique_ptr<memra_moe_layer, LayerDeleter> layer_;
  memra_moe_layer_properties properties_ = {};
};

}  // namespace memra::bench
