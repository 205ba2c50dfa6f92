// memra_quantize_nvfp4 on both backends, byte for byte against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "conformance/banks.h"
#include "conformance/fixture.h"
#include "reference/weights.h"

namespace memra::test {
namespace {

using reference::DType;
using reference::Format;
using reference::Slab;

constexpr Format kFormats[] = {Format::kV1, Format::kV2};

struct Matrices {
  std::int64_t n_experts;
  std::int64_t rows;
  std::int64_t cols;
  DType dtype;
  std::int64_t row_padding = 0;  // elements
  std::int64_t gap = 0;          // elements between matrices
  Bytes raw;

  std::int64_t row_stride() const { return cols + row_padding; }
  std::int64_t stride() const { return rows * row_stride() + gap; }

  template <typename ValueAt>  // (expert, row, col)
  void fill(ValueAt value_at) {
    const std::int64_t elements = (n_experts - 1) * stride() + (rows - 1) * row_stride() + cols;
    raw.assign(static_cast<std::size_t>(elements * reference::dtype_bytes(dtype)), 0xFF);
    for (std::int64_t e = 0; e < n_experts; ++e) {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t col = 0; col < cols; ++col) {
          reference::store(raw, dtype, e * stride() + row * row_stride() + col,
                           value_at(e, row, col));
        }
      }
    }
  }
  std::vector<float> values(std::int64_t expert) const {
    std::vector<float> result;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col) {
        result.push_back(reference::load(raw, dtype, expert * stride() + row * row_stride() + col));
      }
    }
    return result;
  }
};

memra_dtype abi_dtype(DType dtype) {
  return dtype == DType::kF32 ? MEMRA_F32 : dtype == DType::kF16 ? MEMRA_F16 : MEMRA_BF16;
}

// given: empty to have the scales computed.
void expect_quantised(Engine& engine, const Matrices& source, Format format,
                      const std::vector<float>& given) {
  std::vector<Slab> slabs;
  std::vector<float> scales = given;
  std::uint64_t non_finite = 0;
  for (std::int64_t e = 0; e < source.n_experts; ++e) {
    const std::vector<float> values = source.values(e);
    if (given.empty()) scales.push_back(reference::choose_expert_scale(values));
    non_finite += reference::count_non_finite(values);
    slabs.push_back(reference::quantize_nvfp4(values, source.rows, source.cols,
                                              scales[static_cast<std::size_t>(e)], format));
  }
  const std::int64_t dst_stride = reference::slab_bytes(source.rows, source.cols) + 16;
  const Bytes expected = bank_bytes(slabs, dst_stride);
  const Input src(engine, source.raw, 16);
  const Buffer dst(engine, static_cast<std::int64_t>(expected.size()),
                   format == Format::kV1 ? 4 : 16);
  const Buffer scales_out(engine, 4 * source.n_experts, 4);
  if (!given.empty()) scales_out.upload_values(given);
  const Report report(engine);
  memra_quantize_args args = MEMRA_QUANTIZE_ARGS_INIT;
  args.format = static_cast<memra_format>(format);
  args.rows = source.rows;
  args.columns = source.cols;
  args.n_experts = source.n_experts;
  args.src = src.data();
  args.src_dtype = abi_dtype(source.dtype);
  args.compute_expert_scale = given.empty() ? 1 : 0;
  args.src_row_stride = source.row_padding == 0 ? 0 : source.row_stride();
  args.src_stride = source.gap == 0 ? 0 : source.stride();
  args.dst = dst.data();
  args.dst_stride = static_cast<std::uint64_t>(dst_stride);
  args.expert_scales = scales_out.as<float>();
  args.report = report.get();
  ASSERT_TRUE(ok(memra_quantize_nvfp4(engine.get(), &args, engine.stream())));
  engine.synchronize();
  EXPECT_TRUE(same_bytes(expected, dst.download()));
  EXPECT_TRUE(same_bytes(bytes_of(scales), scales_out.download()));
  EXPECT_TRUE(report.check({}, non_finite));
  EXPECT_TRUE(dst.guards_intact());
  EXPECT_TRUE(scales_out.guards_intact());
  EXPECT_TRUE(src.intact("src"));
}

struct Case {
  DType dtype;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_padding;
  std::int64_t gap;
};

class WeightsQuantize : public BackendCaseTest<Case> {
 protected:
  Matrices matrices(std::int64_t n_experts) const {
    return {n_experts, param().rows, param().cols, param().dtype, param().row_padding, param().gap,
            {}};
  }
};

TEST_P(WeightsQuantize, RandomMatricesWithScalesComputedAndGiven) {
  reference::Random random(1);
  Matrices source = matrices(3);
  // Blocks of very different size, so that the scale codes spread.
  source.fill([&](std::int64_t e, std::int64_t, std::int64_t col) {
    return random.normal() * std::ldexp(1.0f, static_cast<int>(e + col / 16 % 12 - 9));
  });
  for (const Format format : kFormats) {
    SCOPED_TRACE(static_cast<int>(format));
    expect_quantised(engine(), source, format, {});
    expect_quantised(engine(), source, format, {0.001f, 0.25f, 3.0e-5f});
    // As far as scales saturate or vanish.
    expect_quantised(engine(), source, format, {1e-30f, 1e30f, 1e-42f});
    for (const float bad : {0.0f, -1.0f, HUGE_VALF, -HUGE_VALF, reference::canonical_nan()})
      expect_quantised(engine(), source, format, {0.01f, bad, 0.01f});
  }
}

TEST_P(WeightsQuantize, ZerosAndNonFiniteValues) {
  Matrices source = matrices(4);
  // All zero; -0 and one value; NaN and Inf among others; nothing but NaN.
  source.fill([&](std::int64_t e, std::int64_t row, std::int64_t col) {
    switch (e) {
      case 0:
        return 0.0f;
      case 1:
        return row == 3 && col == 17 ? -2.0f : -0.0f;
      case 2:
        if ((row + col) % 29 == 0) return row % 2 == 0 ? HUGE_VALF : reference::canonical_nan();
        return static_cast<float>(col % 7) - 3.0f;
      default:
        return reference::canonical_nan();
    }
  });
  for (const Format format : kFormats) {
    expect_quantised(engine(), source, format, {});
    expect_quantised(engine(), source, format, {1.0f, 0.01f, 0.01f, 1.0f});
  }
}

// Values at, and next to, every tie between codes and between scales.
TEST_P(WeightsQuantize, Ties) {
  reference::Random random(2);
  Matrices source = matrices(1);
  const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  source.fill([&](std::int64_t, std::int64_t row, std::int64_t col) {
    const std::int64_t block = row * param().cols / 16 + col / 16;
    const auto code = static_cast<std::uint8_t>(block % 126);
    const float scale = reference::ue4m3_value(code);
    const float next = reference::ue4m3_value(static_cast<std::uint8_t>(code + 1));
    // The block's amax sits in the middle of two scale codes, or beside it, or on the grid.
    const float amax = block / 126 % 2 == 0 ? 3.0f * (scale + next) : 6.0f * scale;
    if (col % 16 == 5) return random.below(3) == 0 ? std::nextafter(amax, 0.0f) : amax;
    const float tie = ties[random.below(7)] * scale;
    return random.below(2) == 0 ? tie : -std::nextafter(tie, random.below(2) == 0 ? 0.0f : 1e9f);
  });
  for (const Format format : kFormats)
    expect_quantised(engine(), source, format, {1.0f});
}

INSTANTIATE_TEST_SUITE_P(
    Backends, WeightsQuantize,
    ::testing::Combine(both_backends(), ::testing::Values(Case{DType::kF32, 8, 64, 0, 0},
                                                          Case{DType::kF32, 24, 320, 4, 0},
                                                          Case{DType::kF32, 64, 704, 0, 8},
                                                          Case{DType::kF16, 16, 192, 0, 0},
                                                          Case{DType::kF16, 40, 128, 8, 16},
                                                          Case{DType::kBF16, 8, 2880, 0, 0},
                                                          Case{DType::kBF16, 32, 320, 24, 8})),
    case_namer([](const Case& c) {
      std::string name = name_of_shape(c.rows, c.cols);
      name.append(c.dtype == DType::kF32 ? "_f32" : c.dtype == DType::kF16 ? "_f16" : "_bf16");
      return name;
    }));

}  // namespace
}  // namespace memra::test
