// f16 and bf16 as bit patterns, to and from f32, and the element types of inputs and outputs.
#pragma once

#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

inline constexpr std::uint16_t kCanonicalNanF16 = 0x7E00u;
inline constexpr std::uint16_t kCanonicalNanBf16 = 0x7FC0u;

// Exact; a NaN becomes the canonical one.
MEMRA_HD float f16_to_f32(std::uint16_t half) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return canon(value);
#else
  // The exponent moves by integer arithmetic; a subnormal gets a leading one, which the subtraction
  // takes away again. No f32 subnormal occurs, and nothing depends on a branch.
  const std::uint32_t shifted = (half & 0x7FFFu) << 13;
  const bool subnormal = shifted < (1u << 23);
  const bool special = shifted >= (31u << 23);
  const std::uint32_t bias = subnormal ? 113u : special ? 255u - 31u : 127u - 15u;
  const float value = bits_float(shifted + (bias << 23)) - (subnormal ? 0x1p-14f : 0.0f);
  return canon(bits_float(float_bits(value) | ((half & 0x8000u) << 16)));
#endif
}

// Round to nearest even; overflow gives Inf; a NaN becomes the canonical one.
MEMRA_HD std::uint16_t f32_to_f16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return is_nan(value) ? kCanonicalNanF16 : half;
#else
  const std::uint32_t magnitude = magnitude_bits(value);
  const std::uint32_t sign = (float_bits(value) >> 16) & 0x8000u;
  const bool subnormal = magnitude < 0x38800000u;
  // Below 2^-14: the sum with 0.5 has the spacing of f16's subnormals, so the addition rounds.
  const std::uint32_t low =
      float_bits(bits_float(subnormal ? magnitude : 0u) + 0.5f) - float_bits(0.5f);
  const std::uint32_t rounded =
      (magnitude - ((127u - 15u) << 23) + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t high = magnitude >= 0x47800000u ? 0x7C00u : rounded;
  const std::uint32_t half = low | (subnormal ? 0u : high) | sign;
  return static_cast<std::uint16_t>(magnitude > kInfBits ? kCanonicalNanF16 : half);
#endif
}

// Exact; a NaN becomes the canonical one.
MEMRA_HD constexpr float bf16_to_f32(std::uint16_t bf16) {
  return canon(bits_float(static_cast<std::uint32_t>(bf16) << 16));
}

// In software everywhere: the x86 instruction flushes subnormals.
MEMRA_HD constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(is_nan(value) ? kCanonicalNanBf16 : rounded);
}

// Element types. `load` widens exactly, `store` rounds to nearest even and canonicalises (rule 9);
// F32::load hands a NaN on as it is.
struct F32 {
  using Storage = float;
  static MEMRA_HD float load(const float* p) { return *p; }
  static MEMRA_HD void store(float* p, float value) { *p = canon(value); }
};

struct F16 {
  using Storage = std::uint16_t;
  static MEMRA_HD float load(const std::uint16_t* p) { return f16_to_f32(*p); }
  static MEMRA_HD void store(std::uint16_t* p, float value) { *p = f32_to_f16(value); }
};

struct Bf16 {
  using Storage = std::uint16_t;
  static MEMRA_HD float load(const std::uint16_t* p) { return bf16_to_f32(*p); }
  static MEMRA_HD void store(std::uint16_t* p, float value) { *p = f32_to_bf16(value); }
};

// Element `index` of an untyped buffer, aligned to its element size.
template <class Type>
MEMRA_HD float load_as_f32(const void* base, std::int64_t index) {
  return Type::load(static_cast<const typename Type::Storage*>(base) + index);
}

template <class Type>
MEMRA_HD void store_from_f32(void* base, std::int64_t index, float value) {
  Type::store(static_cast<typename Type::Storage*>(base) + index, value);
}

}  // namespace memra::numerics
