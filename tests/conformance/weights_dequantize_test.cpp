// memra_dequantize on both backends, and the blocks that another library wrote and decoded.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/banks.h"
#include "conformance/fixture.h"
#include "conformance/problems.h"
#include "reference/weights.h"

namespace memra::test {
namespace {

using reference::DType;
using reference::Format;
using reference::Slab;

constexpr Format kFormats[] = {Format::kV1, Format::kV2};

struct Case {
  DType dtype;
  std::int64_t rows;
  std::int64_t cols;
};

class WeightsDequantize : public BackendCaseTest<Case> {};

TEST_P(WeightsDequantize, BothFormatsEveryPart) {
  // One scale each that is ordinary, negative, makes subnormals, overflows f16, and NaN.
  const std::vector<float> expert_scales = {0.37f, -1.5f, 1e-38f, 3e6f, reference::canonical_nan()};
  const std::int64_t n_experts = 5;
  const auto v1_slabs = random_slabs(1, Format::kV1, n_experts, param().rows, param().cols, true);
  const Input scales(engine(), bytes_of(expert_scales), 4);
  const DType dtype = param().dtype;
  const std::int64_t element = reference::dtype_bytes(dtype);
  for (const Format format : kFormats) {
    std::vector<Slab> slabs;
    for (const Slab& slab : v1_slabs)
      slabs.push_back(reference::convert(slab, format));
    const std::int64_t src_stride = reference::slab_bytes(param().rows, param().cols) + 16;
    const Input src(engine(), bank_bytes(slabs, src_stride), format == Format::kV1 ? 4 : 16);
    for (const Part& part : parts_of(param().rows, param().cols)) {
      const Part p = part.resolved(param().rows, param().cols);
      for (const std::int64_t padding : {std::int64_t{0}, 16 / element}) {
        for (const bool scaled : {false, true}) {
          const std::int64_t row_stride = p.cols + padding;
          const std::int64_t stride = p.rows * row_stride + padding;
          Bytes expected(
              static_cast<std::size_t>(
                  ((n_experts - 1) * stride + (p.rows - 1) * row_stride + p.cols) * element),
              0xFF);
          for (std::int64_t e = 0; e < n_experts; ++e) {
            const auto at = static_cast<std::size_t>(e);
            const auto values =
                reference::dequantize(reference::slice(slabs[at], p.row, p.rows, p.col, p.cols),
                                      scaled ? expert_scales[at] : 1.0f);
            for (std::int64_t i = 0; i < p.rows * p.cols; ++i) {
              reference::store(expected, dtype, e * stride + i / p.cols * row_stride + i % p.cols,
                               values[static_cast<std::size_t>(i)]);
            }
          }
          const Buffer dst(engine(), static_cast<std::int64_t>(expected.size()), 16);
          memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
          args.format = abi(format);
          args.rows = param().rows;
          args.columns = param().cols;
          args.n_experts = n_experts;
          args.slice = part.slice();
          args.src = src.data();
          args.src_stride = static_cast<std::uint64_t>(src_stride);
          if (scaled) args.expert_scales = scales.buffer().as<float>();
          args.dst = dst.data();
          args.dst_dtype = abi(dtype);
          if (padding != 0) {
            args.dst_row_stride = row_stride;
            args.dst_stride = stride;
          }
          ASSERT_TRUE(ok(memra_dequantize(engine().get(), &args, engine().stream())));
          engine().synchronize();
          EXPECT_TRUE(same_bytes(expected, dst.download()))
              << static_cast<int>(format) << " at " << p.row << " " << p.col << ", padding "
              << padding << ", scaled " << scaled;
          EXPECT_TRUE(dst.guards_intact());
        }
      }
    }
    EXPECT_TRUE(src.intact("src"));
  }
  EXPECT_TRUE(scales.intact("expert_scales"));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, WeightsDequantize,
    ::testing::Combine(both_backends(),
                       ::testing::Values(Case{DType::kF32, 8, 64}, Case{DType::kF32, 24, 320},
                                         Case{DType::kF16, 16, 128}, Case{DType::kF16, 40, 704},
                                         Case{DType::kBF16, 24, 192},
                                         Case{DType::kBF16, 16, 2880})),
    case_namer([](const Case& c) {
      std::string name = name_of_shape(c.rows, c.cols);
      name.append(c.dtype == DType::kF32 ? "_f32" : c.dtype == DType::kF16 ? "_f16" : "_bf16");
      return name;
    }));

class WeightsThirdParty : public BackendTest {};

TEST_P(WeightsThirdParty, BlocksDecodeToTheirBitsInV1AndAfterRepack) {
  const Bytes blocks = read_data("nvfp4_blocks.bin");
  const Bytes expected = read_data("nvfp4_dequant.f32");
  ASSERT_EQ(blocks.size(), static_cast<std::size_t>(reference::slab_bytes(256, 256)));
  ASSERT_EQ(expected.size(), std::size_t{256 * 256 * 4});
  std::vector<float> values(256 * 256);
  std::memcpy(values.data(), expected.data(), expected.size());
  ASSERT_TRUE(reference::count_values(values).informative());

  const Buffer bank(engine(), blocks);
  const Buffer decoded(engine(), static_cast<std::int64_t>(expected.size()));
  memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
  args.format = MEMRA_NVFP4;
  args.rows = args.columns = 256;
  args.n_experts = 1;
  args.src = bank.data();
  args.dst = decoded.data();
  ASSERT_TRUE(ok(memra_dequantize(engine().get(), &args, engine().stream())));
  engine().synchronize();
  EXPECT_TRUE(same_bytes(expected, decoded.download()));

  const Buffer workspace(engine(), static_cast<std::int64_t>(blocks.size()));
  memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
  repack.rows = repack.columns = 256;
  repack.n_experts = 1;
  repack.src = repack.dst = bank.data();
  repack.workspace = workspace.data();
  repack.workspace_bytes = blocks.size();
  ASSERT_TRUE(ok(memra_repack_v2(engine().get(), &repack, engine().stream())));
  decoded.fill(0xFF);
  args.format = MEMRA_NVFP4_V2;
  ASSERT_TRUE(ok(memra_dequantize(engine().get(), &args, engine().stream())));
  engine().synchronize();
  EXPECT_TRUE(same_bytes(expected, decoded.download()));
  EXPECT_NE(blocks, bank.download()) << "nothing was repacked";
}

TEST_P(WeightsThirdParty, OurQuantiserIsAsCloseToTheSourceAsTheirs) {
  const Bytes source = read_data("nvfp4_src.f32");
  const Input src(engine(), source);
  const Buffer bank(engine(), reference::slab_bytes(256, 256));
  const Buffer scale(engine(), 4);
  memra_quantize_args quantize = MEMRA_QUANTIZE_ARGS_INIT;
  quantize.format = MEMRA_NVFP4_V2;
  quantize.rows = quantize.columns = 256;
  quantize.n_experts = 1;
  quantize.src = src.data();
  quantize.compute_expert_scale = 1;
  quantize.dst = bank.data();
  quantize.expert_scales = scale.as<float>();
  ASSERT_TRUE(ok(memra_quantize_nvfp4(engine().get(), &quantize, engine().stream())));
  const Buffer decoded(engine(), static_cast<std::int64_t>(source.size()));
  memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
  args.format = MEMRA_NVFP4_V2;
  args.rows = args.columns = 256;
  args.n_experts = 1;
  args.src = bank.data();
  args.expert_scales = scale.as<float>();
  args.dst = decoded.data();
  ASSERT_TRUE(ok(memra_dequantize(engine().get(), &args, engine().stream())));
  engine().synchronize();
  const auto floats = [](const Bytes& bytes) {
    std::vector<float> result(bytes.size() / 4);
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  };
  const std::vector<float> exact = floats(source);
  const std::vector<double> wide(exact.begin(), exact.end());
  const auto ours = reference::closeness(wide, decoded.download_values<float>(), 256);
  const auto theirs = reference::closeness(wide, floats(read_data("nvfp4_dequant.f32")), 256);
  EXPECT_GT(ours.cosine, 0.99) << ours.text();
  EXPECT_LT(ours.relative_l2, 1.1 * theirs.relative_l2) << ours.text() << theirs.text();
}

MEMRA_ON_BOTH_BACKENDS(WeightsThirdParty);

}  // namespace
}  // namespace memra::test
