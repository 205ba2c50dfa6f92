#include "reference/arithmetic.h"

#include <algorithm>
#include <array>
#include <limits>

#include "reference/floats.h"

namespace memra::reference {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

std::int32_t integer_dot(const std::int8_t* a, const std::int8_t* b) {
  std::int32_t sum = 0;
  for (int i = 0; i < 16; ++i)
    sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::span<const std::int8_t> QuantizedRows::q_row(std::int64_t row) const {
  return std::span(q).subspan(at(row * cols), at(cols));
}

std::span<const float> QuantizedRows::d_row(std::int64_t row) const {
  return std::span(d).subspan(at(row * cols / kGroup), at(cols / kGroup));
}

void quantize_group(std::span<const float> x, std::span<std::int8_t> q, float& d) {
  std::uint32_t largest = 0;
  for (const float value : x)
    largest = std::max(largest, bits_of(value) & 0x7FFFFFFFu);

  std::fill(q.begin(), q.end(), std::int8_t{0});
  if (largest >= 0x7F800000u) {
    d = canonical_nan();
    return;
  }
  if (largest < 0x04000000u) {
    d = 0.0f;
    return;
  }
  const float amax = from_bits(largest);
  const float inv = div(127.0f, amax);
  d = div(amax, 127.0f);
  for (std::size_t i = 0; i < x.size(); ++i) {
    q[i] = static_cast<std::int8_t>(std::nearbyint(mul(x[i], inv)));
  }
}

QuantizedRows quantize_q8(std::span<const float> x, std::int64_t rows, std::int64_t cols) {
  QuantizedRows result;
  result.rows = rows;
  result.cols = cols;
  result.q.resize(at(rows * cols));
  result.d.resize(at(rows * cols / kGroup));
  for (std::size_t g = 0; g < result.d.size(); ++g) {
    quantize_group(x.subspan(g * kGroup, kGroup), std::span(result.q).subspan(g * kGroup, kGroup),
                   result.d[g]);
  }
  return result;
}

float group_dot(const std::int8_t* doubled, float s0, float s1, const std::int8_t* q) {
  // |I| <= 16 * 12 * 127, exact as f32.
  const float i0 = static_cast<float>(integer_dot(doubled, q));
  const float i1 = static_cast<float>(integer_dot(doubled + 16, q + 16));
  float p = mul(s0, i0);
  p = fma(s1, i1, p);
  return p;
}

float row_dot(const std::int8_t* doubled, const float* scales, const std::int8_t* q, const float* d,
              std::int64_t cols) {
  std::array<float, kVirtualLanes> v{};  // +0
  for (std::int64_t g = 0; g < cols / kGroup; ++g) {
    const float p =
        group_dot(doubled + g * kGroup, scales[2 * g], scales[2 * g + 1], q + g * kGroup);
    float& acc = v[at(g % kVirtualLanes)];
    acc = fma(d[g], p, acc);
  }
  for (const std::size_t distance : {16u, 8u, 4u, 2u, 1u}) {
    std::array<float, kVirtualLanes> sum;
    for (std::size_t l = 0; l < v.size(); ++l)
      sum[l] = add(v[l], v[l ^ distance]);
    v = sum;
  }
  return mul(0.5f, v[0]);
}

float exp_f32(float x) {
  if (x < -104.0f) return 0.0f;
  if (x > 89.0f) return std::numeric_limits<float>::infinity();
  const float magic = 0x1.8p23f;
  const float t = fma(x, 1.44269504f, magic);
  const float n = t - magic;
  float r = fma(n, -0.693359375f, x);
  r = fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  float y = fma(p, mul(r, r), r);
  y = add(y, 1.0f);
  // For a NaN the integer means nothing and the products stay NaN.
  const std::int32_t i = static_cast<std::int32_t>(bits_of(t) - 0x4B400000u);
  const std::int32_t half = i >> 1;
  y = mul(y, std::ldexp(1.0f, half));
  y = mul(y, std::ldexp(1.0f, i - half));
  return y;
}

float sig(float z) {
  return div(1.0f, add(1.0f, exp_f32(-z)));
}

float silu(float g) {
  return mul(g, sig(g));
}

float activate(const ActivationParams& params, float g, float u) {
  const float limit = params.limit;
  const auto clamp_above = [limit](float v) { return v > limit ? limit : v; };
  const auto clamp_both = [limit](float v) {
    return v < -limit ? -limit : (v > limit ? limit : v);
  };
  switch (params.kind) {
    case Activation::kSwiglu:
      break;
    case Activation::kSwigluPreclamp:
      g = clamp_above(g);
      u = clamp_both(u);
      break;
    case Activation::kSwigluPostclamp:
      return mul(clamp_above(silu(g)), clamp_both(u));
    case Activation::kSwigluOai:
      g = clamp_above(g);
      u = clamp_both(u);
      return mul(mul(add(u, 1.0f), g), sig(mul(params.alpha, g)));
  }
  return mul(silu(g), u);
}

}  // namespace memra::reference
