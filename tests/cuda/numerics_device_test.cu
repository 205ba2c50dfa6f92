// The same headers, compiled for the host and for the device, give the same bits.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "numerics/activation.h"
#include "numerics/dot.h"
#include "numerics/half.h"
#include "numerics/q8.h"
#include "numerics/quantize_nvfp4.h"
#include "numerics/ue4m3.h"

namespace memra::numerics {
namespace {

constexpr std::uint32_t kChunk = 1u << 22;

// Spreads an index over all bit patterns; a bijection.
MEMRA_HD std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

// A float of moderate size, so that products neither vanish nor overflow.
MEMRA_HD float moderate(std::uint32_t x) {
  return bits_float((mix(x) & 0x83FFFFFFu) + (124u << 23));
}

struct ExpBits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    return float_bits(canon(exp_f32(bits_float(i))));
  }
};
struct HalvesBits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    const float x = bits_float(i);
    return f32_to_f16(x) | static_cast<std::uint32_t>(f32_to_bf16(x)) << 16;
  }
};
struct WidenBits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    const auto half = static_cast<std::uint16_t>(i);
    return (i >> 16 & 1u) ? float_bits(f16_to_f32(half)) : float_bits(bf16_to_f32(half));
  }
};
struct CodecBits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    const float x = bits_float(i);
    return e2m1_nearest(x) | ue4m3_nearest(x) << 8 |
           value_code(x, block_step(mix(i) & 0xFFu, 1.0f)) << 16;
  }
};
struct ScaleBits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    const float e = expert_scale_from_amax(bits_float(i & kMagnitudeMask));
    return float_bits(canon(e)) ^ block_scale_code(moderate(i), e) ^
           float_bits(ue4m3_decode(i & 0xFFu));
  }
};
struct Q8Bits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    const Q8Scale scale = q8_scale(i & kMagnitudeMask);
    const float part = mul(bits_float(i), 0.37f);
    const std::int32_t q = q8(bits_float(i), scale) * 256 + q8(part, scale);
    return float_bits(scale.d) ^ static_cast<std::uint32_t>(q) ^ float_bits(scale.inv) << 1;
  }
};
template <Activation kActivation>
struct ActivationBits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    const bool wild = i % 16 == 0;
    const float g = wild ? bits_float(mix(i)) : moderate(i) * 16.0f;
    const float u = wild ? bits_float(mix(~i)) : moderate(~i) * 16.0f;
    return float_bits(activate(kActivation, g, u, {7.0f, 1.702f}));
  }
};
struct DotBits {
  static MEMRA_HD std::uint32_t of(std::uint32_t i) {
    const auto i0 = static_cast<std::int32_t>(mix(i) % 48769u) - 24384;
    const auto i1 = static_cast<std::int32_t>(mix(~i) % 48769u) - 24384;
    const float s0 = ue4m3_decode(mix(i + 1) & 0x7Fu);
    const float s1 = ue4m3_decode(mix(i + 2) & 0x7Fu);
    const float dot =
        finish_dot(row_step(moderate(i + 3), moderate(i + 4), group_partial(s0, i0, s1, i1)));
    const float y = slot_step(pair_scale(moderate(i + 5), moderate(i + 6)), dot, moderate(i + 7));
    return float_bits(canon(plane_value(y, moderate(i + 8), i % 2 == 0, moderate(i + 9))));
  }
};

template <class Function>
__global__ void evaluate(std::uint32_t first, std::uint32_t* out) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = Function::of(first + i);
}

template <class Function>
class HostAndDevice : public ::testing::Test {};

using Functions = ::testing::Types<
    ExpBits, HalvesBits, WidenBits, CodecBits, ScaleBits, Q8Bits, DotBits,
    ActivationBits<Activation::kSwiglu>, ActivationBits<Activation::kSwigluPreclamp>,
    ActivationBits<Activation::kSwigluPostclamp>, ActivationBits<Activation::kSwigluOai>>;
TYPED_TEST_SUITE(HostAndDevice, Functions);

TYPED_TEST(HostAndDevice, SameBits) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  std::uint32_t* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, kChunk * sizeof(std::uint32_t)), cudaSuccess);
  std::vector<std::uint32_t> got(kChunk);
  // One chunk in 64 of all 2^32 arguments, spread over them; both of the first two.
  for (std::uint64_t chunk = 0; chunk < 1024; chunk += chunk < 2 ? 1 : 63) {
    const auto first = static_cast<std::uint32_t>(chunk * kChunk);
    evaluate<TypeParam><<<kChunk / 256, 256>>>(first, device);
    ASSERT_EQ(
        cudaMemcpy(got.data(), device, kChunk * sizeof(std::uint32_t), cudaMemcpyDeviceToHost),
        cudaSuccess);
    std::uint64_t wrong = 0;
    std::uint32_t example = 0;
    for (std::uint32_t i = 0; i < kChunk; ++i) {
      if (got[i] != TypeParam::of(first + i)) {
        ++wrong;
        example = first + i;
      }
    }
    ASSERT_EQ(wrong, 0u) << "for example argument " << std::hex << example;
  }
  cudaFree(device);
}

}  // namespace
}  // namespace memra::numerics
