// Dimensions of a layer and of a call, and the activation.
#pragma once

#include <cstdint>

#include "memra.h"

namespace memra::bench {

struct Shape {
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 2048;
  int64_t n_experts = 64;
  int64_t top_k = 8;
  int64_t tokens = 1;

  int64_t n_pairs() const { return tokens * top_k; }
  bool operator==(const Shape&) const = default;
};

struct Activation {
  memra_activation kind = MEMRA_SWIGLU_PRECLAMP;
  float limit = 7.0F;
  float alpha = 1.702F;

  bool operator==(const Activation&) const = default;
};

// "swiglu", "preclamp", "postclamp" or "oai".
const char* activation_name(memra_activation kind);

// Whether the clamp limit takes part in the function.
inline bool is_clamped(memra_activation kind) {
  return kind != MEMRA_SWIGLU;
}

// The activation with its clamp, and as if it had none.
Activation with_clamp(const Activation& activation);
Activation without_clamp(const Activation& activation);

}  // namespace memra::bench
