// f32, f16 and bf16 as bit patterns: widening, rounding and the canonical NaN (rule 9).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace memra::reference {

enum class DType { kF32, kF16, kBF16 };

inline constexpr std::uint32_t kCanonicalNanF32 = 0x7FC00000u;
inline constexpr std::uint16_t kCanonicalNanF16 = 0x7E00u;
inline constexpr std::uint16_t kCanonicalNanBF16 = 0x7FC0u;

inline std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline float canonical_nan() {
  return from_bits(kCanonicalNanF32);
}

// Every stored f32 passes through here.
inline float canonical(float x) {
  return x != x ? canonical_nan() : x;
}

// Exact.
float f16_to_f32(std::uint16_t bits);
float bf16_to_f32(std::uint16_t bits);

// Round to nearest, ties to even; subnormals kept, overflow to Inf, NaN canonical.
std::uint16_t f32_to_f16(float x);
std::uint16_t f32_to_bf16(float x);

std::int64_t dtype_bytes(DType dtype);

// One element of a raw buffer, by element index.
float load(std::span<const std::uint8_t> bytes, DType dtype, std::int64_t index);
void store(std::span<std::uint8_t> bytes, DType dtype, std::int64_t index, float value);

// Elements a buffer of `rows` rows needs; `stride` in elements, the last row ends at `cols`.
std::int64_t strided_elements(std::int64_t rows, std::int64_t cols, std::int64_t stride);

// A strided raw matrix as dense f32, and dense f32 as a dense raw matrix.
std::vector<float> widen(std::span<const std::uint8_t> bytes, DType dtype, std::int64_t rows,
                         std::int64_t cols, std::int64_t stride);
std::vector<std::uint8_t> narrow(std::span<const float> values, DType dtype);

}  // namespace memra::reference
