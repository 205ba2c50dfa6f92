// The floor of the arithmetic contract: single IEEE f32 operations, the same bits from every
// compiler.
#pragma once

#include <cstdint>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "memra: the arithmetic contract forbids fast math; compile with -fno-fast-math"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ > 0 && __FLT_EVAL_METHOD__ < 16
#error "memra: float expressions must be evaluated in float (x86: -mfpmath=sse)"
#endif

// Always inlined on the host too: an out-of-line copy compiled for AVX-512 in one file could be the
// one that the linker keeps for all of them.
#if defined(__CUDACC__)
#define MEMRA_HD __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define MEMRA_HD inline __attribute__((always_inline))
#else
#define MEMRA_HD inline
#endif

namespace memra::numerics {

inline constexpr std::uint32_t kCanonicalNan = 0x7FC00000u;
inline constexpr std::uint32_t kInfBits = 0x7F800000u;
inline constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFFu;

MEMRA_HD constexpr std::uint32_t float_bits(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

MEMRA_HD constexpr float bits_float(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// The bits of |value|; as unsigned integers they order all magnitudes, Inf above the finite ones
// and NaN above Inf.
MEMRA_HD constexpr std::uint32_t magnitude_bits(float value) {
  return float_bits(value) & kMagnitudeMask;
}

MEMRA_HD constexpr bool is_nan(float value) {
  return magnitude_bits(value) > kInfBits;
}
MEMRA_HD constexpr bool is_finite(float value) {
  return magnitude_bits(value) < kInfBits;
}

// Rule 9: every NaN that is stored is this one. Done on bits, so that no compiler can reason it
// away.
MEMRA_HD constexpr float canon(float value) {
  return bits_float(is_nan(value) ? kCanonicalNan : float_bits(value));
}

// On the device the _rn intrinsics are never contracted and never flush, whatever the flags. The
// host needs -ffp-contract=off.
MEMRA_HD float add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

MEMRA_HD float sub(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}

MEMRA_HD float mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// a * b + c with one rounding. Without hardware fma the host calls libm's fmaf: slow, same bits.
MEMRA_HD float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

MEMRA_HD float div(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

}  // namespace memra::numerics
