#include "inputs.h"

#include <bit>

#include "weights.h"

namespace memra::bench {
namespace {

constexpr uint32_t kInputSeed = 22;
constexpr uint32_t kRouterSeed = 23;

}  // namespace

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  Lcg lcg(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values)
    value = 2.0F * lcg.unit() - 1.0F;
  return values;
}

std::vector<uint16_t> random_bf16(int64_t count) {
  std::vector<uint16_t> values;
  values.reserve(static_cast<size_t>(count));
  for (const float value : random_floats(count, kInputSeed))
    values.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  return values;
}

float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t f16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  constexpr uint32_t kRebias = (127U - 15U) << 23;
  if (magnitude < kRebias + (1U << 23)) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | (magnitude - kRebias) >> 13);
}

std::vector<float> random_router_weights(const Shape& shape) {
  Lcg lcg(kRouterSeed);
  std::vector<float> weights(static_cast<size_t>(shape.n_pairs()));
  for (float& weight : weights)
    weight = (0.5F + lcg.unit()) / static_cast<float>(shape.top_k);
  return weights;
}

}  // namespace memra::bench
