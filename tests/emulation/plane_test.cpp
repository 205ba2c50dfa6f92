// Products of one plane by the emulated kernels: values, what stays untouched, and that bits do not
// depend on the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "emulation/machine.h"
#include "emulation/plane.h"
#include "emulation/support.h"
#include "grouped_products.h"

namespace memra::emulation {
namespace {

namespace ref = memra::reference;

// Experts in rising order, some with no rows, some outside the tables, some without weights; more
// or fewer rows than the CSR lists.
void choose_rows(PlaneSpec& spec, ref::Random& random, int64_t listed, int64_t most) {
  std::vector<int32_t> all(static_cast<size_t>(spec.n_experts));
  std::iota(all.begin(), all.end(), 0);
  shuffle(all, random);
  all.resize(static_cast<size_t>(listed));
  std::sort(all.begin(), all.end());
  int64_t total = 0;
  for (const int32_t expert : all) {
    const int64_t count = random.below(4) == 0 ? random.below(9) : random.below(most + 1);
    spec.counts.push_back(static_cast<int32_t>(count));
    const bool outside = random.below(12) == 0;
    const int64_t beyond = random.below(2) == 0 ? -1 : spec.n_experts + random.below(1000);
    spec.experts.push_back(outside ? static_cast<int32_t>(beyond) : expert);
    total += count;
  }
  spec.rows = std::max<int64_t>(total + random.below(20) - 4, 1);
  if (random.below(3) == 0) {
    spec.null_slabs.push_back(static_cast<int32_t>(random.below(spec.n_experts)));
  }
}

PlaneSpec random_spec(bool wgmma, int32_t units, ref::Random& random) {
  PlaneSpec spec;
  spec.wgmma = wgmma;
  spec.units = units;
  spec.format = random.below(2) == 0 ? ref::Format::kV1 : ref::Format::kV2;
  spec.scales = random.below(2) == 0;
  spec.bias = random.below(2) == 0;
  spec.packed = random.below(3) == 0;
  spec.turn = static_cast<int32_t>(random.below(3));
  spec.multiprocessors = static_cast<int>(1 + random.below(4));
  return spec;
}

void expect_right(const PlaneSpec& spec, uint64_t seed) {
  Plane plane(spec, seed);
  plane.expect_right(plane.run());
}

// ---- Shapes of every kind

void random_shapes(bool wgmma, int32_t units, int rounds) {
  constexpr int64_t kDimensions[] = {64, 128, 192, 256, 320, 384};
  machine().seed(11);
  ref::Random random(static_cast<uint64_t>(units));
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    PlaneSpec spec = random_spec(wgmma, units, random);
    spec.n_experts = 1 + random.below(6);
    spec.columns = one_of(random, kDimensions);
    spec.outputs = one_of(random, kDimensions);
    choose_rows(spec, random, 1 + random.below(spec.n_experts), random.below(2) == 0 ? 40 : 140);
    expect_right(spec, static_cast<uint64_t>(round));
  }
}

TEST(EmulatedPlane, WideTiles) {
  random_shapes(true, 15, 30);
}
TEST(EmulatedPlane, NarrowTiles) {
  random_shapes(true, 4, 30);
}
TEST(EmulatedPlane, WarpMatrixInstructions) {
  random_shapes(false, 8, 16);
}

// Rows of NVFP4_V1 that the copy engine can take, aligned for it or not.
TEST(EmulatedPlane, RowsOfV1) {
  constexpr int64_t kColumns[] = {256, 512, 768, 1536}, kOutputs[] = {64, 192, 256, 320};
  machine().seed(15);
  ref::Random random(15);
  for (int round = 0; round < 24 && !HasFailure(); ++round) {
    PlaneSpec spec = random_spec(true, round % 2 == 0 ? 4 : 15, random);
    spec.format = ref::Format::kV1;
    spec.n_experts = 2 + random.below(6);
    spec.columns = one_of(random, kColumns);
    spec.outputs = one_of(random, kOutputs);
    choose_rows(spec, random, 1 + random.below(spec.n_experts), random.below(2) == 0 ? 40 : 140);
    expect_right(spec, static_cast<uint64_t>(round));
  }
}

// Which kernels have run there, for others would have given the same.
TEST(EmulatedPlane, RowsOfV1AreTakenByMapsWhereTheyCanBe) {
  const auto plane = [](int64_t columns) {
    return std::string(cuda::plane_product_name(device(true, 1), MEMRA_NVFP4, columns));
  };
  const auto gate_up = [](int64_t columns) {
    return std::string(
        cuda::gate_up_product_name(device(true, 1), MEMRA_NVFP4, MEMRA_NVFP4, columns));
  };
  for (const int64_t columns : {256, 512, 1536}) {
    EXPECT_EQ(plane(columns), "grouped_plane_wgmma_v1");
    EXPECT_EQ(gate_up(columns), "grouped_gate_up_wgmma_v1");
  }
  for (const int64_t columns : {64, 128, 192, 640}) {
    EXPECT_EQ(plane(columns), "grouped_plane_wgmma_v1_direct");
    EXPECT_EQ(gate_up(columns), "grouped_gate_up_wgmma_v1_direct");
  }
}

// Few columns: the rings hold slabs of many tiles, and producer and warps wait for each other.
TEST(EmulatedPlane, ManyTilesOfFewColumns) {
  constexpr int64_t kDimensions[] = {64, 128, 192};
  machine().seed(12);
  ref::Random random(12);
  for (int round = 0; round < 16 && !HasFailure(); ++round) {
    PlaneSpec spec = random_spec(true, round % 2 == 0 ? 4 : 15, random);
    spec.n_experts = 20 + random.below(40);
    spec.columns = one_of(random, kDimensions);
    spec.outputs = one_of(random, kDimensions);
    choose_rows(spec, random, spec.n_experts, 9);
    expect_right(spec, static_cast<uint64_t>(round));
  }
}

// Many outputs on few multiprocessors: neighbouring tiles of weight rows use a tile's activations
// one after another, in runs that need not divide their number, where all slabs of the columns fit.
TEST(EmulatedPlane, RunsShareActivations) {
  machine().seed(13);
  ref::Random random(13);
  for (const int64_t columns : {64, 320, 640, 704, 832}) {
    for (const int64_t outputs : {768, 1088, 1280}) {
      PlaneSpec spec = random_spec(true, random.below(2) == 0 ? 15 : 4, random);
      if (columns == 704) spec.units = 15;
      spec.n_experts = 6;
      spec.multiprocessors = 1;
      spec.columns = columns;
      spec.outputs = outputs;
      choose_rows(spec, random, spec.n_experts, 40);
      expect_right(spec, static_cast<uint64_t>(columns + outputs));
      if (HasFailure()) return;
    }
  }
}

// ---- Bits of a row, whatever the width of its tile, its place in it and its phase

void expect_batch_invariance(bool wgmma, const std::vector<int32_t>& widths, ref::Format format,
                             int64_t columns) {
  machine().seed(14);
  ref::Random random(14);
  constexpr int64_t kTokens = 13, kOutputs = 192;
  std::vector<std::vector<uint32_t>> first(kTokens);
  for (const int32_t units : widths) {
    for (int32_t count = 1; count <= 8 * units + 9; count += count % 8 == 1 ? 7 : 1) {
      PlaneSpec spec;
      spec.wgmma = wgmma;
      spec.units = units;
      spec.format = format;
      spec.columns = columns;
      spec.outputs = kOutputs;
      spec.n_experts = 2;
      const auto lead = static_cast<int32_t>(random.below(20));
      spec.experts = {0, 1};
      spec.counts = {lead, count};
      spec.rows = lead + count + random.below(9);
      Plane plane(spec, 5);
      const int64_t shift = random.below(kTokens);
      plane.shift_tokens(shift);
      const std::vector<uint32_t> words = plane.run();
      for (int64_t row = lead; row < lead + count; ++row) {
        const std::vector<uint32_t> bits(words.begin() + row * kOutputs,
                                         words.begin() + (row + 1) * kOutputs);
        std::vector<uint32_t>& want = first[static_cast<size_t>((row + shift) % kTokens)];
        if (want.empty()) want = bits;
        ASSERT_EQ(bits, want) << "row " << row - lead << " of " << count << ", " << spec.text();
      }
    }
  }
}

TEST(EmulatedPlane, BitsDoNotDependOnTheBatch) {
  expect_batch_invariance(true, {15, 4}, ref::Format::kV2, 192);
}
TEST(EmulatedPlane, BitsDoNotDependOnTheBatchInV1) {
  expect_batch_invariance(true, {15, 4}, ref::Format::kV1, 320);
  expect_batch_invariance(true, {15, 4}, ref::Format::kV1, 256);
}
TEST(EmulatedPlane, BitsDoNotDependOnTheBatchOfWarpMatrixInstructions) {
  expect_batch_invariance(false, {8}, ref::Format::kV2, 64);
}

}  // namespace
}  // namespace memra::emulation
