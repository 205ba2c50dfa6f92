// Rules 4, 7 and 8: the gate and up values, exp, and the activation functions.
#pragma once

#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

enum class Activation : std::int32_t {
  kSwiglu = 0,
  kSwigluPreclamp = 1,
  kSwigluPostclamp = 2,
  kSwigluOai = 3,
};

struct ActivationParams {
  float limit;  // > 0; every form but kSwiglu
  float alpha;  // kSwigluOai alone
};

// Rule 8, within 1.0104 ulp over every float with a normal result (0.751 over the subnormal ones).
// The two limits are clamps of x, for at -104 and at 89 the sequence gives 0 and Inf: the same bits
// as a choice at the end, and nothing that keeps a loop from vectorising. A NaN reaches the end as
// one: the exponent from its bits is meaningless, but a product with a NaN is a NaN, not a
// canonical one.
MEMRA_HD float exp_f32(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float t = fma(x, 1.44269504f, 0x1.8p23f);
  const float n = sub(t, 0x1.8p23f);
  float r = fma(n, -0.693359375f, x);
  r = fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  const float y = add(fma(p, mul(r, r), r), 1.0f);
  // Two factors, so that subnormal results round once and i = 128 does not overflow early.
  const std::int32_t i = static_cast<std::int32_t>(float_bits(t) - 0x4B400000u);
  const std::int32_t half = i >> 1;
  const float scale0 = bits_float((static_cast<std::uint32_t>(half) + 127u) << 23);
  const float scale1 =
      bits_float((static_cast<std::uint32_t>(i) - static_cast<std::uint32_t>(half) + 127u) << 23);
  return mul(mul(y, scale0), scale1);
}

MEMRA_HD float sigmoid(float z) {
  return div(1.0f, add(1.0f, exp_f32(-z)));
}
MEMRA_HD float silu(float g) {
  return mul(g, sigmoid(g));
}

// Comparisons, not min and max: a NaN passes.
MEMRA_HD float clamp_above(float value, float limit) {
  return value > limit ? limit : value;
}
MEMRA_HD float clamp_both(float value, float limit) {
  return value < -limit ? -limit : (value > limit ? limit : value);
}

// Rule 4.
MEMRA_HD float plane_value(float dot, float scale, bool has_bias, float bias) {
  return has_bias ? fma(dot, scale, bias) : mul(dot, scale);
}

// Rule 7. The result is canonical (rule 9).
template <Activation kActivation>
MEMRA_HD float activate(float g, float u, [[maybe_unused]] ActivationParams params) {
  if constexpr (kActivation == Activation::kSwiglu) {
    return canon(mul(silu(g), u));
  } else if constexpr (kActivation == Activation::kSwigluPreclamp) {
    g = clamp_above(g, params.limit);
    return canon(mul(silu(g), clamp_both(u, params.limit)));
  } else if constexpr (kActivation == Activation::kSwigluPostclamp) {
    return canon(mul(clamp_above(silu(g), params.limit), clamp_both(u, params.limit)));
  } else {
    static_assert(kActivation == Activation::kSwigluOai);
    g = clamp_above(g, params.limit);
    u = clamp_both(u, params.limit);
    return canon(mul(mul(add(u, 1.0f), g), sigmoid(mul(params.alpha, g))));
  }
}

// The same, chosen at run time. A value outside the enum, which layer creation refuses, gives NaN.
MEMRA_HD float activate(Activation activation, float g, float u, ActivationParams params) {
  switch (activation) {
    case Activation::kSwiglu:
      return activate<Activation::kSwiglu>(g, u, params);
    case Activation::kSwigluPreclamp:
      return activate<Activation::kSwigluPreclamp>(g, u, params);
    case Activation::kSwigluPostclamp:
      return activate<Activation::kSwigluPostclamp>(g, u, params);
    case Activation::kSwigluOai:
      return activate<Activation::kSwigluOai>(g, u, params);
  }
  return bits_float(kCanonicalNan);
}

}  // namespace memra::numerics
