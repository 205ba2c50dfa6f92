// Every set of CPU kernels against the scalar reference, bit for bit, and against each other.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cpu/rows_kernels.h"
#include "cpu_paths.h"
#include "reference/arithmetic.h"
#include "reference/floats.h"
#include "reference/formats.h"
#include "reference/generate.h"

namespace memra::cpu {
namespace {

namespace ref = memra::reference;

std::uint32_t bits(float value) {
  return ref::bits_of(ref::canonical(value));
}

std::vector<std::int8_t> to_lane_major(const std::vector<std::int8_t>& q) {
  std::vector<std::int8_t> permuted(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    const auto column = static_cast<std::int32_t>(i % 32);
    permuted[i - i % 32 + static_cast<std::size_t>(lane_major_position(column))] = q[i];
  }
  return permuted;
}

// A slab and a row of activations, with what the reference makes of them.
struct DotCase {
  ref::Slab v1, v2;
  std::vector<std::int8_t> q, q_lane_major;
  std::vector<float> d;
  std::vector<float> expected;

  DotCase(ref::Slab slab, const std::vector<float>& x) : v1(std::move(slab)) {
    v2 = ref::convert(v1, ref::Format::kV2);
    const ref::QuantizedRows quantized = ref::quantize_q8(x, 1, v1.cols);
    q = quantized.q;
    d = quantized.d;
    q_lane_major = to_lane_major(q);
    const ref::DecodedSlab decoded = ref::decode(v1);
    for (std::int64_t row = 0; row < v1.rows; ++row) {
      expected.push_back(ref::row_dot(decoded.doubled.data() + row * v1.cols,
                                      decoded.scales.data() + row * v1.cols / 16, q.data(),
                                      d.data(), v1.cols));
    }
  }

  void check(const RowsKernels& kernels) const {
    SCOPED_TRACE(std::string(kernels.simd) + " [" + std::to_string(v1.rows) + ", " +
                 std::to_string(v1.cols) + "]");
    check(kernels.dots.v1, v1, q, "v1");
    check(kernels.dots.v2, v2, q, "v2");
    check(kernels.dots.v2_lane_major, v2, q_lane_major, "v2 lane-major");
  }

 private:
  void check(DotsFunction dots, const ref::Slab& slab, const std::vector<std::int8_t>& x,
             const char* name) const {
    // All rows at once, and in pieces of 8.
    for (const std::int64_t step : {slab.rows, std::int64_t{8}}) {
      std::vector<float> out(static_cast<std::size_t>(slab.rows), std::nanf(""));
      for (std::int64_t row = 0; row < slab.rows; row += step) {
        const DotsRow x_row{x.data(), d.data(), out.data() + row};
        dots({slab.bytes.data(), slab.rows, slab.cols, row, step}, &x_row, 1);
      }
      for (std::size_t row = 0; row < out.size(); ++row) {
        ASSERT_EQ(bits(out[row]), bits(expected[row])) << name << " row " << row;
      }
    }
  }
};

// The first cases, which have one slab, in one call.
void check_together(const RowsKernels& kernels, std::span<const DotCase> cases) {
  for (const DotsFunction dots : {kernels.dots.v1, kernels.dots.v2, kernels.dots.v2_lane_major}) {
    const bool lane_major = dots == kernels.dots.v2_lane_major;
    const ref::Slab& slab = dots == kernels.dots.v1 ? cases[0].v1 : cases[0].v2;
    const auto rows = static_cast<std::size_t>(slab.rows);
    std::vector<float> out(cases.size() * rows, std::nanf(""));
    std::vector<DotsRow> x;
    for (const DotCase& one : cases) {
      x.push_back({(lane_major ? one.q_lane_major : one.q).data(), one.d.data(),
                   out.data() + x.size() * rows});
    }
    dots({slab.bytes.data(), slab.rows, slab.cols, 0, slab.rows}, x.data(),
         static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(bits(out[i]), bits(cases[i / rows].expected[i % rows]))
          << kernels.simd << ", " << slab.cols << " columns, " << i / rows << " of " << x.size()
          << ", row " << i % rows;
    }
  }
}

std::vector<float> normal_row(ref::Random& random, std::int64_t columns) {
  std::vector<float> x(static_cast<std::size_t>(columns));
  for (float& value : x)
    value = random.normal();
  return x;
}

// Every byte is used as a scale and as codes.
ref::Slab any_bytes(ref::Random& random, std::int64_t rows, std::int64_t columns) {
  ref::Slab slab(ref::Format::kV1, rows, columns);
  for (std::uint8_t& byte : slab.bytes)
    byte = static_cast<std::uint8_t>(random.bits());
  return slab;
}

TEST(CpuKernels, DotsEqualTheReferenceForEveryWidth) {
  ref::Random random(1);
  // Widths around the tile (128), a round of the virtual lanes (1024) and both.
  for (const std::int64_t columns :
       {64,   128,  192,  256,  320,  448,  960,  1024, 1088,  1152,
        1856, 2048, 2112, 2688, 4096, 8128, 8192, 8256, 16384, 17088}) {
    const DotCase dot_case(any_bytes(random, 16, columns), normal_row(random, columns));
    int nonzero = 0;
    for (const float dot : dot_case.expected)
      nonzero += dot != 0.0f ? 1 : 0;
    ASSERT_GE(nonzero, 15);
    for (const RowsKernels* kernels : kernel_sets())
      dot_case.check(*kernels);
  }
}

TEST(CpuKernels, DotsOfManyRandomSlabs) {
  ref::Random random(2);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t columns = 64 * (1 + random.below(40));
    ref::Slab slab = random.below(2) != 0 ? any_bytes(random, 8, columns)
                                          : ref::random_slab(random, ref::Format::kV1, 8, columns,
                                                             ref::ScaleCodes::kAll);
    const DotCase dot_case(std::move(slab), normal_row(random, columns));
    for (const RowsKernels* kernels : kernel_sets())
      dot_case.check(*kernels);
  }
}

// One decoding for several rows of activations, each as if it were alone; one holds a NaN.
TEST(CpuKernels, DotsOfRowsTogether) {
  ref::Random random(8);
  for (const std::int64_t columns : {64, 192, 960, 1024, 2624, 8192, 8256, 16448}) {
    const ref::Slab slab = any_bytes(random, 16, columns);
    std::vector<DotCase> cases;
    for (std::int64_t i = 0; i < kMaxTogether; ++i) {
      std::vector<float> x = normal_row(random, columns);
      if (i == 1) x[static_cast<std::size_t>(columns - 40)] = std::nanf("");
      cases.emplace_back(slab, x);
    }
    for (const RowsKernels* kernels : kernel_sets()) {
      for (std::size_t count = 1; count <= cases.size(); ++count)
        check_together(*kernels, std::span(cases).first(count));
    }
  }
}

TEST(CpuKernels, DotsOfUnusualActivations) {
  ref::Random random(3);
  constexpr std::int64_t kColumns = 1216;
  const auto one = [&](auto change) {
    std::vector<float> x = normal_row(random, kColumns);
    change(x);
    const DotCase dot_case(any_bytes(random, 16, kColumns), x);
    for (const RowsKernels* kernels : kernel_sets())
      dot_case.check(*kernels);
  };
  one([](auto& x) { x[777] = std::nanf(""); });
  one([](auto& x) { x[1215] = -INFINITY; });
  one([](auto& x) { std::fill(x.begin(), x.end(), 0.0f); });
  one([](auto& x) { std::fill(x.begin(), x.end(), -0.0f); });
  one([](auto& x) { std::fill(x.begin(), x.end(), 1e-41f); });
  // Just above the smallest group that is not zero: products are near f32's subnormals.
  one([](auto& x) {
    for (float& value : x)
      value *= 0x1p-118f;
  });
  // d * P overflows, with both signs.
  one([](auto& x) {
    for (float& value : x)
      value *= 0x1p125f;
  });
  one([](auto& x) {
    for (std::size_t i = 0; i < 32; ++i)
      x[i] = 1e30f;
  });
  // The largest sums: every q is 127 or -127.
  one([](auto& x) { std::fill(x.begin(), x.end(), 3.0f); });
  one([](auto& x) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i % 2 != 0 ? -5.0f : 5.0f;
  });
}

TEST(CpuKernels, EveryScaleCodeAgainstEveryCode) {
  // Row r of slab s has scale code 8s + r / 2 in the first half of each group and its complement in
  // the second, and code c in all places of group c.
  for (int s = 0; s < 32; ++s) {
    ref::Slab slab(ref::Format::kV1, 16, 512);
    for (std::int64_t row = 0; row < 16; ++row) {
      const int scale = 8 * s + static_cast<int>(row) / 2;
      for (std::int64_t column = 0; column < 512; ++column) {
        const bool second = column % 32 >= 16;
        ref::set_code(slab, row, column, static_cast<std::uint8_t>(column / 32));
        ref::set_scale(slab, row, column, static_cast<std::uint8_t>(second ? 255 - scale : scale));
      }
    }
    std::vector<float> x(512);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 37) - 11.0f;
    const DotCase dot_case(slab, x);
    for (const RowsKernels* kernels : kernel_sets())
      dot_case.check(*kernels);
  }
}

TEST(CpuKernels, LoadOnlyAndMathOnlyFillTheirOutput) {
  ref::Random random(4);
  const DotCase dot_case(
      ref::random_slab(random, ref::Format::kV1, 24, 1088, ref::ScaleCodes::kAll),
      normal_row(random, 1088));
  for (const RowsKernels* kernels : kernel_sets()) {
    for (const DotsFunctions* functions : {&kernels->dots_load_only, &kernels->dots_math_only}) {
      for (const DotsFunction dots : {functions->v1, functions->v2, functions->v2_lane_major}) {
        const ref::Slab& slab = dots == functions->v1 ? dot_case.v1 : dot_case.v2;
        std::vector<float> out(24, -12345.0f);
        const DotsRow x_row{dot_case.q.data(), dot_case.d.data(), out.data()};
        dots({slab.bytes.data(), 24, 1088, 0, 24}, &x_row, 1);
        for (const float value : out)
          EXPECT_NE(value, -12345.0f) << kernels->simd;
      }
    }
    kernels->read(dot_case.v2.bytes.data(), dot_case.v2.bytes.size());
  }
}

TEST(CpuKernels, GateUpFinishEqualsTheReference) {
  ref::Random random(5);
  constexpr std::size_t kCount = 24;
  constexpr ref::Activation kKinds[] = {ref::Activation::kSwiglu, ref::Activation::kSwigluPreclamp,
                                        ref::Activation::kSwigluPostclamp,
                                        ref::Activation::kSwigluOai};
  const float specials[] = {std::nanf(""), INFINITY, -INFINITY, 0.0f,  -0.0f,  1e-41f,
                            -88.9f,        -104.5f,  89.5f,     1e30f, -1e30f, 0x1p-126f};
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<float> gate(kCount), up(kCount), gate_bias(kCount), up_bias(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      gate[i] = random.below(8) == 0 ? specials[random.below(12)] : 8.0f * random.normal();
      up[i] = random.below(8) == 0 ? specials[random.below(12)] : 8.0f * random.normal();
      gate_bias[i] = random.normal();
      up_bias[i] = random.normal();
    }
    const bool biased = trial % 2 != 0;
    const float gate_scale = random.normal(), up_scale = random.normal();
    const int kind = trial / 2 % 4;
    const ref::ActivationParams params{kKinds[kind], 7.0f, 1.702f};
    for (const RowsKernels* kernels : kernel_sets()) {
      std::vector<float> out(kCount, std::nanf("1"));
      kernels->finish_gate_up({kind, 7.0f, 1.702f, gate_scale, up_scale, gate.data(), up.data(),
                               biased ? gate_bias.data() : nullptr,
                               biased ? up_bias.data() : nullptr, out.data(),
                               static_cast<std::int64_t>(kCount)});
      for (std::size_t i = 0; i < kCount; ++i) {
        const float g =
            biased ? ref::fma(gate[i], gate_scale, gate_bias[i]) : ref::mul(gate[i], gate_scale);
        const float u = biased ? ref::fma(up[i], up_scale, up_bias[i]) : ref::mul(up[i], up_scale);
        // Stored floats are canonical as they are.
        ASSERT_EQ(ref::bits_of(out[i]), bits(ref::activate(params, g, u)))
            << kernels->simd << " kind " << kind << " gate " << g << " up " << u;
      }
    }
  }
}

TEST(CpuKernels, SlotsEqualTheReference) {
  ref::Random random(6);
  constexpr std::size_t kCount = 24;
  for (const bool biased : {false, true}) {
    std::vector<float> dots(kCount), bias(kCount), y(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      dots[i] = random.normal();
      bias[i] = random.normal();
      y[i] = random.normal();
    }
    for (const RowsKernels* kernels : kernel_sets()) {
      std::vector<float> sum = y;
      kernels->add_slot({0.3f, 0.7f, dots.data(), biased ? bias.data() : nullptr, sum.data(),
                         static_cast<std::int64_t>(kCount)});
      for (std::size_t i = 0; i < kCount; ++i) {
        float expected = ref::fma(0.3f, dots[i], y[i]);
        if (biased) expected = ref::fma(0.7f, bias[i], expected);
        ASSERT_EQ(ref::bits_of(sum[i]), ref::bits_of(expected)) << kernels->simd;
      }
    }
  }
}

TEST(CpuKernels, QuantizeEqualsTheReference) {
  ref::Random random(7);
  constexpr std::int64_t kColumns = 320;
  std::vector<float> values = normal_row(random, kColumns);
  for (std::size_t i = 0; i < 32; ++i) {
    values[32 + i] *= 1e-41f;
    values[64 + i] *= 0x1p-118f;
    values[96 + i] = 0.0f;
    values[128 + i] *= 1e30f;
    values[160 + i] = std::ldexp(static_cast<float>(i) - 15.5f, -3);  // ties
  }
  values[200] = std::nanf("");
  values[224] = -INFINITY;
  for (const auto& [dtype, abi] :
       {std::pair(ref::DType::kF32, MEMRA_F32), std::pair(ref::DType::kF16, MEMRA_F16),
        std::pair(ref::DType::kBF16, MEMRA_BF16)}) {
    const std::vector<std::uint8_t> raw = ref::narrow(values, dtype);
    const ref::QuantizedRows expected =
        ref::quantize_q8(ref::widen(raw, dtype, 1, kColumns, kColumns), 1, kColumns);
    for (const RowsKernels* kernels : kernel_sets()) {
      for (const bool lane_major : {false, true}) {
        std::vector<std::int8_t> q(kColumns, 99);
        std::vector<float> d(kColumns / 32, -1.0f);
        kernels->quantize({raw.data(), abi, lane_major, q.data(), d.data(), kColumns});
        EXPECT_EQ(q, lane_major ? to_lane_major(expected.q) : expected.q) << kernels->simd;
        for (std::size_t i = 0; i < d.size(); ++i) {
          EXPECT_EQ(ref::bits_of(d[i]), ref::bits_of(expected.d[i])) << kernels->simd << ' ' << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace memra::cpu
