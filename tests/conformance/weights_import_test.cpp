// memra_import_nvfp4 on both backends: both checkpoint families, both formats, slices, reports.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "conformance/banks.h"
#include "conformance/fixture.h"
#include "reference/weights.h"

namespace memra::test {
namespace {

using reference::Format;
using reference::InvalidScales;
using reference::Slab;

constexpr Format kFormats[] = {Format::kV1, Format::kV2};

struct Size {
  std::int64_t rows;
  std::int64_t cols;
};

// Matrices of a checkpoint, `gap` bytes between them.
struct Planes {
  Bytes codes;
  Bytes scales;
  std::int64_t codes_stride = 0;
  std::int64_t scales_stride = 0;
};

Planes export_planes(const std::vector<Slab>& slabs, std::int64_t gap) {
  Planes planes;
  for (const Slab& slab : slabs) {
    const reference::Checkpoint checkpoint = reference::export_nvfp4(slab);
    const auto append = [&](Bytes& to, const Bytes& from, std::int64_t& stride) {
      if (!to.empty()) to.insert(to.end(), static_cast<std::size_t>(gap), 0xFF);
      to.insert(to.end(), from.begin(), from.end());
      stride = static_cast<std::int64_t>(from.size()) + gap;
    };
    append(planes.codes, checkpoint.codes, planes.codes_stride);
    append(planes.scales, checkpoint.scales, planes.scales_stride);
  }
  return planes;
}

memra_import_args base_args(const std::vector<Slab>& slabs, const Input& codes, const Input& scales,
                            const std::vector<float>& global_scales,
                            std::vector<float>& expert_scales) {
  memra_import_args args = MEMRA_IMPORT_ARGS_INIT;
  args.rows = slabs[0].rows;
  args.columns = slabs[0].cols;
  args.n_experts = static_cast<std::int64_t>(slabs.size());
  args.codes = codes.data();
  args.scales = scales.data();
  args.global_scales = global_scales.data();
  args.global_scale = MEMRA_GLOBAL_SCALE_DIRECT;
  args.expert_scales = expert_scales.data();
  return args;
}

class WeightsImport : public BackendCaseTest<Size> {};

TEST_P(WeightsImport, BothFormatsEveryPart) {
  const std::vector<float> global_scales = {0.125f, 3.0e-3f, 7.0f};
  for (const bool invalid : {false, true}) {
    const auto slabs = random_slabs(1, Format::kV1, 3, param().rows, param().cols, invalid);
    for (const std::int64_t gap : {0, 4}) {
      const Planes planes = export_planes(slabs, gap);
      const Input codes(engine(), planes.codes, gap);
      const Input scales(engine(), planes.scales, gap);
      for (const Format format : kFormats) {
        for (const Part& part : parts_of(param().rows, param().cols)) {
          InvalidScales found;
          const auto expected = convert_part(slabs, part, format, &found);
          const std::int64_t stride =
              reference::slab_bytes(expected[0].rows, expected[0].cols) + 4 * gap;
          const Bytes bank = bank_bytes(expected, stride);
          const Buffer dst(engine(), static_cast<std::int64_t>(bank.size()),
                           format == Format::kV1 ? 4 : 16);
          const Report report(engine());
          std::vector<float> expert_scales(3, -1.0f);
          memra_import_args args = base_args(slabs, codes, scales, global_scales, expert_scales);
          args.format = static_cast<memra_format>(format);
          args.slice = part.slice();
          if (gap != 0) {
            args.codes_stride = static_cast<std::uint64_t>(planes.codes_stride);
            args.scales_stride = static_cast<std::uint64_t>(planes.scales_stride);
            args.dst_stride = static_cast<std::uint64_t>(stride);
          }
          args.dst = dst.data();
          args.report = report.get();
          ASSERT_TRUE(ok(memra_import_nvfp4(engine().get(), &args, engine().stream())));
          EXPECT_EQ(expert_scales, global_scales);  // before any synchronisation
          engine().synchronize();
          EXPECT_TRUE(same_bytes(bank, dst.download()))
              << static_cast<int>(format) << " at " << part.row << " " << part.col;
          EXPECT_TRUE(report.check(found));
          EXPECT_TRUE(dst.guards_intact());
        }
      }
      EXPECT_TRUE(codes.intact("codes"));
      EXPECT_TRUE(scales.intact("scales"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, WeightsImport,
    ::testing::Combine(both_backends(),
                       ::testing::Values(Size{8, 64}, Size{16, 128}, Size{24, 192}, Size{64, 320},
                                         Size{40, 704}, Size{16, 2880})),
    case_namer([](const Size& size) { return name_of_shape(size.rows, size.cols); }));

class WeightsImportProperties : public BackendTest {
 protected:
  const std::vector<Slab> slabs_ = random_slabs(2, Format::kV1, 2, 16, 192);
  const Planes planes_ = export_planes(slabs_, 0);
};

TEST_P(WeightsImportProperties, FamiliesGiveTheSameBankAndTheirOwnScale) {
  const Input codes(engine(), planes_.codes);
  const Input scales(engine(), planes_.scales);
  // 1 / 3 is rounded to nearest.
  const std::vector<float> global_scales = {3.0f, 0.0625f};
  Bytes banks[2];
  const memra_global_scale families[] = {MEMRA_GLOBAL_SCALE_DIRECT, MEMRA_GLOBAL_SCALE_RECIPROCAL};
  for (int i = 0; i < 2; ++i) {
    const Buffer dst(engine(), 2 * reference::slab_bytes(16, 192));
    std::vector<float> expert_scales(2, -1.0f);
    memra_import_args args = base_args(slabs_, codes, scales, global_scales, expert_scales);
    args.format = MEMRA_NVFP4_V2;
    args.global_scale = families[i];
    args.dst = dst.data();
    ASSERT_TRUE(ok(memra_import_nvfp4(engine().get(), &args, engine().stream())));
    engine().synchronize();
    const auto kind =
        i == 0 ? reference::GlobalScale::kDirect : reference::GlobalScale::kReciprocal;
    for (std::size_t e = 0; e < 2; ++e)
      EXPECT_EQ(expert_scales[e], reference::imported_expert_scale(global_scales[e], kind));
    banks[i] = dst.download();
  }
  EXPECT_TRUE(same_bytes(banks[0], banks[1]));
}

// A bank from either importer holds the codes 0..15 as the values they stand for, in their order.
TEST_P(WeightsImportProperties, NibbleOrderOfBothFamilies) {
  Bytes codes(8 * 32);
  for (std::size_t j = 0; j < codes.size(); ++j)
    codes[j] = static_cast<std::uint8_t>(2 * (j % 8) | (2 * (j % 8) + 1) << 4);
  const Bytes ones(8 * 4, 0x38);
  const Input codes_in(engine(), codes);
  const Input scales_in(engine(), ones);
  const float values[16] = {0, 0.5f,  1,     1.5f,  2,     3,     4,     6,
                            0, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  for (const Format format : kFormats) {
    for (const memra_global_scale family :
         {MEMRA_GLOBAL_SCALE_DIRECT, MEMRA_GLOBAL_SCALE_RECIPROCAL}) {
      const Buffer bank(engine(), reference::slab_bytes(8, 64));
      const Buffer decoded(engine(), 8 * 64 * 4);
      const float one = 1.0f;
      float expert_scale = 0.0f;
      memra_import_args args = MEMRA_IMPORT_ARGS_INIT;
      args.format = static_cast<memra_format>(format);
      args.rows = 8;
      args.columns = 64;
      args.n_experts = 1;
      args.codes = codes_in.data();
      args.scales = scales_in.data();
      args.global_scales = &one;
      args.global_scale = family;
      args.dst = bank.data();
      args.expert_scales = &expert_scale;
      ASSERT_TRUE(ok(memra_import_nvfp4(engine().get(), &args, engine().stream())));
      memra_dequantize_args dequantize = MEMRA_DEQUANTIZE_ARGS_INIT;
      dequantize.format = args.format;
      dequantize.rows = 8;
      dequantize.columns = 64;
      dequantize.n_experts = 1;
      dequantize.src = bank.data();
      dequantize.dst = decoded.data();
      ASSERT_TRUE(ok(memra_dequantize(engine().get(), &dequantize, engine().stream())));
      engine().synchronize();
      const auto actual = decoded.download_values<float>();
      for (std::size_t i = 0; i < actual.size(); ++i)
        ASSERT_EQ(reference::bits_of(actual[i]), reference::bits_of(values[i % 16])) << i;
    }
  }
}

TEST_P(WeightsImportProperties, BadGlobalScalesAreErrorsAndNothingIsDone) {
  const Input codes(engine(), planes_.codes);
  const Input scales(engine(), planes_.scales);
  const Buffer dst(engine(), 2 * reference::slab_bytes(16, 192));
  const float inf = std::numeric_limits<float>::infinity();
  const auto expect_refused = [&](memra_global_scale family, float bad) {
    const std::vector<float> global_scales = {1.0f, bad};
    std::vector<float> expert_scales(2, -1.0f);
    memra_import_args args = base_args(slabs_, codes, scales, global_scales, expert_scales);
    args.format = MEMRA_NVFP4;
    args.global_scale = family;
    args.dst = dst.data();
    EXPECT_TRUE(fails_with(memra_import_nvfp4(engine().get(), &args, engine().stream()),
                           MEMRA_ERROR_INVALID_ARGUMENT, {"global_scale"}))
        << family << ", " << bad;
    engine().synchronize();
    EXPECT_EQ(expert_scales, std::vector<float>(2, -1.0f));
    EXPECT_TRUE(same_bytes(Bytes(static_cast<std::size_t>(dst.bytes()), 0xFF), dst.download()));
  };
  for (const float bad : {0.0f, -0.0f, -1.0f, inf, -inf, reference::canonical_nan()}) {
    expect_refused(MEMRA_GLOBAL_SCALE_DIRECT, bad);
    expect_refused(MEMRA_GLOBAL_SCALE_RECIPROCAL, bad);
  }
  expect_refused(MEMRA_GLOBAL_SCALE_RECIPROCAL, 1e-40f);  // 1 / g is Inf
  expect_refused(0, 1.0f);                                // never a guess
  expect_refused(3, 1.0f);
}

MEMRA_ON_BOTH_BACKENDS(WeightsImportProperties);

}  // namespace
}  // namespace memra::test
