// Calls of a layer with routed tokens, and their roof.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layer_fixture.h"
#include "routing.h"

namespace memra::bench {

// What a call says besides its data.
struct CallOptions {
  uint32_t variant = MEMRA_ROWS_AUTO;
  bool inputs_stable = false;
};

using Bf16Bits = std::vector<uint16_t>;

// Throws Failure where any output is not finite, or most of them are zero.
void require_sound(const Bf16Bits& y);

// bf16 in and out. Calls rotate over count() sets of expert ids.
class LayerCalls {
 public:
  LayerCalls(const LayerFixture& fixture, int64_t tokens);

  const LayerFixture& fixture() const { return fixture_; }
  const Shape& shape() const { return shape_; }  // with the tokens of a call
  const Routing& routing() const { return routing_; }
  int64_t count() const { return routing_.n_calls(); }
  // Weight bytes that a call has to read, on average: each of its experts once.
  double gate_up_bytes() const;
  double down_bytes() const;
  double bytes() const { return gate_up_bytes() + down_bytes(); }

  const Memory& x() const { return x_; }
  const std::vector<float>& topk_weights() const { return weight_values_; }

  void launch(int64_t call, const CallOptions& options) const;
  // Outputs of one launch, on outputs that were NaN before.
  Bf16Bits output(int64_t call, const CallOptions& options) const;
  // require_sound for every call.
  void check_outputs() const;

 private:
  const LayerFixture& fixture_;
  Shape shape_;
  Routing routing_;
  std::vector<float> weight_values_;
  Memory x_, y_, ids_, weights_, workspace_;
};

}  // namespace memra::bench
