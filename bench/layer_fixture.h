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

class LayerFixture {
 public:
  // Banks of all experts, each slab in memory of its own, and a layer for at most shape.tokens.
  LayerFixture(const Session& session, const Shape& shape, const Activation& activation,
               memra_format format = MEMRA_NVFP4_V2);

  // Memory that the banks take.
  static double bank_bytes(const Shape& shape);

  const Session& session() const { return session_; }
  const Shape& shape() const { return shape_; }
  const Activation& activation() const { return activation_; }
  memra_format format() const { return format_; }
  memra_moe_layer* layer() const { return layer_.get(); }
  const memra_moe_layer_properties& properties() const { return properties_; }
  // What AUTO runs for so many tokens; NULL where the library does not list it.
  const memra_rows_plan* plan(int64_t tokens) const;

  const void* slab(Plane plane, int64_t expert) const { return slab_bytes_at(plane, expert); }
  float scale(Plane plane, int64_t expert) const { return weights_->scale(plane, expert); }

 private:
  std::byte* slab_bytes_at(Plane plane, int64_t expert) const {
    return banks_[plane].as<std::byte>() + static_cast<uint64_t>(expert) * strides_[plane];
  }
  void fill_bank(Plane plane);
  void create_layer();

  const Session& session_;
  Shape shape_;
  Activation activation_;
  memra_format format_;
  std::unique_ptr<WeightSource> weights_;
  uint64_t strides_[kPlanes] = {};
  Memory banks_[kPlanes];
  std::unique_ptr<memra_moe_layer, LayerDeleter> layer_;
  memra_moe_layer_properties properties_ = {};
};

}  // namespace memra::bench
