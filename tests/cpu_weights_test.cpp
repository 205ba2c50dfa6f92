// Conversions of weights on the CPU against the reference, whatever the number of threads.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "cpu/thread_pool.h"
#include "cpu/weights.h"
#include "reference/formats.h"
#include "reference/generate.h"
#include "reference/weights.h"

namespace memra::cpu {
namespace {

namespace ref = memra::reference;

constexpr std::int64_t kExperts = 3, kRows = 40, kColumns = 320;
constexpr std::uint8_t kPoison = 0xEE;
const memra_slice kPart = {8, 24, 64, 192};

class CpuWeights : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_EQ(ThreadPool::create(GetParam(), &pool_), MEMRA_OK); }

  std::unique_ptr<ThreadPool> pool_;
  ref::Random random_{7};
  memra_weight_report report_{77, 77, 77, 77, 77};

  // Slabs with some invalid scales.
  std::vector<ref::Slab> slabs() {
    std::vector<ref::Slab> slabs;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      slabs.push_back(
          ref::random_slab(random_, ref::Format::kV1, kRows, kColumns, ref::ScaleCodes::kAll));
      for (int i = 0; i < 5 && e != 0; ++i) {
        ref::set_scale(slabs.back(), random_.below(kRows), random_.below(kColumns),
                       static_cast<std::uint8_t>(0x7F + random_.below(129)));
      }
    }
    return slabs;
  }

  void check_report(const ref::InvalidScales& expected) const {
    EXPECT_EQ(report_.invalid_scales, expected.count);
    EXPECT_EQ(report_.first_expert, expected.first_expert);
    EXPECT_EQ(report_.first_row, expected.first_row);
    EXPECT_EQ(report_.first_block, expected.first_block);
  }
};

// The slice of each slab in V2, and what is invalid in it, by its place in the whole.
std::vector<ref::Slab> sliced_v2(const std::vector<ref::Slab>& slabs, const memra_slice& slice,
                                 ref::InvalidScales& invalid) {
  std::vector<ref::Slab> result;
  for (std::size_t e = 0; e < slabs.size(); ++e) {
    const ref::Slab part = ref::slice(slabs[e], slice.row_begin, slice.row_count,
                                      slice.column_begin, slice.column_count);
    result.push_back(ref::convert(part, ref::Format::kV2));
    for (std::int64_t row = 0; row < part.rows; ++row) {
      for (std::int64_t column = 0; column < part.cols; column += 16) {
        if (ref::ue4m3_legal(ref::get_scale(part, row, column))) continue;
        ref::note_invalid(invalid, static_cast<std::int64_t>(e), slice.row_begin + row,
                          slice.column_begin + column);
      }
    }
  }
  return result;
}

TEST_P(CpuWeights, RepackOutOfPlaceAndInPlace) {
  const std::vector<ref::Slab> source = slabs();
  for (const memra_slice& slice : {memra_slice{}, kPart}) {
    const memra_slice spelt = slice.row_count != 0 ? slice : memra_slice{0, kRows, 0, kColumns};
    ref::InvalidScales invalid;
    const std::vector<ref::Slab> expected = sliced_v2(source, spelt, invalid);
    const std::int64_t src_stride = ref::slab_bytes(kRows, kColumns) + 48;
    const std::int64_t dst_stride = ref::slab_bytes(spelt.row_count, spelt.column_count) + 16;
    std::vector<std::uint8_t> src = ref::pack_bank(source, src_stride, kPoison);
    std::vector<std::uint8_t> dst(static_cast<std::size_t>(kExperts * dst_stride), kPoison);
    memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
    args.rows = kRows;
    args.columns = kColumns;
    args.n_experts = kExperts;
    args.slice = slice;
    args.src = src.data();
    args.src_stride = static_cast<std::uint64_t>(src_stride);
    args.dst = dst.data();
    args.dst_stride = static_cast<std::uint64_t>(dst_stride);
    args.report = &report_;
    repack_v2(args, *pool_);
    EXPECT_EQ(dst, ref::pack_bank(expected, dst_stride, kPoison));
    check_report(invalid);
    EXPECT_EQ(report_.non_finite, 0u);

    for (const std::int64_t slabs_at_once : {1, 2, 5}) {
      std::vector<std::uint8_t> both = src;
      std::vector<std::uint8_t> workspace(
          static_cast<std::size_t>(slabs_at_once * ref::slab_bytes(kRows, kColumns)), kPoison);
      args.src = args.dst = both.data();
      args.workspace = workspace.data();
      args.workspace_bytes = workspace.size();
      report_ = {77, 77, 77, 77, 77};
      repack_v2(args, *pool_);
      for (std::size_t e = 0; e < expected.size(); ++e) {
        const auto begin = both.begin() + static_cast<std::int64_t>(e) * dst_stride;
        EXPECT_TRUE(std::equal(expected[e].bytes.begin(), expected[e].bytes.end(), begin))
            << "expert " << e << ", " << slabs_at_once << " slabs at once";
      }
      check_report(invalid);
    }
  }
}

TEST_P(CpuWeights, Import) {
  const std::vector<ref::Slab> source = slabs();
  std::vector<std::uint8_t> codes, scales;
  for (const ref::Slab& slab : source) {
    const ref::Checkpoint checkpoint = ref::export_nvfp4(slab);
    codes.insert(codes.end(), checkpoint.codes.begin(), checkpoint.codes.end());
    scales.insert(scales.end(), checkpoint.scales.begin(), checkpoint.scales.end());
  }
  for (const memra_slice& slice : {memra_slice{}, kPart}) {
    const memra_slice spelt = slice.row_count != 0 ? slice : memra_slice{0, kRows, 0, kColumns};
    ref::InvalidScales invalid;
    std::vector<ref::Slab> expected = sliced_v2(source, spelt, invalid);
    for (const memra_format format : {MEMRA_NVFP4_V2, MEMRA_NVFP4}) {
      if (format == MEMRA_NVFP4) {
        for (std::size_t e = 0; e < expected.size(); ++e) {
          expected[e] = ref::slice(source[e], spelt.row_begin, spelt.row_count, spelt.column_begin,
                                   spelt.column_count);
        }
      }
      const std::int64_t stride = ref::slab_bytes(spelt.row_count, spelt.column_count) + 16;
      std::vector<std::uint8_t> dst(static_cast<std::size_t>(kExperts * stride), kPoison);
      memra_import_args args = MEMRA_IMPORT_ARGS_INIT;
      args.format = format;
      args.rows = kRows;
      args.columns = kColumns;
      args.n_experts = kExperts;
      args.slice = slice;
      args.codes = codes.data();
      args.codes_stride = kRows * kColumns / 2;
      args.scales = scales.data();
      args.scales_stride = kRows * kColumns / 16;
      args.dst = dst.data();
      args.dst_stride = static_cast<std::uint64_t>(stride);
      args.report = &report_;
      report_ = {77, 77, 77, 77, 77};
      import_nvfp4(args, *pool_);
      EXPECT_EQ(dst, ref::pack_bank(expected, stride, kPoison)) << format;
      check_report(invalid);
    }
  }
}

TEST_P(CpuWeights, Dequantize) {
  const std::vector<ref::Slab> source = slabs();
  const std::vector<float> expert_scales = {1.0f, 0.3f, -2.5f};
  for (const memra_slice& slice : {memra_slice{}, kPart}) {
    const memra_slice spelt = slice.row_count != 0 ? slice : memra_slice{0, kRows, 0, kColumns};
    for (const ref::Format format : {ref::Format::kV1, ref::Format::kV2}) {
      std::vector<ref::Slab> converted;
      converted.reserve(source.size());
      for (const ref::Slab& slab : source)
        converted.push_back(ref::convert(slab, format));
      const std::int64_t src_stride = ref::slab_bytes(kRows, kColumns) + 16;
      const std::vector<std::uint8_t> src = ref::pack_bank(converted, src_stride);
      for (const auto& [dtype, abi] :
           {std::tuple(ref::DType::kF32, MEMRA_F32), std::tuple(ref::DType::kF16, MEMRA_F16),
            std::tuple(ref::DType::kBF16, MEMRA_BF16)}) {
        for (const bool scaled : {false, true}) {
          const std::int64_t row_stride = spelt.column_count + 8;
          const std::int64_t stride = spelt.row_count * row_stride + 8;
          const std::int64_t element = ref::dtype_bytes(dtype);
          std::vector<std::uint8_t> dst(static_cast<std::size_t>(kExperts * stride * element),
                                        kPoison);
          std::vector<std::uint8_t> expected = dst;
          for (std::int64_t e = 0; e < kExperts; ++e) {
            const auto expert = static_cast<std::size_t>(e);
            const std::vector<float> values =
                ref::dequantize(ref::slice(converted[expert], spelt.row_begin, spelt.row_count,
                                           spelt.column_begin, spelt.column_count),
                                scaled ? expert_scales[expert] : 1.0f);
            for (std::int64_t r = 0; r < spelt.row_count; ++r) {
              for (std::int64_t c = 0; c < spelt.column_count; ++c) {
                ref::store(expected, dtype, e * stride + r * row_stride + c,
                           values[static_cast<std::size_t>(r * spelt.column_count + c)]);
              }
            }
          }
          memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
          args.format = static_cast<memra_format>(format);
          args.rows = kRows;
          args.columns = kColumns;
          args.n_experts = kExperts;
          args.slice = slice;
          args.src = src.data();
          args.src_stride = static_cast<std::uint64_t>(src_stride);
          args.expert_scales = scaled ? expert_scales.data() : nullptr;
          args.dst = dst.data();
          args.dst_dtype = abi;
          args.dst_row_stride = row_stride;
          args.dst_stride = stride;
          dequantize(args, *pool_);
          EXPECT_EQ(dst, expected) << "dtype " << abi;
        }
      }
    }
  }
}

TEST_P(CpuWeights, Quantize) {
  constexpr std::int64_t kRowStride = kColumns + 8, kStride = kRows * kRowStride + 16;
  for (const auto& [dtype, abi] :
       {std::tuple(ref::DType::kF32, MEMRA_F32), std::tuple(ref::DType::kF16, MEMRA_F16),
        std::tuple(ref::DType::kBF16, MEMRA_BF16)}) {
    // Expert 0 is ordinary, expert 1 has what is not finite, expert 2 is zero.
    std::vector<float> values(kExperts * kStride, 0.0f);
    for (std::int64_t i = 0; i < 2 * kStride; ++i) {
      values[static_cast<std::size_t>(i)] = random_.normal() * (i % 100 == 0 ? 50.0f : 1.0f);
    }
    values[kStride + 5] = std::nanf("");
    values[kStride + 700] = INFINITY;
    values[kStride + 701] = -INFINITY;
    const std::vector<std::uint8_t> src = ref::narrow(values, dtype);
    const std::vector<float> exact = ref::widen(src, dtype, 1, kExperts * kStride, 0);
    for (const ref::Format format : {ref::Format::kV1, ref::Format::kV2}) {
      for (const int mode : {0, 1, 2}) {  // given scales, computed ones, unusable ones
        std::vector<float> scales = {0.01f, 0.003f, 1.0f};
        if (mode == 1) scales.assign(3, std::nanf(""));
        if (mode == 2) scales = {std::nanf(""), -1.0f, INFINITY};
        const std::int64_t dst_stride = ref::slab_bytes(kRows, kColumns) + 16;
        std::vector<std::uint8_t> dst(static_cast<std::size_t>(kExperts * dst_stride), kPoison);
        std::vector<ref::Slab> expected;
        std::vector<float> expected_scales = scales;
        std::uint64_t non_finite = 0;
        for (std::int64_t e = 0; e < kExperts; ++e) {
          const auto expert = static_cast<std::size_t>(e);
          std::vector<float> dense;
          for (std::int64_t r = 0; r < kRows; ++r) {
            const auto row = exact.begin() + e * kStride + r * kRowStride;
            dense.insert(dense.end(), row, row + kColumns);
          }
          if (mode == 1) expected_scales[expert] = ref::choose_expert_scale(dense);
          non_finite += ref::count_non_finite(dense);
          expected.push_back(
              ref::quantize_nvfp4(dense, kRows, kColumns, expected_scales[expert], format));
        }
        memra_quantize_args args = MEMRA_QUANTIZE_ARGS_INIT;
        args.format = static_cast<memra_format>(format);
        args.rows = kRows;
        args.columns = kColumns;
        args.n_experts = kExperts;
        args.src = src.data();
        args.src_dtype = abi;
        args.compute_expert_scale = mode == 1 ? 1 : 0;
        args.src_row_stride = kRowStride;
        args.src_stride = kStride;
        args.dst = dst.data();
        args.dst_stride = static_cast<std::uint64_t>(dst_stride);
        args.expert_scales = scales.data();
        args.report = &report_;
        quantize_nvfp4(args, *pool_);
        EXPECT_EQ(dst, ref::pack_bank(expected, dst_stride, kPoison)) << abi << " mode " << mode;
        EXPECT_EQ(report_.non_finite, non_finite);
        EXPECT_EQ(report_.invalid_scales, 0u);
        EXPECT_EQ(report_.first_expert, -1);
        if (mode == 1) {
          EXPECT_EQ(scales, expected_scales);
        }
      }
    }
  }
}

TEST_P(CpuWeights, CopiesAndFillsOfAnySize) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{1} << 20, (std::size_t{5} << 19) + 3}) {
    std::vector<std::uint8_t> src(bytes + 1), dst(bytes + 1, 1);
    for (std::size_t i = 0; i < bytes; ++i)
      src[i] = static_cast<std::uint8_t>(random_.bits());
    copy_bytes(dst.data(), src.data(), bytes, *pool_);
    src[bytes] = 1;
    EXPECT_EQ(src, dst);
    fill_bytes(dst.data(), -2, bytes, *pool_);
    EXPECT_EQ(dst[bytes], 1);
    dst.pop_back();
    EXPECT_EQ(dst, std::vector<std::uint8_t>(bytes, 0xFE));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, CpuWeights, ::testing::Values(1, 3));

}  // namespace
}  // namespace memra::cpu
