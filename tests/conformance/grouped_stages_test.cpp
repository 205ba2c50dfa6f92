// The stages of the grouped path by themselves. The order of z is the backend's own, so gathered
// rows are read back by a GEMM whose weights pick one column each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "conformance/banks.h"
#include "conformance/grouped.h"
#include "reference/exact.h"

namespace memra::test {
namespace {

using reference::DType;
using reference::Format;
using reference::Slab;

// The weights 1 of the identity: code 2 under the scale 1.
Slab identity(Format format, std::int64_t columns) {
  Slab slab(format, columns, columns);
  for (std::int64_t i = 0; i < columns; ++i) {
    reference::set_scale(slab, i, i, 0x38);
    reference::set_code(slab, i, i, 2);
  }
  return slab;
}

struct Rows {
  Bytes bytes;
  DType dtype = DType::kF32;
  std::int64_t rows = 0, columns = 0, stride = 0;

  std::vector<float> values() const {
    return reference::widen(bytes, dtype, rows, columns, stride);
  }
};

Rows make_rows(const std::vector<float>& values, std::int64_t columns, DType dtype,
               std::int64_t padding) {
  Rows made;
  made.dtype = dtype;
  made.columns = columns;
  made.rows = static_cast<std::int64_t>(values.size()) / columns;
  made.stride = columns + padding;
  made.bytes.assign(
      static_cast<std::size_t>(made.rows * made.stride * reference::dtype_bytes(dtype)), 0xFF);
  for (std::int64_t i = 0; i < made.rows * columns; ++i) {
    reference::store(made.bytes, dtype, i / columns * made.stride + i % columns,
                     values[static_cast<std::size_t>(i)]);
  }
  return made;
}

// What can be told of gathered rows without the order of z.
class Gather : public BackendTest {
 protected:
  struct Gathered {
    Buffer z, zs;
    std::int64_t rows = 0, columns = 0;
  };

  Gathered gather(const Rows& x, const std::vector<std::int32_t>& index, std::int64_t top_k,
                  std::int64_t row_count = -1) {
    Gathered to;
    to.rows = index.empty() ? x.rows : static_cast<std::int64_t>(index.size());
    to.columns = x.columns;
    to.z = Buffer(engine(), to.rows * x.columns * 2, 128);
    to.zs = Buffer(engine(), to.rows * 4);
    const Input in(engine(), x.bytes, 16);
    const Input indices(engine(), index);
    const Buffer count(engine(), std::vector<std::int32_t>{static_cast<std::int32_t>(row_count)});
    memra_moe_gather_f16_args args = MEMRA_MOE_GATHER_F16_ARGS_INIT;
    args.x_dtype = abi(x.dtype);
    args.x = in.data();
    args.x_stride = x.stride == x.columns ? 0 : x.stride;
    args.source_rows = x.rows;
    args.rows = to.rows;
    args.columns = x.columns;
    args.z = to.z.data();
    args.zs = to.zs.as<float>();
    if (!index.empty()) args.index = indices.buffer().as<std::int32_t>();
    args.top_k = top_k;
    if (row_count >= 0) args.row_count = count.as<std::int32_t>();
    require(memra_moe_gather_f16(engine().get(), &args, engine().stream()));
    engine().synchronize();
    EXPECT_TRUE(to.z.guards_intact());
    EXPECT_TRUE(to.zs.guards_intact());
    EXPECT_TRUE(in.intact("x"));
    return to;
  }
};

class GroupedStages : public GroupedOnly<Gather> {
 protected:
  // One expert's slab to each group of rows; a slab without bytes is NULL.
  struct Gemm {
    std::vector<Slab> slabs;
    std::vector<std::int32_t> active, offsets;
    std::vector<float> scales;  // empty or one each
    std::vector<float> bias;    // empty or [slabs, outputs]; the first expert has none
    std::optional<std::int32_t> n_active = std::nullopt;  // else all of `active`
    std::int32_t plane = 1;
  };

  std::vector<float> multiply(const Gathered& x, const Gemm& gemm) {
    const auto n = static_cast<std::int64_t>(gemm.slabs.size());
    const std::int64_t outputs = gemm.slabs[0].rows;
    std::vector<Input> memory;
    std::vector<const void*> ptrs(static_cast<std::size_t>(3 * n), nullptr);
    std::vector<float> scales(static_cast<std::size_t>(3 * n), 1e30f);
    std::vector<const float*> bias(static_cast<std::size_t>(3 * n), nullptr);
    const Input bias_rows(engine(), gemm.bias);
    for (std::int64_t e = 0; e < n; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const auto entry = static_cast<std::size_t>(gemm.plane * n + e);
      memory.emplace_back(engine(), gemm.slabs[at].bytes,
                          gemm.slabs[at].format == Format::kV1 ? 4 : 16);
      if (!gemm.slabs[at].bytes.empty()) ptrs[entry] = memory.back().data();
      if (!gemm.scales.empty()) scales[entry] = gemm.scales[at];
      if (!gemm.bias.empty() && e > 0) bias[entry] = bias_rows.buffer().as<float>(e * outputs);
    }
    const Input ptr_table(engine(), ptrs), scale_table(engine(), scales);
    const Input bias_table(engine(), bias);
    const Input active(engine(), gemm.active), offsets(engine(), gemm.offsets);
    const auto all = static_cast<std::int32_t>(gemm.active.size());
    const Buffer n_active(engine(), std::vector<std::int32_t>{gemm.n_active.value_or(all)});
    const Buffer out(engine(), x.rows * outputs * 4, 16);
    memra_moe_grouped_gemm_args args = MEMRA_MOE_GROUPED_GEMM_ARGS_INIT;
    args.rows = x.rows;
    args.columns = x.columns;
    args.outputs = outputs;
    args.n_experts = n;
    args.format = abi(gemm.slabs[0].format);
    args.plane = gemm.plane;
    args.ptrs = ptr_table.buffer().as<const void*>();
    args.n_active = n_active.as<std::int32_t>();
    args.active_experts = active.buffer().as<std::int32_t>();
    args.offsets = offsets.buffer().as<std::int32_t>();
    args.z = x.z.data();
    args.zs = x.zs.as<float>();
    args.out = out.as<float>();
    if (!gemm.scales.empty()) args.scales = scale_table.buffer().as<float>();
    if (!gemm.bias.empty()) args.bias = bias_table.buffer().as<const float*>();
    require(
        memra_moe_grouped_gemm_workspace_size(engine().get(), args.rows, n, &args.workspace_bytes));
    const Buffer workspace(engine(), static_cast<std::int64_t>(args.workspace_bytes));
    args.workspace = workspace.data();
    require(memra_moe_grouped_gemm(engine().get(), &args, engine().stream()));
    engine().synchronize();
    EXPECT_TRUE(out.guards_intact());
    return out.download_values<float>();
  }

  std::vector<float> read_back(const Gathered& x) {
    Gemm gemm;
    gemm.slabs = {identity(Format::kV2, x.columns)};
    gemm.active = {0};
    gemm.offsets = {0, static_cast<std::int32_t>(x.rows)};
    return multiply(x, gemm);
  }
};

std::vector<float> random_values(std::uint64_t seed, std::int64_t count) {
  reference::Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = random.normal();
  return values;
}

// A row is the same whether place, row or pair names it; z depends on rows, so all have as many.
TEST_P(Gather, RowsAreTheSameHoweverTheyAreNamed) {
  constexpr std::int64_t kRows = 9;
  for (const std::int64_t columns : {64, 192, 4096, 8256}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Rows x = make_rows(random_values(12, kRows * columns), columns, dtype, 8);
      std::vector<std::int32_t> rows, pairs;
      for (std::int32_t row = 0; row < kRows; ++row) {
        rows.push_back(row);
        pairs.push_back(3 * row + row % 3);
      }
      const Gathered all = gather(x, {}, 0);
      for (const Gathered& other : {gather(x, rows, 0), gather(x, pairs, 3)}) {
        EXPECT_TRUE(same_bytes(all.z.download(), other.z.download())) << columns;
        EXPECT_TRUE(same_bytes(all.zs.download(), other.zs.download())) << columns;
      }
    }
  }
}

TEST_P(Gather, RowsFromTheCountOnAreLeftAlone) {
  const Rows x = make_rows(random_values(13, 5 * 64), 64, DType::kF16, 8);
  for (const std::int64_t count : {0, 1, 3, 5}) {
    const Gathered some = gather(x, {}, 0, count);
    const std::vector<std::uint32_t> zs = some.zs.download_values<std::uint32_t>();
    for (std::int64_t row = 0; row < 5; ++row)
      EXPECT_EQ(zs[static_cast<std::size_t>(row)] == 0xFFFFFFFFu, row >= count) << count;
    const std::vector<std::uint16_t> z = some.z.download_values<std::uint16_t>();
    EXPECT_EQ(std::count(z.begin(), z.end(), 0xFFFFu), (5 - count) * 64) << count;
  }
}

TEST_P(Gather, ScalesOfZeroNonFiniteAndMissingRows) {
  constexpr std::int64_t kColumns = 192;
  std::vector<float> values = random_values(14, 5 * kColumns);
  std::fill_n(values.begin(), kColumns, -0.0f);
  values[kColumns + 191] = std::numeric_limits<float>::quiet_NaN();
  values[2 * kColumns] = std::numeric_limits<float>::infinity();
  std::fill_n(values.begin() + 3 * kColumns, kColumns, 1e-41f);
  const Rows x = make_rows(values, kColumns, DType::kF32, 0);
  const Gathered gathered = gather(x, {0, 1, 2, 3, 4, 5, -1}, 0);
  const std::vector<float> zs = gathered.zs.download_values<float>();
  for (const std::size_t row : {0, 5, 6})
    EXPECT_EQ(zs[row], 1.0f) << row;
  for (const std::size_t row : {1, 2})
    EXPECT_EQ(reference::bits_of(zs[row]), reference::kCanonicalNanF32) << row;
  for (const std::size_t row : {3, 4}) {
    int exponent = 0;
    EXPECT_EQ(std::frexp(zs[row], &exponent), 0.5f) << row;
  }
}

// Rows of every magnitude, and small values beside large ones.
TEST_P(GroupedStages, GatherKeepsElevenBits) {
  constexpr std::int64_t kColumns = 192;
  std::vector<float> values;
  reference::Random random(8);
  for (int exponent = -140; exponent <= 127; exponent += 3) {
    for (std::int64_t i = 0; i < kColumns; ++i) {
      const int below = i == 0 ? 0 : static_cast<int>(random.below(i % 2 == 0 ? 4 : 30));
      values.push_back(std::ldexp(random.uniform(-1.99f, 1.99f), exponent - below));
    }
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Rows x = make_rows(values, kColumns, dtype, dtype == DType::kF32 ? 4 : 0);
    const std::vector<float> source = x.values();
    const Gathered gathered = gather(x, {}, 0);
    const std::vector<float> zs = gathered.zs.download_values<float>();
    const std::vector<float> back = read_back(gathered);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const auto begin = source.begin() + row * kColumns;
      const float amax = std::abs(*std::max_element(
          begin, begin + kColumns, [](float a, float b) { return std::abs(a) < std::abs(b); }));
      int exponent = 0;
      const float scale = zs[static_cast<std::size_t>(row)];
      ASSERT_EQ(std::frexp(scale, &exponent), 0.5f) << row;
      ASSERT_LT(amax / scale, 65520.0f) << row;
      if (amax >= 0x1p-100f) {
        ASSERT_GE(amax / scale, 0.25f) << row;
      }
      for (std::int64_t i = 0; i < kColumns; ++i) {
        const auto at = static_cast<std::size_t>(row * kColumns + i);
        const double error = std::abs(static_cast<double>(back[at]) - source[at]);
        // Half a unit of f16, normal or, beside the largest value, subnormal.
        const double limit = std::max(std::abs(static_cast<double>(source[at])) * 0x1p-11,
                                      static_cast<double>(scale) * 0x1p-25);
        ASSERT_LE(error, limit) << row << ", " << i << ": " << source[at];
      }
    }
  }
}

TEST_P(GroupedStages, GatherTakesPairsAndRows) {
  constexpr std::int64_t kColumns = 64;
  // What f16 holds exactly.
  std::vector<float> values(5 * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i + 1);
  const Rows x = make_rows(values, kColumns, DType::kF16, 8);
  const auto expect_row = [&](const std::vector<float>& back, std::int64_t row, std::int64_t from) {
    for (std::int64_t i = 0; i < kColumns; ++i) {
      ASSERT_EQ(back[static_cast<std::size_t>(row * kColumns + i)],
                from < 0 ? 0.0f : values[static_cast<std::size_t>(from * kColumns + i)])
          << row << ", " << i;
    }
  };
  // Rows, with some that name none.
  const std::vector<std::int32_t> rows = {4, 0, 0, -1, 5, 3, 1 << 30, -(1 << 30)};
  std::vector<float> back = read_back(gather(x, rows, 0));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    expect_row(back, static_cast<std::int64_t>(r), rows[r] >= 0 && rows[r] < 5 ? rows[r] : -1);
  }
  // Pairs.
  const std::vector<std::int32_t> pairs = {0, 1, 2, 3, 14, 13, 12, 11, 15, -1};
  back = read_back(gather(x, pairs, 3));
  for (std::size_t r = 0; r < pairs.size(); ++r) {
    const std::int64_t from = pairs[r] < 0 ? -1 : pairs[r] / 3;
    expect_row(back, static_cast<std::int64_t>(r), from < 5 ? from : -1);
  }
}

TEST_P(GroupedStages, GatherOfZeroAndNonFiniteRows) {
  constexpr std::int64_t kColumns = 128;
  std::vector<float> values = random_values(2, 4 * kColumns);
  std::fill_n(values.begin(), kColumns, -0.0f);
  values[kColumns + 77] = std::numeric_limits<float>::quiet_NaN();
  values[3 * kColumns - 1] = -std::numeric_limits<float>::infinity();
  const Gathered gathered = gather(make_rows(values, kColumns, DType::kF32, 0), {}, 0);
  const std::vector<float> zs = gathered.zs.download_values<float>();
  EXPECT_EQ(zs[0], 1.0f);
  EXPECT_EQ(reference::bits_of(zs[1]), reference::kCanonicalNanF32);
  EXPECT_EQ(reference::bits_of(zs[2]), reference::kCanonicalNanF32);
  const std::vector<float> back = read_back(gathered);
  for (std::int64_t i = 0; i < kColumns; ++i) {
    ASSERT_EQ(reference::bits_of(back[static_cast<std::size_t>(i)]), 0u);
    for (const std::int64_t row : {1, 2}) {
      ASSERT_EQ(reference::bits_of(back[static_cast<std::size_t>(row * kColumns + i)]),
                reference::kCanonicalNanF32);
    }
    ASSERT_TRUE(std::isfinite(back[static_cast<std::size_t>(3 * kColumns + i)]));
  }
}

// Experts with none, one and many rows, a NULL slab, an expert outside the tables, rows of no one.
TEST_P(GroupedStages, GemmIsCloseToF64) {
  struct Shape {
    std::int64_t outputs, columns;
  };
  for (const Shape& shape : {Shape{64, 64}, Shape{320, 192}, Shape{128, 2688}, Shape{192, 640}}) {
    for (const Format format : {Format::kV1, Format::kV2}) {
      reference::Random random(21);
      Gemm gemm;
      for (int e = 0; e < 6; ++e) {
        gemm.slabs.push_back(reference::random_slab(random, format, shape.outputs, shape.columns,
                                                    reference::ScaleCodes::kAll));
        gemm.scales.push_back(random.uniform(0.5f, 2.0f));
      }
      gemm.slabs[4].bytes.clear();
      gemm.bias = random_values(4, 6 * shape.outputs);
      gemm.active = {0, 1, 2, 3, 4, 77};
      gemm.offsets = {0, 0, 1, 1, 130, 133, 140};
      gemm.plane = format == Format::kV1 ? 0 : 2;
      const std::int64_t rows = 143;
      const std::vector<float> values = random_values(5, rows * shape.columns);
      const Gathered x = gather(make_rows(values, shape.columns, DType::kF32, 0), {}, 0);
      const std::vector<float> out = multiply(x, gemm);
      const std::vector<double> x_exact(values.begin(), values.end());
      std::vector<double> dots[6];
      for (const std::size_t e : {1, 3})
        dots[e] = reference::exact_product(gemm.slabs[e], x_exact);
      std::vector<double> exact;
      std::vector<float> actual;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto begin = out.begin() + row * shape.outputs;
        if (row >= 130) {
          // Skipped, and then untouched.
          const std::uint32_t expected = row < 140 ? 0u : 0xFFFFFFFFu;
          ASSERT_TRUE(std::all_of(begin, begin + shape.outputs, [&](float value) {
            return reference::bits_of(value) == expected;
          })) << row;
          continue;
        }
        const std::size_t e = row < 1 ? 1 : 3;
        for (std::int64_t i = 0; i < shape.outputs; ++i) {
          const auto at = static_cast<std::size_t>(i);
          exact.push_back(dots[e][static_cast<std::size_t>(row * shape.outputs + i)] *
                              gemm.scales[e] +
                          gemm.bias[e * static_cast<std::size_t>(shape.outputs) + at]);
          actual.push_back(begin[i]);
        }
      }
      const reference::Closeness close = reference::closeness(exact, actual, shape.outputs);
      EXPECT_LE(close.relative_l2, 5e-4) << close.text();
    }
  }
}

// Whatever the neighbours: each row of a large group by itself.
TEST_P(GroupedStages, RowsOfAGemmDoNotDependOnTheirCompany) {
  constexpr std::int64_t kColumns = 320, kOutputs = 128, kRows = 133;
  reference::Random random(6);
  Gemm gemm;
  gemm.slabs = {reference::random_slab(random, Format::kV2, kOutputs, kColumns,
                                       reference::ScaleCodes::kBand)};
  gemm.active = {0};
  gemm.offsets = {0, kRows};
  const Rows x = make_rows(random_values(7, kRows * kColumns), kColumns, DType::kF32, 0);
  const std::vector<float> all = multiply(gather(x, {}, 0), gemm);
  ASSERT_TRUE(reference::count_values(all).informative());
  for (const std::int32_t row : {0, 1, 5, 63, 64, 127, 132}) {
    gemm.offsets = {0, 1};
    const std::vector<float> one = multiply(gather(x, {row}, 0), gemm);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + row * kOutputs)) << row;
  }
}

// Offsets are data: nothing outside out is read or written, whatever they are.
TEST_P(GroupedStages, OffsetsThatReachTooFarAreCut) {
  const Rows x = make_rows(random_values(9, 5 * 64), 64, DType::kF32, 0);
  Gemm gemm;
  gemm.slabs = {identity(Format::kV1, 64), identity(Format::kV1, 64)};
  gemm.active = {0, 1};
  gemm.offsets = {-7, 3, 1 << 30};
  const Gathered gathered = gather(x, {}, 0);
  EXPECT_EQ(multiply(gathered, gemm), read_back(gathered));
  gemm.n_active = 1 << 30;
  EXPECT_EQ(multiply(gathered, gemm), read_back(gathered));
  gemm.n_active = -3;
  for (const float value : multiply(gathered, gemm))
    ASSERT_EQ(reference::bits_of(value), 0xFFFFFFFFu);
}

MEMRA_ON_BOTH_BACKENDS(Gather);
MEMRA_ON_BOTH_BACKENDS(GroupedStages);

}  // namespace
}  // namespace memra::test
