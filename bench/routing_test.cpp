// How calls rotate over a bank, and the table that a roof reads.
#include "routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "models.h"

namespace memra::bench {
namespace {

constexpr double kMinBytes = 300e6;

Shape shape_of(int64_t tokens) {
  Shape shape;
  shape.tokens = tokens;
  return shape;
}

double expert_bytes(const Shape& shape) {
  return static_cast<double>(slab_bytes(shape, kGate) + slab_bytes(shape, kUp) +
                             slab_bytes(shape, kDown));
}

void expect_legal(const Shape& shape, const Routing& routing) {
  ASSERT_EQ(routing.ids.size(), routing.unique.size());
  ASSERT_GE(routing.n_calls(), 4);
  for (const std::vector<int32_t>& ids : routing.ids) {
    ASSERT_EQ(ids.size(), static_cast<size_t>(shape.n_pairs()));
    for (int64_t token = 0; token < shape.tokens; ++token) {
      const auto begin = ids.begin() + token * shape.top_k;
      const std::set<int32_t> experts(begin, begin + shape.top_k);
      ASSERT_EQ(experts.size(), static_cast<size_t>(shape.top_k));
      ASSERT_GE(*experts.begin(), 0);
      ASSERT_LT(*experts.rbegin(), shape.n_experts);
    }
  }
}

TEST(Routing, OneTokenCallsShareNoExpert) {
  const Shape shape = shape_of(1);
  const Routing routing = draw_routing(shape, kMinBytes);
  expect_legal(shape, routing);
  std::set<int32_t> all;
  for (const std::vector<int32_t>& experts : routing.unique)
    all.insert(experts.begin(), experts.end());
  EXPECT_EQ(all.size(), static_cast<size_t>(8 * routing.n_calls()));
  EXPECT_EQ(routing.mean_unique(), 8);
  EXPECT_GE(routing.repeat_bytes(shape), kMinBytes);
}

TEST(Routing, RestsSlabsWhereTheBankAllows) {
  for (const int64_t tokens : {1, 2, 4}) {
    const Shape shape = shape_of(tokens);
    const Routing routing = draw_routing(shape, kMinBytes);
    expect_legal(shape, routing);
    EXPECT_GE(routing.repeat_bytes(shape), kMinBytes) << tokens;
  }
  for (const ModelShape& model : model_shapes()) {
    const Shape shape = model.shape();
    const Routing routing = draw_routing(shape, kMinBytes);
    expect_legal(shape, routing);
    EXPECT_GE(routing.repeat_bytes(shape), kMinBytes) << model.name;
  }
}

TEST(Routing, FullBanksRotateAsFarAsTheyCan) {
  // Every call touches nearly all experts: between two reads of a slab is the other stage.
  const Shape shape = shape_of(64);
  const Routing routing = draw_routing(shape, kMinBytes);
  expect_legal(shape, routing);
  EXPECT_GT(routing.mean_unique(), 63);
  EXPECT_GE(routing.repeat_bytes(shape), 63.0 * static_cast<double>(slab_bytes(shape, kDown)));
}

TEST(Routing, RepeatBytesCountWholeCallsAndTheOtherStage) {
  Shape shape = shape_of(1);
  shape.n_experts = 4;
  shape.top_k = 1;
  Routing routing;
  for (const int32_t id : {2, 0, 3}) {
    routing.ids.push_back({id});
    routing.unique.push_back({id});
  }
  const auto down = static_cast<double>(slab_bytes(shape, kDown));
  EXPECT_DOUBLE_EQ(routing.repeat_bytes(shape), 2 * expert_bytes(shape) + down);
  routing.ids.push_back({2});
  routing.unique.push_back({2});
  EXPECT_DOUBLE_EQ(routing.repeat_bytes(shape), down);
}

TEST(Routing, OrderPutsExpertsSideBySide) {
  EXPECT_EQ(expert_order({5, 1, 5, 0, 1}), (std::vector<int32_t>{3, 1, 4, 0, 2}));
  EXPECT_EQ(distinct({5, 1, 5, 0, 1}), (std::vector<int32_t>{5, 1, 0}));
}

TEST(Routing, RoofsHoldEverySlabOnceInTheBuffersOfACall) {
  for (const int64_t top_k : {1, 8, 64}) {
    for (int64_t n_experts = top_k; n_experts < 600; ++n_experts) {
      Shape shape;
      shape.top_k = top_k;
      shape.tokens = (n_experts + top_k - 1) / top_k;
      const Shape roof = roof_shape(shape, n_experts);
      ASSERT_LE(roof.top_k, MEMRA_MAX_TOP_K);
      ASSERT_LE(roof.tokens, shape.tokens);
      ASSERT_LE(roof.n_pairs(), shape.n_pairs());
      ASSERT_GE(roof.n_pairs(), n_experts);
      ASSERT_LT(roof.n_pairs(), n_experts + std::max<int64_t>(roof.tokens, top_k));
    }
  }
}

}  // namespace
}  // namespace memra::bench
