// Published dimensions of MoE models, for --model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shape.h"

namespace memra::bench {

struct ModelShape {
  std::string_view name;
  int64_t hidden_size;
  int64_t intermediate_size;  // of one routed expert
  int64_t n_experts;
  int64_t top_k;
  memra_activation activation;
  float limit;              // 0 where the activation has none
  float alpha;              // 0 where the activation has none
  std::string_view source;  // file of the model's repository on Hugging Face
  std::string_view note;

  Shape shape() const { return {hidden_size, intermediate_size, n_experts, top_k, 1}; }
  // Limit and alpha that the model does not have keep their defaults, which it does not use.
  Activation activation_options() const;
};

std::span<const ModelShape> model_shapes();

// Case does not matter. NULL if there is no such model.
const ModelShape* find_model(std::string_view name);

}  // namespace memra::bench
