// Every set of CPU kernels does the grouped path's arithmetic with the same bits, and as the plain
// chain of fmas that it is said to be.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/grouped_kernels.h"
#include "cpu_paths.h"
#include "reference/exact.h"
#include "reference/floats.h"
#include "reference/generate.h"

namespace memra::cpu {
namespace {

namespace ref = memra::reference;

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

struct alignas(64) Sums {
  float z[kTileTokens * kTileDepth];
  float acc[kTileTokens * kTileOutputs];
};

// Columns [k, k + count) of every token's row.
void fill_z(Sums& sums, const std::vector<float>& x, std::int64_t tokens, std::int64_t columns,
            std::int64_t k, std::int64_t count) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < count; ++i)
      sums.z[t * kTileDepth + i] = x[at(t * columns + k + i)];
  }
}

TEST(CpuGrouped, MultiplyIsOneChainOfFmas) {
  constexpr std::int64_t kRows = 128, kColumns = 448;  // ends in half a tile
  ref::Random random(31);
  std::vector<float> x(at(kTileTokens * kColumns));
  for (float& value : x)
    value = random.normal();
  const ref::Slab v1 =
      ref::random_slab(random, ref::Format::kV1, kRows, kColumns, ref::ScaleCodes::kAll);
  const ref::Slab v2 = ref::convert(v1, ref::Format::kV2);
  std::vector<float> expected(at(kTileTokens * kRows));
  for (std::int64_t t = 0; t < kTileTokens; ++t) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      float sum = 0.0f;
      for (std::int64_t k = 0; k < kColumns; ++k) {
        sum = std::fma(static_cast<float>(ref::exact_weight(v1, row, k)), x[at(t * kColumns + k)],
                       sum);
      }
      expected[at(t * kRows + row)] = sum;
    }
  }
  Sums sums;
  for (const RowsKernels* kernels : kernel_sets()) {
    for (const ref::Slab* slab : {&v1, &v2}) {
      for (std::int64_t tokens = 1; tokens <= kTileTokens; tokens += tokens < 14 ? 1 : 25) {
        for (const std::int64_t count : {std::int64_t{32}, kTileOutputs}) {
          const std::int64_t begin = kRows - count - 32;
          std::fill(std::begin(sums.acc), std::end(sums.acc), 0.0f);
          for (std::int64_t k = 0; k < kColumns; k += kTileDepth) {
            const std::int64_t depth = std::min(kTileDepth, kColumns - k);
            fill_z(sums, x, tokens, kColumns, k, depth);
            kernels->grouped.multiply({slab->bytes.data(), static_cast<memra_format>(slab->format),
                                       kRows, kColumns, begin, count, k, depth, sums.z, tokens,
                                       sums.acc});
          }
          for (std::int64_t t = 0; t < kTileTokens; ++t) {
            for (std::int64_t i = 0; i < kTileOutputs; ++i) {
              const bool computed = t < tokens && i < count;
              ASSERT_EQ(ref::bits_of(sums.acc[t * kTileOutputs + i]),
                        ref::bits_of(computed ? expected[at(t * kRows + begin + i)] : 0.0f))
                  << kernels->grouped.name << ", " << tokens << " tokens: " << t << ", " << i;
            }
          }
        }
      }
    }
  }
}

TEST(CpuGrouped, NarrowAndWidenGiveTheSameBits) {
  constexpr std::int64_t kCount = 192;
  ref::Random random(32);
  for (int exponent = -149; exponent < 128; exponent += 4) {
    for (const ref::DType dtype : {ref::DType::kF32, ref::DType::kF16, ref::DType::kBF16}) {
      std::vector<std::uint8_t> x(at(kCount * ref::dtype_bytes(dtype)));
      for (std::int64_t i = 0; i < kCount; ++i)
        ref::store(x, dtype, i, std::ldexp(random.normal(), exponent));
      std::vector<std::uint16_t> expected(at(kCount));
      std::vector<float> expected_wide(at(kCount));
      const auto abi = static_cast<memra_dtype>(dtype);
      const std::int8_t k =
          kPortableKernels.grouped.narrow({x.data(), abi, kCount, expected.data()});
      kPortableKernels.grouped.widen(expected.data(), 0x1p-9f, expected_wide.data(), kCount);
      for (const RowsKernels* kernels : kernel_sets()) {
        std::vector<std::uint16_t> z(at(kCount), 0xFFFF);
        std::vector<float> wide(at(kCount), std::nanf(""));
        ASSERT_EQ(kernels->grouped.narrow({x.data(), abi, kCount, z.data()}), k) << exponent;
        ASSERT_EQ(z, expected) << kernels->grouped.name << ", " << exponent;
        kernels->grouped.widen(z.data(), 0x1p-9f, wide.data(), kCount);
        ASSERT_EQ(wide, expected_wide) << kernels->grouped.name;
      }
    }
  }
}

TEST(CpuGrouped, NarrowOfNonFiniteRows) {
  for (const RowsKernels* kernels : kernel_sets()) {
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> x(64, 1.0f);
      x[63] = bad;
      std::vector<std::uint16_t> z(64, 0xFFFF);
      EXPECT_EQ(kernels->grouped.narrow({x.data(), MEMRA_F32, 64, z.data()}), kNotFinite);
      EXPECT_EQ(z, std::vector<std::uint16_t>(64, 0));
    }
  }
}

TEST(CpuGrouped, KernelsHaveNames) {
  for (const RowsKernels* kernels : kernel_sets())
    EXPECT_EQ(std::string(kernels->grouped.name).rfind("cpu_grouped_", 0), 0u);
}

}  // namespace
}  // namespace memra::cpu
