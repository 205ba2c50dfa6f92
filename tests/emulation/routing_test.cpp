// Routing and the conversion of activations by the emulated kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "emulation/guarded.h"
#include "emulation/machine.h"
#include "emulation/support.h"
#include "grouped.h"
#include "grouped_layout.cuh"
#include "numerics/f16_rows.h"
#include "reference/floats.h"
#include "reference/generate.h"
#include "reference/routing.h"

namespace memra::emulation {
namespace {

namespace ref = memra::reference;

// ---- Routing

struct RouteShape {
  int64_t tokens, top_k, n_experts, offset, n_local;
};

std::vector<int32_t> random_ids(const RouteShape& shape, ref::Random& random) {
  std::vector<int32_t> ids(static_cast<size_t>(shape.tokens * shape.top_k));
  for (int32_t& id : ids) {
    const int64_t kind = random.below(40);
    id = static_cast<int32_t>(random.below(shape.n_experts));
    if (kind == 0) id = -1;
    if (kind == 1) id = std::numeric_limits<int32_t>::min();
    if (kind == 2) id = static_cast<int32_t>(shape.n_experts);
    if (kind < 12 && kind > 2) id = static_cast<int32_t>(shape.offset);  // one that many want
  }
  return ids;
}

void expect_sorted(const RouteShape& shape, uint64_t seed) {
  ref::Random random(seed);
  const std::vector<int32_t> ids = random_ids(shape, random);
  const int64_t pairs = shape.tokens * shape.top_k;
  std::vector<const void*> pointers(static_cast<size_t>(3 * shape.n_local), &ids);
  std::vector<bool> missing(static_cast<size_t>(shape.n_local));
  for (int64_t expert = 0; expert < shape.n_local; expert += 5) {
    missing[static_cast<size_t>(expert)] = true;
    pointers[static_cast<size_t>(random.below(3) * shape.n_local + expert)] = nullptr;
  }
  Guarded<int32_t> n_active(1), active(static_cast<size_t>(shape.n_local));
  Guarded<int32_t> offsets(static_cast<size_t>(shape.n_local + 1));
  Guarded<int32_t> order(static_cast<size_t>(pairs)), inverse(static_cast<size_t>(pairs));
  Guarded<uint8_t> workspace(cuda::route_workspace(pairs, shape.n_local));
  uint64_t invalid = 5;

  memra_moe_route_args args{};
  args.tokens = shape.tokens;
  args.top_k = shape.top_k;
  args.n_experts = shape.n_experts;
  args.local_expert_offset = shape.offset;
  args.n_local_experts = shape.n_local;
  args.topk_ids = ids.data();
  args.expert_ptrs = pointers.data();
  args.n_active = n_active.data();
  args.active_experts = active.data();
  args.offsets = offsets.data();
  args.pair_order = order.data();
  args.inverse = inverse.data();
  args.invalid_ids = &invalid;
  args.workspace = workspace.data();
  ASSERT_EQ(cuda::route(device(true, 4), args, {}), MEMRA_OK);
  expect_no_faults("routing");
  EXPECT_TRUE(n_active.intact() && active.intact() && offsets.intact() && order.intact() &&
              inverse.intact() && workspace.intact());

  const ref::SortedPairs want =
      ref::sort_pairs(ids, shape.n_experts, shape.offset, shape.n_local, missing);
  EXPECT_EQ(n_active[0], want.n_active);
  EXPECT_EQ(active.values(), want.active);
  EXPECT_EQ(offsets.values(), want.offsets);
  EXPECT_EQ(order.values(), want.order);
  EXPECT_EQ(inverse.values(), want.inverse);
  EXPECT_EQ(invalid - 5, want.invalid);
}

TEST(EmulatedRouting, SortsLikeTheReference) {
  machine().seed(41);
  const RouteShape shapes[] = {
      {1, 1, 1, 0, 1},            // one block with few pairs
      {60, 8, 32, 0, 32},         // likewise
      {70, 8, 64, 16, 20},        // one block, a rank's part of the experts
      {500, 8, 257, 0, 257},      // likewise, more
      {700, 6, 64, 0, 64},        // several blocks
      {2100, 4, 300, 100, 200},   // likewise, a rank's part
      {50, 8, 2000, 0, 2000},     // by digits
      {800, 4, 5000, 900, 3000},  // by digits in several blocks
  };
  uint64_t seed = 1;
  for (const RouteShape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.tokens) + " tokens, " + std::to_string(shape.n_experts) +
                 " experts");
    expect_sorted(shape, ++seed);
  }
}

// ---- Activations

struct Rows {
  ref::DType dtype;
  int64_t tokens, columns, stride;
  std::vector<uint8_t> bytes;

  float value(int64_t token, int64_t column) const {
    return ref::load(bytes, dtype, token * stride + column);
  }
};

Rows random_rows(ref::DType dtype, int64_t tokens, int64_t columns, ref::Random& random) {
  Rows rows{dtype, tokens, columns, columns + 8, {}};
  rows.bytes.resize(static_cast<size_t>(tokens * rows.stride * ref::dtype_bytes(dtype)), 0xFF);
  for (int64_t token = 0; token < tokens; ++token) {
    const float size = std::ldexp(1.0f, static_cast<int>(random.below(20)) - 10);
    for (int64_t column = 0; column < columns; ++column)
      ref::store(rows.bytes, dtype, token * rows.stride + column, size * random.normal());
  }
  if (tokens > 2) {
    ref::store(rows.bytes, dtype, rows.stride + 3, std::numeric_limits<float>::quiet_NaN());
    for (int64_t column = 0; column < columns; ++column)
      ref::store(rows.bytes, dtype, 2 * rows.stride + column, 0.0f);
  }
  return rows;
}

// Row `row` of z is token `token`, or zeroes where that is negative.
void expect_row(const Rows& x, int64_t token, const Guarded<uint16_t>& z, const Guarded<float>& zs,
                int64_t n_rows, int64_t row) {
  uint32_t amax = 0;
  for (int64_t column = 0; token >= 0 && column < x.columns; ++column)
    amax = std::max(amax, numerics::magnitude_bits(x.value(token, column)));
  const bool finite = amax < numerics::kInfBits;
  const int32_t exponent = finite ? numerics::f16_exponent(amax) : 0;
  ASSERT_EQ(ref::bits_of(zs[row]),
            ref::bits_of(finite ? numerics::power_of_two(exponent) : ref::canonical_nan()));
  for (int64_t position = 0; position < x.columns; ++position) {
    const int64_t column = cuda::column_at(x.columns, position);
    const float value = finite && token >= 0 ? x.value(token, column) : 0.0f;
    ASSERT_EQ(z[cuda::z_index(n_rows, row, position)],
              static_cast<uint16_t>(numerics::f16_scaled(value, exponent)))
        << "row " << row << " column " << column;
  }
}

void expect_untouched(const Guarded<uint16_t>& z, const Guarded<float>& zs, int64_t n_rows,
                      int64_t row, int64_t columns) {
  ASSERT_EQ(ref::bits_of(zs[row]), 0xFFFFFFFFu);
  for (int64_t position = 0; position < columns; ++position)
    ASSERT_EQ(z[cuda::z_index(n_rows, row, position)], 0xFFFFu);
}

constexpr ref::DType kTypes[] = {ref::DType::kF32, ref::DType::kF16, ref::DType::kBF16};
constexpr int64_t kWidths[] = {64, 192, 320, 1024, 4160};

TEST(EmulatedActivations, GatherTakesRowsByIndex) {
  machine().seed(42);
  ref::Random random(42);
  for (const ref::DType dtype : kTypes) {
    for (const int64_t columns : kWidths) {
      constexpr int64_t kTokens = 5, kTopK = 3, kRows = 17;
      const int32_t row_count = 14;
      const Rows x = random_rows(dtype, kTokens, columns, random);
      const Guarded<uint8_t> memory(x.bytes);
      std::vector<int32_t> index(kRows);
      for (int32_t& entry : index)
        entry = static_cast<int32_t>(random.below(kTokens * kTopK + 2)) - 1;
      Guarded<uint16_t> z(kRows * static_cast<size_t>(columns));
      Guarded<float> zs(kRows);
      memra_moe_gather_f16_args args{};
      args.x_dtype = dtype_of(dtype);
      args.x = memory.data();
      args.x_stride = x.stride;
      args.source_rows = kTokens;
      args.rows = kRows;
      args.columns = columns;
      args.z = z.data();
      args.zs = zs.data();
      args.index = index.data();
      args.top_k = kTopK;
      args.row_count = &row_count;
      ASSERT_EQ(cuda::gather_f16(device(true, 4), args, {}), MEMRA_OK);
      expect_no_faults("gather");
      EXPECT_TRUE(z.intact() && zs.intact());
      for (int64_t row = 0; row < kRows; ++row) {
        const int32_t entry = index[static_cast<size_t>(row)];
        const int64_t token = entry >= 0 && entry / kTopK < kTokens ? entry / kTopK : -1;
        if (row < row_count) {
          expect_row(x, token, z, zs, kRows, row);
        } else {
          expect_untouched(z, zs, kRows, row, columns);
        }
      }
    }
  }
}

TEST(EmulatedActivations, ScatterPutsTokensAtTheirPairs) {
  machine().seed(43);
  ref::Random random(43);
  for (const ref::DType dtype : kTypes) {
    for (const int64_t columns : kWidths) {
      constexpr int64_t kTokens = 6, kTopK = 3, kPairs = kTokens * kTopK;
      const Rows x = random_rows(dtype, kTokens, columns, random);
      const Guarded<uint8_t> memory(x.bytes);
      std::vector<int32_t> places(kPairs), inverse(kPairs, -1);
      for (int32_t i = 0; i < kPairs; ++i)
        places[static_cast<size_t>(i)] = i;
      shuffle(places, random);
      std::vector<int64_t> token_of(kPairs, -1);
      for (int64_t pair = 0; pair < kPairs; ++pair) {
        if (random.below(4) == 0) continue;
        inverse[pair] = places[pair];
        token_of[places[pair]] = pair / kTopK;
      }
      Guarded<uint16_t> z(kPairs * static_cast<size_t>(columns));
      Guarded<float> zs(kPairs);
      cuda::ScatterF16Args args;
      args.x = memory.data();
      args.x_dtype = dtype_of(dtype);
      args.x_stride = x.stride;
      args.tokens = kTokens;
      args.top_k = kTopK;
      args.columns = columns;
      args.inverse = inverse.data();
      args.z = z.data();
      args.zs = zs.data();
      ASSERT_EQ(cuda::scatter_f16(device(true, 4), args, {}), MEMRA_OK);
      expect_no_faults("scatter");
      EXPECT_TRUE(z.intact() && zs.intact());
      for (int64_t row = 0; row < kPairs; ++row) {
        if (token_of[row] >= 0) {
          expect_row(x, token_of[row], z, zs, kPairs, row);
        } else {
          expect_untouched(z, zs, kPairs, row, columns);
        }
      }
    }
  }
}

}  // namespace
}  // namespace memra::emulation
