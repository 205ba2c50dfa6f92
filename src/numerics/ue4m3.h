// UE4M3 block scales: e = bits 6..3, m = bits 2..0; e ? (1 + m/8) * 2^(e-7) : m * 2^-9.
#pragma once

#include <array>
#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

inline constexpr std::uint32_t kUe4m3MaxCode = 0x7Eu;
inline constexpr float kUe4m3Max = 448.0f;

// The NaN code and every code with bit 7 set are invalid.
MEMRA_HD constexpr bool ue4m3_is_legal(std::uint32_t code) {
  return code <= kUe4m3MaxCode;
}

// For legal codes only, in two instructions and exact: the exponent and mantissa fields land in
// those of a float; the factor corrects the bias and lifts code subnormals out of f32 subnormals.
MEMRA_HD constexpr float ue4m3_decode_legal(std::uint32_t code) {
  return bits_float(code << 20) * 0x1p120f;
}

// Any byte; invalid codes decode to +0.
MEMRA_HD constexpr float ue4m3_decode(std::uint32_t code) {
  return ue4m3_decode_legal(ue4m3_is_legal(code) ? code : 0u);
}

// What repack stores for a code byte.
MEMRA_HD constexpr std::uint32_t ue4m3_sanitize(std::uint32_t code) {
  return ue4m3_is_legal(code) ? code : 0u;
}

// Nearest legal code, ties to the even code; above 448 saturates; negative and NaN give 0.
MEMRA_HD std::uint32_t ue4m3_nearest(float value) {
  if (!(value > 0.0f)) return 0u;
  if (value >= kUe4m3Max) return kUe4m3MaxCode;
  if (value < 0x1p-6f) {
    // The spacing of floats at 2^14 is that of the code subnormals, 2^-9: the addition rounds.
    return float_bits(add(value, 0x1p14f)) - float_bits(0x1p14f);
  }
  const std::uint32_t bits = float_bits(value);
  return ((bits + 0x7FFFFu + ((bits >> 20) & 1u)) >> 20) - (120u << 3);
}

// The decoding of all 256 bytes, written from the format's definition and not from the shortcut
// above.
constexpr std::array<float, 256> make_ue4m3_table() {
  std::array<float, 256> table{};
  for (std::uint32_t code = 0; code <= kUe4m3MaxCode; ++code) {
    const std::uint32_t e = code >> 3;
    const std::uint32_t m = code & 7u;
    float value = e != 0 ? 1.0f + static_cast<float>(m) / 8.0f : static_cast<float>(m) / 8.0f;
    for (std::uint32_t i = e != 0 ? e : 1u; i < 7u; ++i)
      value *= 0.5f;
    for (std::uint32_t i = 7u; i < e; ++i)
      value *= 2.0f;
    table[code] = value;
  }
  return table;
}

// Host only.
inline constexpr std::array<float, 256> kUe4m3Table = make_ue4m3_table();

}  // namespace memra::numerics
