// Rules 1 to 3, 7 and 8 of design section 4, one operation a line.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace memra::reference {

// The four single IEEE f32 operations of the contract, round to nearest even.
inline float add(float a, float b) {
  return a + b;
}
inline float mul(float a, float b) {
  return a * b;
}
inline float div(float a, float b) {
  return a / b;
}
inline float fma(float a, float b, float c) {
  return std::fma(a, b, c);
}

inline constexpr std::int64_t kGroup = 32;       // values that share one activation scale
inline constexpr std::int64_t kScaleGroup = 16;  // values that share one weight scale
inline constexpr std::int64_t kVirtualLanes = 32;

// Rule 1 over a matrix of rows.
struct QuantizedRows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::int8_t> q;  // [rows, cols]
  std::vector<float> d;        // [rows, cols / 32]

  std::span<const std::int8_t> q_row(std::int64_t row) const;
  std::span<const float> d_row(std::int64_t row) const;
};

// Rule 1, one group of 32 values.
void quantize_group(std::span<const float> x, std::span<std::int8_t> q, float& d);

// Rule 1, a dense f32 matrix.
QuantizedRows quantize_q8(std::span<const float> x, std::int64_t rows, std::int64_t cols);

// Rule 2: `doubled` and `q` hold 32 values, s0 and s1 govern the halves.
float group_dot(const std::int8_t* doubled, float s0, float s1, const std::int8_t* q);

// Rule 3: `doubled` and `q` hold `cols` values, `scales` cols / 16, `d` cols / 32.
float row_dot(const std::int8_t* doubled, const float* scales, const std::int8_t* q, const float* d,
              std::int64_t cols);

// Rule 8.
float exp_f32(float x);

// Rule 7.
enum class Activation { kSwiglu, kSwigluPreclamp, kSwigluPostclamp, kSwigluOai };

struct ActivationParams {
  Activation kind = Activation::kSwiglu;
  float limit = 7.0f;
  float alpha = 1.702f;
};

float sig(float z);
float silu(float g);
float activate(const ActivationParams& params, float g, float u);

}  // namespace memra::reference
