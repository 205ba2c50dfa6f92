// What calls of a layer are given besides weights.
#pragma once

#include <cstdint>
#include <vector>

#include "shape.h"

namespace memra::bench {

// In [-1, 1).
std::vector<float> random_floats(int64_t count, uint32_t seed);
std::vector<uint16_t> random_bf16(int64_t count);
// The exact value.
float bf16_value(uint16_t bits);
// Towards zero; values below the normal range become zero. |value| < 2.
uint16_t f16_bits(float value);

// Of a call's pairs, around 1 / top_k.
std::vector<float> random_router_weights(const Shape& shape);

}  // namespace memra::bench
