// The parts of the benchmarks that need no device: statistics, arms, models, synthetic weights,
// and the reading of measured times.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "arms.h"
#include "dataset.h"
#include "models.h"
#include "reading.h"
#include "session.h"
#include "stats.h"
#include "weights.h"

namespace memra::bench {
namespace {

TEST(Stats, MedianAndRange) {
  const Summary odd = summarize({5, 1, 3});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 5);
  EXPECT_NEAR(odd.spread_percent(), 133.3, 0.1);
  EXPECT_EQ(summarize({4, 2}).median, 3);
  EXPECT_EQ(summarize({7}).spread_percent(), 0);
}

TEST(Arms, FilterKeepsTheBaselines) {
  EXPECT_EQ(select_arms("").size(), all_arms().size());
  const std::vector<Arm> arms = select_arms("down.stream_dep,,");
  ASSERT_EQ(arms.size(), 3U);
  EXPECT_EQ(arms[0].name, "gate_up.v1.served");
  EXPECT_EQ(arms[1].name, "down.v2.served");
  EXPECT_EQ(arms[2].name, "down.stream_dependent");
  EXPECT_THROW(select_arms("stream,nonsense"), Failure);
}

TEST(Arms, BaselineComesFirstInItsStage) {
  // Identity compares every later arm with it.
  std::set<Stage> seen;
  for (const Arm& arm : all_arms()) {
    EXPECT_EQ(arm.is_baseline, seen.insert(arm.stage).second) << arm.name;
    EXPECT_TRUE(!arm.is_baseline || arm.has_output());
  }
}

TEST(Models, AreShapesThatTheLibraryTakes) {
  EXPECT_GE(model_shapes().size(), 8U);
  for (const ModelShape& model : model_shapes()) {
    EXPECT_EQ(model.hidden_size % MEMRA_COLUMN_MULTIPLE, 0) << model.name;
    EXPECT_EQ(model.intermediate_size % MEMRA_COLUMN_MULTIPLE, 0) << model.name;
    EXPECT_LE(model.top_k, std::min<int64_t>(model.n_experts, MEMRA_MAX_TOP_K)) << model.name;
    EXPECT_EQ(model.limit > 0, model.activation != MEMRA_SWIGLU) << model.name;
    EXPECT_FALSE(model.source.empty()) << model.name;
  }
  ASSERT_NE(find_model("kimi-k2"), nullptr);
  EXPECT_EQ(find_model("KIMI-K2")->name, "Kimi-K2");
  EXPECT_EQ(find_model("Kimi"), nullptr);
}

TEST(SyntheticWeights, SlabsAreLegalDistinctAndRepeatable) {
  Shape shape;
  shape.hidden_size = 128;
  shape.intermediate_size = 64;
  shape.n_experts = 16;
  const auto weights = make_synthetic_weights(shape);
  const auto again = make_synthetic_weights(shape);
  for (const Plane plane : {kGate, kUp, kDown}) {
    std::set<std::vector<std::byte>> slabs;
    std::vector<std::byte> slab(slab_bytes(shape, plane));
    std::vector<std::byte> other(slab.size());
    // More slabs than a slab has bytes: places repeat, values do not.
    const int64_t n_sets = 400;
    for (int64_t set = 0; set < n_sets; ++set) {
      for (int64_t expert = 0; expert < shape.n_experts; ++expert) {
        weights->fill(plane, set, expert, slab);
        again->fill(plane, set, expert, other);
        ASSERT_EQ(slab, other);
        slabs.insert(slab);
      }
    }
    EXPECT_EQ(slabs.size(), static_cast<size_t>(n_sets * shape.n_experts));
    for (size_t i = 0; i < slab.size(); ++i) {
      ASSERT_TRUE(i % 36 >= 4 || (static_cast<uint8_t>(slab[i]) & 0xF8) == 0x38);
    }
  }
  EXPECT_NE(weights->scale(kGate, 0), weights->scale(kGate, 1));
}

TEST(Lcg, IsTheOneThatIsDocumented) {
  Lcg lcg(1);
  const uint32_t first = 1664525U + 1013904223U;
  EXPECT_EQ(lcg.byte(), first >> 24);
  EXPECT_EQ(lcg.byte(), (first * 1664525U + 1013904223U) >> 24);
}

TEST(DataSet, TokensTouchDistinctExperts) {
  Shape shape;
  shape.n_experts = 8;
  EXPECT_EQ(DataSet::count_unique_experts(shape), 8);
  shape.n_experts = 1000;
  EXPECT_EQ(DataSet::count_unique_experts(shape), 8);
  shape.tokens = 1000;
  EXPECT_GT(DataSet::count_unique_experts(shape), 900);
}

// Timings of gate/up with these graph medians.
std::vector<ArmTiming> timings(double served, double load, double math, double stream) {
  std::vector<ArmTiming> result;
  for (const Arm& arm : select_arms("gate_up.v1,gate_up.stream")) {
    if (arm.stage != Stage::kGateUp || arm.kind == Kind::kStreamDependent) continue;
    const double us = arm.kind == Kind::kServed     ? served
                      : arm.kind == Kind::kLoadOnly ? load
                      : arm.kind == Kind::kMathOnly ? math
                                                    : stream;
    ArmTiming timing;
    timing.arm = arm;
    timing.graph = {us, us, us};
    result.push_back(timing);
  }
  return result;
}

std::string verdict(const std::vector<ArmTiming>& measured) {
  const std::vector<Reading> readings = read_timings(measured);
  return readings.size() == 1 ? readings.front().verdict : "not one reading";
}

TEST(Reading, FollowsTheRatios) {
  EXPECT_EQ(verdict(timings(18, 17, 12, 17)), "at the roof");
  EXPECT_EQ(verdict(timings(36, 35, 20, 17)), "access pattern");
  EXPECT_EQ(verdict(timings(36, 18, 34, 17)), "instruction stream");
  EXPECT_EQ(verdict(timings(10, 10, 10, 17)), "unclear");
  std::vector<ArmTiming> without_math = timings(36, 18, 34, 17);
  std::erase_if(without_math, [](const ArmTiming& t) { return t.arm.kind == Kind::kMathOnly; });
  EXPECT_EQ(verdict(without_math), "above the roof");
  std::vector<ArmTiming> without_stream = timings(36, 18, 34, 17);
  std::erase_if(without_stream, [](const ArmTiming& t) { return t.arm.is_stream(); });
  EXPECT_TRUE(read_timings(without_stream).empty());
}

}  // namespace
}  // namespace memra::bench
