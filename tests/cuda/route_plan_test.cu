// How routing shares pairs out, and what it needs of the workspace. No GPU is needed.
#include "route_plan.cuh"

#include <gtest/gtest.h>

#include "memra.h"

namespace memra::cuda {
namespace {

constexpr int64_t kPairs[] = {1,       511,     512,     513,        2048,      4096,    4097,
                              65536,   262143,  262144,  262145,     524296,    1 << 30, 1 << 20,
                              1048577, 5000000, 9999999, 2147483646, 2147483647};
constexpr int64_t kExperts[] = {1,    2,    8,    288,     1023,    1024,   1025,
                                1026, 2048, 4096, 1048575, 1048576, 1000000};

TEST(RoutePlan, BlocksCoverAllPairsAndFitTheWorkspace) {
  for (const int64_t n_pairs : kPairs) {
    for (const int64_t n_experts : kExperts) {
      const RoutePlan plan = RoutePlan::of(n_pairs, n_experts);
      ASSERT_GE(plan.blocks, 1);
      ASSERT_LE(plan.blocks, kMaxRouteBlocks);
      ASSERT_EQ(plan.chunk % kTilePairs, 0);
      ASSERT_GE(plan.blocks * plan.chunk, n_pairs);
      ASSERT_LT((plan.blocks - 1) * plan.chunk, n_pairs) << "a block with nothing to do";
      const uint64_t counts =
          static_cast<uint64_t>(plan.blocks) * static_cast<uint64_t>(plan.n_bins) * 4;
      ASSERT_LE(counts, plan.counts_bytes());
      ASSERT_EQ(plan.counts_bytes() % 4, 0u);
      ASSERT_EQ(plan.workspace_bytes() - plan.counts_bytes(),
                plan.by_digits ? static_cast<uint64_t>(n_pairs) * 4 : 0);
    }
  }
}

// The index of skipped pairs is n_local_experts itself.
TEST(RoutePlan, BinsAndDigitsHoldEveryIndex) {
  for (int64_t n_experts = 1; n_experts <= MEMRA_MAX_DIMENSION; n_experts += 1 + n_experts / 50) {
    const RoutePlan plan = RoutePlan::of(1000, n_experts);
    ASSERT_LE(plan.n_bins, kMaxBins);
    if (!plan.by_digits) {
      ASSERT_EQ(plan.n_bins, n_experts + 1);
      continue;
    }
    ASSERT_EQ(n_experts >> (plan.n_digits * kDigitBits), 0);
    ASSERT_NE(n_experts >> ((plan.n_digits - 1) * kDigitBits), 0) << "a pass too many";
    ASSERT_FALSE(plan.one_block());
  }
  EXPECT_EQ(RoutePlan::of(1, 1024).by_digits, false);
  EXPECT_EQ(RoutePlan::of(1, 1025).n_digits, 2);
  EXPECT_EQ(RoutePlan::of(1, 1048575).n_digits, 2);
  EXPECT_EQ(RoutePlan::of(1, 1048576).n_digits, 3);
}

// bytes_of(n) over many n from 1 to `most`.
template <typename BytesOf>
void expect_rising(int64_t most, BytesOf bytes_of) {
  uint64_t last = 0;
  for (int64_t n = 1; n <= most; n += 1 + n / 50) {
    const uint64_t bytes = bytes_of(n);
    ASSERT_GE(bytes, last) << n;
    last = bytes;
  }
}

TEST(RoutePlan, WorkspaceRisesWithPairsAndExperts) {
  for (const int64_t n_experts : kExperts) {
    expect_rising(MEMRA_GROUPED_MAX_PAIRS,
                  [&](int64_t n) { return RoutePlan::of(n, n_experts).workspace_bytes(); });
  }
  for (const int64_t n_pairs : kPairs) {
    expect_rising(MEMRA_MAX_DIMENSION,
                  [&](int64_t n) { return RoutePlan::of(n_pairs, n).workspace_bytes(); });
  }
}

TEST(RoutePlan, FewPairsAreOneLaunch) {
  EXPECT_TRUE(RoutePlan::of(1, 288).one_block());
  EXPECT_TRUE(RoutePlan::of(4096, 288).one_block());
  EXPECT_FALSE(RoutePlan::of(4097, 288).one_block());
  EXPECT_FALSE(RoutePlan::of(1, 1025).one_block());
}

}  // namespace
}  // namespace memra::cuda
