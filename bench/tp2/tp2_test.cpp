// What the repro computes from its figures.

#include <gtest/gtest.h>

#include <algorithm>

#include "routing.h"
#include "tp2/iterations.h"
#include "tp2/overlap.h"

namespace memra::bench::tp2 {
namespace {

Shape shape_of(int64_t tokens) {
  return {
      .hidden_size = 64, .intermediate_size = 64, .n_experts = 288, .top_k = 8, .tokens = tokens};
}

// Worked out by another program, in exact integers.
TEST(Tp2Routing, IsTheHashOfThePair) {
  const std::vector<int32_t> ids = hashed_experts(shape_of(2), 1.35);
  const std::vector<int32_t> first = {0, 209, 90, 256, 142, 286, 108, 80, 262, 65, 191, 275};
  ASSERT_EQ(ids.size(), 16U);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
}

TEST(Tp2Routing, StaysInRangeAndReachesEveryExpert) {
  std::vector<int32_t> ids = hashed_experts(shape_of(4096), 1.35);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids.front(), 0);
  EXPECT_EQ(ids.back(), 287);
  EXPECT_EQ(std::unique(ids.begin(), ids.end()) - ids.begin(), 288);
}

Summary exactly(double value) {
  return {value, value, value};
}

Together together(double a, double b, double both) {
  const double overlap = overlap_of(a, b, both);
  return {exactly(both), exactly(overlap), exactly(both / std::max(a, b)), overlap};
}

OverlapResult result(double both, double issue) {
  OverlapResult result;
  result.alone_us = {exactly(100), exactly(80)};
  result.without_copies = together(100, 80, both);
  result.issue_us = exactly(issue);
  return result;
}

TEST(Tp2Overlap, IsOneWhereTheShorterRankIsHidden) {
  EXPECT_DOUBLE_EQ(overlap_of(100, 80, 100), 1.0);
  EXPECT_DOUBLE_EQ(overlap_of(100, 80, 180), 0.0);
  EXPECT_DOUBLE_EQ(overlap_of(80, 100, 140), 0.5);
}

TEST(Tp2Overlap, Verdicts) {
  EXPECT_EQ(classify(together(100, 80, 108)), "OVERLAPPED");
  EXPECT_EQ(classify(together(100, 80, 109)), "PARTIAL");
  EXPECT_EQ(classify(together(100, 80, 171)), "PARTIAL");
  EXPECT_EQ(classify(together(100, 80, 172)), "SERIALIZED");
  EXPECT_EQ(verdict(result(140, 1), false), "PARTIAL, overlap 0.50 (0.50 to 0.50)");
  EXPECT_EQ(verdict(result(180, 1), true),
            "SHARED DEVICE, informational, overlap 0.00 (0.00 to 0.00)");
}

TEST(Tp2Overlap, CopiesAreJudgedAgainstTheRunWithoutThem) {
  OverlapResult copies = result(100, 1);
  copies.with_copies = together(100, 80, 180);
  EXPECT_EQ(verdict(copies, false),
            "SERIALIZED, overlap 0.00 (0.00 to 0.00); without copies 1.00 (1.00 to 1.00)");
  Options options;
  options.peer_copy = 1;
  EXPECT_NE(reading(copies, options).find("the caller's order"), std::string::npos);
  options.copy_first = 1;
  EXPECT_NE(reading(copies, options).find("the copies and their waits"), std::string::npos);
}

TEST(Tp2Overlap, ReadingNamesTheHost) {
  EXPECT_EQ(reading(result(101, 1), {}), "");
  EXPECT_NE(reading(result(170, 160), {}).find("the host"), std::string::npos);
  EXPECT_NE(reading(result(170, 10), {}).find("not the copies"), std::string::npos);
}

TEST(Tp2Iterations, BestIsWarmAndValid) {
  std::vector<Iteration> iterations(5);
  const double joins[] = {1, 2, 9, 3, 5};
  for (int i = 0; i < 5; ++i) {
    iterations[static_cast<size_t>(i)].number = i;
    iterations[static_cast<size_t>(i)].join_us = joins[i];
  }
  iterations[3].fault = "an event failed";
  const Iteration* best = best_warm(iterations);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->number, 4);
  iterations.resize(2);
  EXPECT_EQ(best_warm(iterations), nullptr);
}

}  // namespace
}  // namespace memra::bench::tp2
