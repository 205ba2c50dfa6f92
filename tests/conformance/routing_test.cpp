// memra_moe_topk and memra_moe_route: bit for bit what plain sorting gives.
#include "reference/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "conformance/device_problem.h"
#include "conformance/fixture.h"

namespace memra::test {
namespace {

using reference::Chosen;
using reference::DType;
using reference::Router;

// Runs what `call` enqueues to its end, at once or as the replay of a graph.
template <typename Call>
void run_call(Engine& engine, bool recorded, Call&& call) {
  if (recorded) {
    const Graph graph(engine, engine.stream(), call);
    graph.launch(engine.stream());
    engine.synchronize();
  } else {
    require(call());
    engine.synchronize();
  }
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- Top-k ----

class TopK : public BackendTest {
 protected:
  // Runs on logits [tokens, n_experts] as they are in `dtype`; padding between rows is NaN.
  Chosen run(const Router& router, const Bytes& logits, DType dtype, std::int64_t tokens,
             std::int64_t stride, bool recorded = false) {
    const Input in(engine(), logits);
    const Input bias = router.bias.empty() ? Input() : Input(engine(), router.bias);
    const Buffer ids(engine(), tokens * router.top_k * 4);
    const Buffer weights(engine(), tokens * router.top_k * 4);
    memra_moe_topk_args args = MEMRA_MOE_TOPK_ARGS_INIT;
    args.logits_dtype = abi(dtype);
    args.logits = in.data();
    args.logits_stride = stride == router.n_experts ? 0 : stride;
    args.tokens = tokens;
    args.n_experts = router.n_experts;
    args.top_k = router.top_k;
    args.topk_ids = ids.as<std::int32_t>();
    args.topk_weights = weights.as<float>();
    args.scoring = router.sigmoid ? MEMRA_SCORING_SIGMOID : MEMRA_SCORING_SOFTMAX;
    args.renormalize = router.renormalize ? 1 : 0;
    args.bias = router.bias.empty() ? nullptr : bias.buffer().as<float>();
    args.n_groups = router.n_groups;
    args.top_k_groups = router.top_k_groups;
    args.group_score = router.top2_sum ? MEMRA_GROUP_SCORE_TOP2_SUM : MEMRA_GROUP_SCORE_MAX;
    args.scaling_factor = router.factor == 1.0f ? 0.0f : router.factor;
    const auto call = [&] { return memra_moe_topk(engine().get(), &args, engine().stream()); };
    run_call(engine(), recorded, call);
    EXPECT_TRUE(ids.guards_intact());
    EXPECT_TRUE(weights.guards_intact());
    EXPECT_TRUE(in.intact("logits"));
    return {ids.download_values<std::int32_t>(), weights.download_values<float>()};
  }
  Chosen run(const Router& router, const std::vector<float>& logits) {
    const auto tokens = static_cast<std::int64_t>(logits.size()) / router.n_experts;
    return run(router, bytes_of(logits), DType::kF32, tokens, router.n_experts);
  }

  // Against the reference, in every type and with gaps between the rows.
  void expect_reference(const Router& router, const std::vector<float>& logits) {
    const auto tokens = static_cast<std::int64_t>(logits.size()) / router.n_experts;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const std::int64_t stride = router.n_experts + static_cast<std::int64_t>(dtype) * 3;
      Bytes raw(static_cast<std::size_t>(tokens * stride * reference::dtype_bytes(dtype)), 0xFF);
      for (std::int64_t i = 0; i < tokens * router.n_experts; ++i) {
        reference::store(raw, dtype, i / router.n_experts * stride + i % router.n_experts,
                         logits[static_cast<std::size_t>(i)]);
      }
      const Chosen expected = reference::choose_experts(
          router, reference::widen(raw, dtype, tokens, router.n_experts, stride));
      const Chosen actual = run(router, raw, dtype, tokens, stride);
      EXPECT_EQ(expected.ids, actual.ids) << static_cast<int>(dtype);
      EXPECT_EQ(bytes_of(expected.weights), bytes_of(actual.weights)) << static_cast<int>(dtype);
    }
  }

  static std::vector<float> random_logits(std::uint64_t seed, std::int64_t count, bool ties) {
    reference::Random random(seed);
    std::vector<float> logits(static_cast<std::size_t>(count));
    for (float& x : logits)
      x = ties ? static_cast<float>(random.below(5)) : 4.0f * random.normal();
    return logits;
  }
};

TEST_P(TopK, EqualsTheReference) {
  std::uint64_t seed = 1;
  for (const std::int64_t n_experts : {1, 2, 8, 31, 32, 33, 64, 128, 257, 512, 4096}) {
    for (const std::int64_t wanted : {1, 2, 8, 64}) {
      for (const bool sigmoid : {false, true}) {
        Router router;
        router.n_experts = n_experts;
        router.top_k = std::min(wanted, n_experts);
        router.sigmoid = sigmoid;
        router.renormalize = seed % 2 == 0;
        router.factor = seed % 3 == 0 ? 2.5f : 1.0f;
        if (seed % 4 < 2) router.bias = random_logits(seed + 100, n_experts, false);
        for (float& b : router.bias)
          b *= 0.05f;
        SCOPED_TRACE(n_experts);
        SCOPED_TRACE(wanted);
        expect_reference(router, random_logits(seed, 7 * n_experts, seed % 5 == 0));
        ++seed;
      }
    }
  }
}

TEST_P(TopK, GroupsEqualTheReference) {
  std::uint64_t seed = 500;
  struct Groups {
    std::int64_t n_experts, n_groups, top_k_groups, top_k;
  };
  for (const Groups& g : {Groups{256, 8, 4, 8}, Groups{160, 8, 3, 6}, Groups{64, 64, 8, 8},
                          Groups{64, 1, 1, 8}, Groups{12, 3, 1, 4}, Groups{512, 256, 255, 64}}) {
    for (const bool top2 : {false, true}) {
      for (const bool ties : {false, true}) {
        for (const bool sigmoid : {false, true}) {
          if (top2 && g.n_groups == g.n_experts) continue;
          Router router;
          router.n_experts = g.n_experts;
          router.top_k = g.top_k;
          router.n_groups = g.n_groups;
          router.top_k_groups = g.top_k_groups;
          router.top2_sum = top2;
          router.sigmoid = sigmoid;
          router.renormalize = true;
          router.factor = 2.5f;
          if (sigmoid) router.bias = random_logits(seed + 1, g.n_experts, ties);
          SCOPED_TRACE(g.n_experts);
          expect_reference(router, random_logits(seed++, 9 * g.n_experts, ties));
        }
      }
    }
  }
}

// So many tokens that a GPU spreads them otherwise.
TEST_P(TopK, ManyTokensEqualTheReference) {
  Router router;
  router.top_k = 8;
  router.renormalize = true;
  for (const std::int64_t n_experts : {160, 512, 513}) {
    router.n_experts = n_experts;
    expect_reference(router, random_logits(77, 1025 * n_experts, n_experts == 160));
  }
  router.n_experts = router.n_groups = 256;
  router.top_k_groups = 9;
  router.sigmoid = true;
  router.bias = random_logits(78, 256, true);
  expect_reference(router, random_logits(79, 1025 * 256, true));
}

TEST_P(TopK, RecordedEqualsCalled) {
  for (const std::int64_t n_experts : {8, 600}) {
    Router router;
    router.n_experts = n_experts;
    router.top_k = 8;
    const Bytes logits = bytes_of(random_logits(80, 33 * n_experts, false));
    const Chosen called = run(router, logits, DType::kF32, 33, n_experts);
    const Chosen recorded = run(router, logits, DType::kF32, 33, n_experts, true);
    EXPECT_EQ(called.ids, recorded.ids);
    EXPECT_EQ(bytes_of(called.weights), bytes_of(recorded.weights));
  }
}

TEST_P(TopK, TiesGoToTheLowerId) {
  Router router;
  router.n_experts = 40;
  router.top_k = 5;
  std::vector<float> logits(40, 1.0f);
  logits[33] = 2.0f;
  EXPECT_EQ(run(router, logits).ids, (std::vector<std::int32_t>{33, 0, 1, 2, 3}));
  // Groups too: 4 of 10 experts, all alike but the last.
  router.n_groups = 4;
  router.top_k_groups = 2;
  EXPECT_EQ(run(router, logits).ids, (std::vector<std::int32_t>{33, 0, 1, 2, 3}));
}

TEST_P(TopK, KnownWeights) {
  Router router;
  router.n_experts = 4;
  router.top_k = 2;
  router.renormalize = true;
  EXPECT_EQ(run(router, {0, 5, 5, 0}).weights, (std::vector<float>{0.5f, 0.5f}));
  router.factor = 3.0f;
  EXPECT_EQ(run(router, {0, 5, 5, 0}).weights, (std::vector<float>{1.5f, 1.5f}));
  router.renormalize = false;
  EXPECT_EQ(run(router, {7, 7, 7, 7}).weights, (std::vector<float>{0.75f, 0.75f}));
  router.sigmoid = true;
  EXPECT_EQ(run(router, {0, 0, -kInf, kNan}).weights, (std::vector<float>{1.5f, 1.5f}));
  // The bias selects, the score weighs.
  router.factor = 1.0f;
  router.bias = {0, 0, 10, 11};
  const Chosen chosen = run(router, {3, 3, 0, 0});
  EXPECT_EQ(chosen.ids, (std::vector<std::int32_t>{3, 2}));
  EXPECT_EQ(chosen.weights, (std::vector<float>{0.5f, 0.5f}));
}

// Padded rows of a captured batch hold anything.
TEST_P(TopK, AnyLogitsGiveDistinctIdsAndFiniteWeights) {
  const std::vector<std::vector<float>> rows = {
      std::vector<float>(24, kNan),
      std::vector<float>(24, -kInf),
      std::vector<float>(24, kInf),
      {kNan,  kInf, -kInf,  0,     1e38f,  -1e38f, kNan, kInf, 1,    2,    3,    4,
       -0.0f, 0.0f, 1e-45f, 3e38f, -3e38f, kNan,   kNan, kNan, kNan, kNan, kNan, -kInf}};
  for (const bool sigmoid : {false, true}) {
    for (const bool renormalize : {false, true}) {
      for (const std::int64_t groups : {0, 6}) {
        for (const float bias : {0.0f, kNan, kInf, -kInf}) {
          Router router;
          router.n_experts = 24;
          router.top_k = 8;
          router.sigmoid = sigmoid;
          router.renormalize = renormalize;
          router.n_groups = groups;
          router.top_k_groups = groups == 0 ? 0 : 2;
          router.top2_sum = true;
          router.bias.assign(24, bias);
          for (const std::vector<float>& row : rows) {
            const Chosen chosen = run(router, row);
            const Chosen expected = reference::choose_experts(router, row);
            EXPECT_EQ(expected.ids, chosen.ids);
            EXPECT_EQ(bytes_of(expected.weights), bytes_of(chosen.weights));
            EXPECT_EQ(std::set(chosen.ids.begin(), chosen.ids.end()).size(), 8u);
            for (std::size_t slot = 0; slot < 8; ++slot) {
              EXPECT_TRUE(chosen.ids[slot] >= 0 && chosen.ids[slot] < 24);
              EXPECT_TRUE(std::isfinite(chosen.weights[slot]) && chosen.weights[slot] >= 0);
            }
          }
        }
      }
    }
  }
}

MEMRA_ON_BOTH_BACKENDS(TopK);

// ---- Route ----

class Route : public BackendTest {
 protected:
  struct Case {
    std::vector<std::int32_t> ids;
    std::int64_t top_k = 1;
    std::int64_t n_experts = 4;
    std::int64_t offset = 0;
    std::int64_t n_local = 4;
    std::vector<bool> missing = {};  // of the local experts
    bool wants_inverse = true;
  };

  void expect_reference(const Case& c, bool recorded = false) {
    const auto n_pairs = static_cast<std::int64_t>(c.ids.size());
    const Input ids(engine(), c.ids);
    const std::vector<const void*> table = slab_table(c);
    const Input ptrs(engine(), table);
    const Buffer n_active(engine(), 4), active(engine(), c.n_local * 4);
    const Buffer offsets(engine(), (c.n_local + 1) * 4);
    const Buffer order(engine(), n_pairs * 4), inverse(engine(), n_pairs * 4);
    const Buffer counter(engine(), std::vector<std::uint64_t>{5});
    memra_moe_route_args args = MEMRA_MOE_ROUTE_ARGS_INIT;
    args.tokens = n_pairs / c.top_k;
    args.top_k = c.top_k;
    args.n_experts = c.n_experts;
    args.local_expert_offset = c.offset;
    args.n_local_experts = c.n_local;
    args.topk_ids = ids.buffer().as<std::int32_t>();
    if (!c.missing.empty()) args.expert_ptrs = ptrs.buffer().as<const void*>();
    args.n_active = n_active.as<std::int32_t>();
    args.active_experts = active.as<std::int32_t>();
    args.offsets = offsets.as<std::int32_t>();
    args.pair_order = order.as<std::int32_t>();
    if (c.wants_inverse) args.inverse = inverse.as<std::int32_t>();
    args.invalid_ids = counter.as<std::uint64_t>();
    require(memra_moe_route_workspace_size(engine().get(), args.tokens, c.top_k, c.n_local,
                                           &args.workspace_bytes));
    const Buffer workspace(engine(), static_cast<std::int64_t>(args.workspace_bytes));
    args.workspace = workspace.data();
    --args.workspace_bytes;
    EXPECT_TRUE(fails_with(memra_moe_route(engine().get(), &args, engine().stream()),
                           MEMRA_ERROR_WORKSPACE_TOO_SMALL));
    ++args.workspace_bytes;
    const auto call = [&] { return memra_moe_route(engine().get(), &args, engine().stream()); };
    run_call(engine(), recorded, call);
    const reference::SortedPairs expected =
        reference::sort_pairs(c.ids, c.n_experts, c.offset, c.n_local, c.missing);
    EXPECT_EQ(n_active.download_values<std::int32_t>()[0], expected.n_active);
    EXPECT_EQ(active.download_values<std::int32_t>(), expected.active);
    EXPECT_EQ(offsets.download_values<std::int32_t>(), expected.offsets);
    EXPECT_EQ(order.download_values<std::int32_t>(), expected.order);
    EXPECT_EQ(inverse.download_values<std::int32_t>(),
              c.wants_inverse ? expected.inverse : std::vector<std::int32_t>(c.ids.size(), -1));
    EXPECT_EQ(counter.download_values<std::uint64_t>()[0] - 5, expected.invalid);
    for (const Buffer* buffer :
         {&n_active, &active, &offsets, &order, &inverse, &counter, &workspace}) {
      EXPECT_TRUE(buffer->guards_intact());
    }
    EXPECT_TRUE(ids.intact("ids"));
  }

  // Ids in and out of range; with odd tokens some experts lack a slab, with every fourth there is
  // no inverse.
  static Case random_case(std::int64_t tokens, std::int64_t n_experts, std::int64_t offset,
                          std::int64_t n_local) {
    reference::Random random(static_cast<std::uint64_t>(tokens * 31 + n_local));
    Case c;
    c.top_k = std::min<std::int64_t>(8, n_experts);
    c.n_experts = n_experts;
    c.offset = offset;
    c.n_local = n_local;
    for (std::int64_t pair = 0; pair < tokens * c.top_k; ++pair)
      c.ids.push_back(static_cast<std::int32_t>(random.below(n_experts + 3) - 2));
    for (std::int64_t e = 0; e < n_local && tokens % 2 == 1; ++e)
      c.missing.push_back(random.below(4) == 0);
    c.wants_inverse = tokens % 4 != 0;
    return c;
  }

 private:
  // Any address that is not NULL; missing ones lack one plane each, in turn.
  std::vector<const void*> slab_table(const Case& c) const {
    std::vector<const void*> table(static_cast<std::size_t>(3 * c.n_local), &engine());
    for (std::size_t e = 0; e < c.missing.size(); ++e) {
      if (c.missing[e]) table[e % 3 * static_cast<std::size_t>(c.n_local) + e] = nullptr;
    }
    return table;
  }
};

TEST_P(Route, KnownCases) {
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  expect_reference({{3}});
  expect_reference({{-1}});
  expect_reference({{2, 2, 2, 2, 2}});
  expect_reference({{3, -1, 0, kMin, kMax, 4, 3, -2, 0, 1}, 2});
  expect_reference({{3, -1, 0, kMin, kMax, 4, 3, -2, 0, 1}, 2}, true);
  expect_reference({{-1, -1, 7, 9}, 2});
  expect_reference({{0, 1, 2, 3, 4, 5, 6, 7}, 2, 8, 4, 4});
  expect_reference({{0, 1, 2, 3, 3, 2, 1, 0}, 4, 4, 0, 4, {false, true, false, false}});
  expect_reference({{0, 1, 2, 3, 3, 2, 1, 0}, 4, 4, 0, 4, {true, true, true, true}});
}

TEST_P(Route, RandomIds) {
  for (const std::int64_t n_experts : {1, 4, 8, 60, 128, 288, 1000}) {
    for (const std::int64_t tokens : {1, 2, 7, 31, 64, 129, 512, 513, 1000, 4097}) {
      const std::int64_t n_local = std::max<std::int64_t>(1, n_experts / 2);
      SCOPED_TRACE(n_experts);
      SCOPED_TRACE(tokens);
      expect_reference(random_case(tokens, n_experts, n_experts / 4, n_local));
    }
  }
}

// More local experts than a block has counters for, up to the most there may be.
TEST_P(Route, ManyExperts) {
  for (const std::int64_t n_local : {1023, 1024, 1025, 1026, 5000, 1 << 20}) {
    for (const std::int64_t tokens : {1, 500, 3001}) {
      SCOPED_TRACE(n_local);
      SCOPED_TRACE(tokens);
      const std::int64_t offset = n_local == 1 << 20 ? 0 : 7;
      const std::int64_t n_experts = n_local == 1 << 20 ? n_local : n_local + 9;
      expect_reference(random_case(tokens, n_experts, offset, n_local));
    }
  }
}

// What is one launch on a GPU, two, and many.
TEST_P(Route, Recorded) {
  for (const std::int64_t n_experts : {288, 2000}) {
    for (const std::int64_t tokens : {3, 200, 601}) {
      SCOPED_TRACE(n_experts);
      SCOPED_TRACE(tokens);
      expect_reference(random_case(tokens, n_experts, 0, n_experts), true);
    }
  }
}

// 65,536 tiles of one pair and one more; every pair on the last expert.
TEST_P(Route, VeryManyPairs) {
  Case c;
  c.ids.assign(65537 * 8, 3);
  c.top_k = 8;
  expect_reference(c);
  for (std::size_t i = 0; i < c.ids.size(); ++i)
    c.ids[i] = static_cast<std::int32_t>(i % 5);
  expect_reference(c);
}

MEMRA_ON_BOTH_BACKENDS(Route);

}  // namespace
}  // namespace memra::test
