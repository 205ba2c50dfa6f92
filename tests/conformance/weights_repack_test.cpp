// memra_repack_v2 on both backends: out of place, in place, slices, and what it reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/banks.h"
#include "conformance/fixture.h"

namespace memra::test {
namespace {

using reference::Format;
using reference::InvalidScales;
using reference::Slab;

struct Size {
  std::int64_t rows;
  std::int64_t cols;
};

class WeightsRepack : public BackendCaseTest<Size> {
 protected:
  memra_repack_args base_args(std::int64_t n_experts) const {
    memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
    args.rows = param().rows;
    args.columns = param().cols;
    args.n_experts = n_experts;
    return args;
  }
  std::uint64_t slab_workspace() const {
    std::uint64_t bytes = 0;
    require(memra_repack_v2_workspace_size(param().rows, param().cols, &bytes));
    return bytes;
  }
  void run(const memra_repack_args& args) const {
    require(memra_repack_v2(engine().get(), &args, engine().stream()));
    engine().synchronize();
  }
};

TEST_P(WeightsRepack, OutOfPlace) {
  const std::int64_t n_experts = 3;
  const std::int64_t source_bytes = reference::slab_bytes(param().rows, param().cols);
  for (const bool invalid : {false, true}) {
    const auto slabs = random_slabs(1, Format::kV1, n_experts, param().rows, param().cols, invalid);
    for (const std::int64_t gap : {0, 4}) {
      const std::int64_t stride = source_bytes + gap;
      const Input source(engine(), bank_bytes(slabs, stride), gap);
      for (const Part& part : parts_of(param().rows, param().cols)) {
        InvalidScales found;
        const auto expected = convert_part(slabs, part, Format::kV2, &found);
        const std::int64_t slab = reference::slab_bytes(expected[0].rows, expected[0].cols);
        const std::int64_t dst_stride = slab + 4 * gap;
        const Bytes bank = bank_bytes(expected, dst_stride);
        const Buffer dst(engine(), static_cast<std::int64_t>(bank.size()), 16);
        const Report report(engine());
        memra_repack_args args = base_args(n_experts);
        args.slice = part.slice();
        args.src = source.data();
        args.src_stride = gap == 0 ? 0 : static_cast<std::uint64_t>(stride);
        args.dst = dst.data();
        args.dst_stride = gap == 0 ? 0 : static_cast<std::uint64_t>(dst_stride);
        args.report = report.get();
        run(args);
        EXPECT_TRUE(same_bytes(bank, dst.download())) << part.row << " " << part.col;
        EXPECT_TRUE(report.check(found)) << part.row << " " << part.col;
        EXPECT_TRUE(dst.guards_intact());
        EXPECT_TRUE(source.intact("src"));
      }
    }
  }
}

TEST_P(WeightsRepack, InPlaceEqualsOutOfPlace) {
  const std::int64_t n_experts = 5;
  const std::int64_t source_bytes = reference::slab_bytes(param().rows, param().cols);
  const auto slabs = random_slabs(2, Format::kV1, n_experts, param().rows, param().cols, true);
  // One slab at a time, several, and more than there are.
  for (const std::uint64_t slabs_at_once : {1, 2, 3, 8}) {
    for (const std::int64_t gap : {0, 32}) {
      const std::int64_t stride = source_bytes + gap;
      const Bytes before = bank_bytes(slabs, stride);
      const Buffer bank(engine(), before, 16);
      const Buffer workspace(engine(), static_cast<std::int64_t>(slabs_at_once * slab_workspace()));
      for (const Part& part : parts_of(param().rows, param().cols)) {
        InvalidScales found;
        const auto expected = convert_part(slabs, part, Format::kV2, &found);
        const std::int64_t slab = reference::slab_bytes(expected[0].rows, expected[0].cols);
        // Also closer together than the source, which frees the memory behind.
        for (const std::int64_t dst_stride : {slab, stride / 16 * 16}) {
          bank.upload(before);
          const Report report(engine());
          memra_repack_args args = base_args(n_experts);
          args.slice = part.slice();
          args.src = args.dst = bank.data();
          args.src_stride = static_cast<std::uint64_t>(stride);
          args.dst_stride = static_cast<std::uint64_t>(dst_stride);
          args.workspace = workspace.data();
          args.workspace_bytes = static_cast<std::uint64_t>(workspace.bytes());
          args.report = report.get();
          run(args);
          for (std::int64_t expert = 0; expert < n_experts; ++expert) {
            EXPECT_TRUE(same_bytes(expected[static_cast<std::size_t>(expert)].bytes,
                                   bank.download(expert * dst_stride, slab)))
                << "expert " << expert << ", " << slabs_at_once << " slabs of workspace, gap "
                << gap << ", slice at " << part.row << " " << part.col;
          }
          EXPECT_TRUE(report.check(found));
          EXPECT_TRUE(bank.guards_intact());
          EXPECT_TRUE(workspace.guards_intact());
        }
      }
    }
  }
}

TEST_P(WeightsRepack, WorkspaceIsOneSlabAndLessIsAnError) {
  const auto bytes = static_cast<std::uint64_t>(reference::slab_bytes(param().rows, param().cols));
  EXPECT_GE(slab_workspace(), bytes);
  EXPECT_LT(slab_workspace(), bytes + 256);
  const auto slabs = random_slabs(3, Format::kV1, 2, param().rows, param().cols);
  const Bytes before = bank_bytes(slabs, 0);
  const Buffer bank(engine(), before, 16);
  const Buffer workspace(engine(), static_cast<std::int64_t>(slab_workspace()));
  memra_repack_args args = base_args(2);
  args.src = args.dst = bank.data();
  args.workspace = workspace.data();
  args.workspace_bytes = slab_workspace() - 1;
  EXPECT_TRUE(fails_with(memra_repack_v2(engine().get(), &args, engine().stream()),
                         MEMRA_ERROR_WORKSPACE_TOO_SMALL, {"workspace_bytes"}));
  engine().synchronize();
  EXPECT_TRUE(same_bytes(before, bank.download()));
  args.workspace_bytes = slab_workspace();
  EXPECT_TRUE(ok(memra_repack_v2(engine().get(), &args, engine().stream())));
  engine().synchronize();
}

INSTANTIATE_TEST_SUITE_P(
    Backends, WeightsRepack,
    ::testing::Combine(both_backends(),
                       ::testing::Values(Size{8, 64}, Size{16, 128}, Size{24, 192}, Size{64, 320},
                                         Size{40, 704}, Size{128, 1408}, Size{16, 2880})),
    case_namer([](const Size& size) { return name_of_shape(size.rows, size.cols); }));

class WeightsRepackProperties : public BackendTest {};

TEST_P(WeightsRepackProperties, PartialOverlapIsAnErrorAndWritesNothing) {
  const std::int64_t slab = reference::slab_bytes(16, 128);
  const auto slabs = random_slabs(4, Format::kV1, 2, 16, 128);
  Bytes before = bank_bytes(slabs, 0);
  before.resize(before.size() + 64, 0xAB);
  const Buffer bank(engine(), before, 16);
  const Buffer workspace(engine(), slab);
  memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
  args.rows = 16;
  args.columns = 128;
  args.n_experts = 2;
  args.src = bank.data();
  args.workspace = workspace.data();
  args.workspace_bytes = static_cast<std::uint64_t>(slab);
  for (const std::int64_t shift : {std::int64_t{16}, std::int64_t{64}}) {
    args.dst = bank.data() + shift;
    EXPECT_TRUE(fails_with(memra_repack_v2(engine().get(), &args, engine().stream()),
                           MEMRA_ERROR_INVALID_ARGUMENT, {"dst"}));
  }
  engine().synchronize();
  EXPECT_TRUE(same_bytes(before, bank.download()));
}

TEST_P(WeightsRepackProperties, EveryInvalidCodeInEveryPlaceOfATileIsFound) {
  const std::int64_t rows = 8;
  const std::int64_t cols = 192;
  const Buffer source(engine(), reference::slab_bytes(rows, cols));
  const Buffer dst(engine(), reference::slab_bytes(rows, cols));
  const Report report(engine());
  memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
  args.rows = rows;
  args.columns = cols;
  args.n_experts = 1;
  args.src = source.data();
  args.dst = dst.data();
  args.report = report.get();
  const Slab clean = random_slabs(5, Format::kV1, 1, rows, cols)[0];
  int code = 0x7F;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; col += 16, code = code == 0xFF ? 0x7F : code + 1) {
      std::vector<Slab> slabs = {clean};
      reference::set_scale(slabs[0], row, col, static_cast<std::uint8_t>(code));
      source.upload(slabs[0].bytes);
      InvalidScales found;
      const auto expected = convert_part(slabs, {}, Format::kV2, &found);
      ASSERT_EQ(found.count, 1u);
      ASSERT_TRUE(ok(memra_repack_v2(engine().get(), &args, engine().stream())));
      engine().synchronize();
      ASSERT_TRUE(report.check(found)) << row << ", " << col << ", code " << code;
      ASSERT_TRUE(same_bytes(expected[0].bytes, dst.download())) << row << ", " << col;
    }
  }
}

TEST_P(WeightsRepackProperties, ManySlabs) {
  const std::int64_t n_experts = 384;
  const auto slabs = random_slabs(6, Format::kV1, n_experts, 8, 64);
  const Input source(engine(), bank_bytes(slabs, 0));
  InvalidScales found;
  const Bytes expected = bank_bytes(convert_part(slabs, {}, Format::kV2, &found), 0);
  const Buffer dst(engine(), static_cast<std::int64_t>(expected.size()));
  memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
  args.rows = 8;
  args.columns = 64;
  args.n_experts = n_experts;
  args.src = source.data();
  args.dst = dst.data();
  ASSERT_TRUE(ok(memra_repack_v2(engine().get(), &args, engine().stream())));
  engine().synchronize();
  EXPECT_TRUE(same_bytes(expected, dst.download()));
}

MEMRA_ON_BOTH_BACKENDS(WeightsRepackProperties);

}  // namespace
}  // namespace memra::test
