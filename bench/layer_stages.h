// The stages of a layer's calls one by one, and the launches that read no more than their bytes.
#pragma once

#include <cstdint>

#include "arms.h"
#include "layer_calls.h"
#include "quantized.h"

namespace memra::bench {

// The slabs of every call, each once.
class LayerRoof {
 public:
  explicit LayerRoof(const LayerCalls& calls);

  // `dependent`: a launch prefetches before the one before it has ended.
  void launch(int64_t call, Stage stage, bool dependent) const;

 private:
  const LayerCalls& calls_;
  std::vector<Shape> shapes_;    // of each call's launches
  std::vector<int64_t> begins_;  // of each call's table
  Memory ptrs_;
  Memory scratch_;  // stands for activations and scales, which nobody reads
  Memory out_;
};

// The stages on what the layer's calls read: gate/up of the quantised x, and down of what gate/up
// returns for the first call.
class LayerStages {
 public:
  explicit LayerStages(const LayerCalls& calls);

  void launch(int64_t call, Stage stage, const CallOptions& options) const;
  // f32 [n_pairs, intermediate_size] that gate/up returns for the first call, with another limit.
  std::vector<float> gate_up_output(const Activation& activation) const;
  // f32 [tokens, hidden_size] that down returns for the first call.
  std::vector<float> output() const;

 private:
  void launch_gate_up(int64_t call, const CallOptions& options, const Activation& activation) const;
  void launch_down(int64_t call, const CallOptions& options) const;

  const LayerCalls& calls_;
  Memory ptrs_, scales_, order_;
  Quantized input_, down_input_;
  Memory gate_up_out_, y_;
};

}  // namespace memra::bench
