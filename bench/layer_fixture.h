// A whole MoE layer on synthetic weights, and batches of tokens to run through it.
#pragma once

#include <cstdint>
#include <memory>

#include "session.h"
#include "shape.h"

namespace memra::bench {

struct LayerDeleter {
  void operator()(memra_moe_layer* layer) const { memra_moe_layer_destroy(layer); }
};

class LayerFixture {
 public:
  // Banks of all n_experts in V2. `batches` sets of routed tokens; calls rotate over them.
  LayerFixture(const Session& session, const Shape& shape, const Activation& activation,
               int batches);

  int batches() const { return batches_; }
  // Weight bytes that a launch has to read, on average over the batches.
  double launch_bytes() const { return launch_bytes_; }
  void launch(int batch) const;

 private:
  void upload_banks();
  void create_layer(const Activation& activation);
  void make_batches();

  const Session& session_;
  Shape shape_;
  int batches_;
  double launch_bytes_ = 0;
  Memory banks_[3];
  std::unique_ptr<memra_moe_layer, LayerDeleter> layer_;
  Memory x_, y_, ids_, weights_, workspace_;
};

}  // namespace memra::bench
