// Faults of routing that users of such kernels have met, by example and on both backends. The
// conformance suite holds the same kinds against the reference in every variant.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "conformance/device_problem.h"
#include "conformance/fixture.h"

namespace memra::test {
namespace {

using reference::MoeProblem;
using reference::ProblemSpec;

constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

class FaultsRouting : public BackendTest {
 protected:
  // Runs in V1 and V2 and in every variant; `check(device, text)` sees each.
  template <typename Check>
  void in_every_variant(const Solved& solved, Check check, Placement placement = {}) {
    for (const Formats& formats : {v1(), v2()}) {
      const DeviceProblem device(engine(), solved.in(formats), placement);
      for (const std::uint32_t variant : device.variants()) {
        device.run({variant});
        SCOPED_TRACE(formats.name);
        SCOPED_TRACE(variant_name(variant));
        EXPECT_TRUE(device.check({variant}, solved.result));
        check(device);
      }
    }
  }
};

::testing::AssertionResult is_plus_zero(const std::vector<float>& row) {
  for (const float value : row) {
    if (reference::bits_of(value) != 0) return ::testing::AssertionFailure() << value;
  }
  return ::testing::AssertionSuccess();
}

TEST_P(FaultsRouting, BadIdsAmongValidOnesAreSkippedAndCounted) {
  ProblemSpec spec;
  spec.tokens = 4;
  spec.top_k = 4;
  MoeProblem problem = solve(spec)->problem;
  problem.ids = {-1, 4,    kMin, kMax,   // token 0: none is valid
                 2,  -1,   4,    0,      // some are
                 -1, -1,   -1,   -1,     // a padded row: nothing is counted
                 -2, kMin, 3,    1000};  // -2 is out of range
  const auto solved = solve("ids", std::move(problem));
  ASSERT_EQ(solved->result.invalid_ids, 7u);
  in_every_variant(*solved, [](const DeviceProblem& device) {
    EXPECT_TRUE(is_plus_zero(device.y_row(0)));
    EXPECT_FALSE(is_plus_zero(device.y_row(1)));
    EXPECT_TRUE(is_plus_zero(device.y_row(2)));
    EXPECT_FALSE(is_plus_zero(device.y_row(3)));
  });
}

// One, some, and as many as a call can hold; the counter adds up over calls.
TEST_P(FaultsRouting, CountsOfBadIdsAreExact) {
  ProblemSpec spec;
  spec.hidden = 64;
  spec.tokens = MEMRA_ROWS_MAX_TOKENS;
  spec.n_experts = MEMRA_MAX_TOP_K;
  spec.top_k = MEMRA_MAX_TOP_K;
  MoeProblem problem = reference::make_problem(spec);
  std::fill(problem.ids.begin(), problem.ids.end(), -1);
  DeviceProblem device(engine(), problem);
  const auto expect_count = [&](std::uint64_t expected) {
    device.reset();
    for (std::uint64_t calls = 1; calls <= 2; ++calls) {
      ASSERT_TRUE(ok(device.enqueue({}, engine().stream())));
      engine().synchronize();
      EXPECT_EQ(device.counted_since_reset(), calls * expected);
    }
  };
  const auto with_bad = [&](std::size_t first, std::size_t count) {
    MoeProblem changed = problem;
    std::fill_n(changed.ids.begin() + static_cast<std::ptrdiff_t>(first), count, kMax);
    return changed;
  };
  expect_count(0);
  for (const std::size_t place : {std::size_t{0}, std::size_t{777}, problem.ids.size() - 1}) {
    device.replace_tokens(with_bad(place, 1));
    expect_count(1);
  }
  device.replace_tokens(with_bad(100, 1000));
  expect_count(1000);
  device.replace_tokens(with_bad(0, problem.ids.size()));
  expect_count(65536);
}

TEST_P(FaultsRouting, NoValidTokenAtAll) {
  ProblemSpec spec;
  spec.tokens = 9;
  for (const bool accumulate : {false, true}) {
    spec.accumulate = accumulate;
    MoeProblem problem = solve(spec)->problem;
    std::fill(problem.ids.begin(), problem.ids.end(), -1);
    const auto solved = solve("none", std::move(problem));
    in_every_variant(*solved, [&](const DeviceProblem& device) {
      if (accumulate) {
        EXPECT_EQ(device.y(), solved->problem.y_initial) << "y is kept";
      } else {
        for (std::int64_t token = 0; token < 9; ++token)
          EXPECT_TRUE(is_plus_zero(device.y_row(token)));
      }
    });
  }
}

TEST_P(FaultsRouting, ExpertsWithoutTokensAndWithMany) {
  // Counts as 0, 0, 130, 0, 1: all pairs but one on expert 2, the last pair on the last expert.
  ProblemSpec spec;
  spec.n_experts = 5;
  spec.top_k = 1;
  spec.tokens = 131;
  MoeProblem problem = solve(spec)->problem;
  std::fill(problem.ids.begin(), problem.ids.end(), 2);
  problem.ids.back() = 4;
  const auto solved = solve("counts", std::move(problem));
  in_every_variant(*solved, [](const DeviceProblem& device) {
    EXPECT_FALSE(is_plus_zero(device.y_row(0)));
    EXPECT_FALSE(is_plus_zero(device.y_row(130)));
  });
}

TEST_P(FaultsRouting, AllPairsOnTheLastExpert) {
  ProblemSpec spec;
  spec.tokens = 33;
  spec.ids = reference::IdPattern::kOneExpert;
  in_every_variant(*solve(spec), [](const DeviceProblem& device) {
    EXPECT_FALSE(is_plus_zero(device.y_row(32)));
  });
}

// A rank with the experts [4, 8) of 8 gives what the whole gives with the other ids masked.
TEST_P(FaultsRouting, LocalExpertsEqualTheMaskedWhole) {
  ProblemSpec spec;
  spec.n_experts = 8;
  spec.top_k = 4;
  spec.tokens = 17;
  const auto whole = solve(spec);
  MoeProblem masked = whole->problem;
  for (std::int32_t& id : masked.ids)
    id = id < 4 ? -1 : id;
  MoeProblem local = whole->problem;
  local.local_offset = 4;
  local.n_local = 4;
  for (reference::Bank& bank : local.banks) {
    bank.slabs.erase(bank.slabs.begin(), bank.slabs.begin() + 4);
    bank.scales.erase(bank.scales.begin(), bank.scales.begin() + 4);
  }
  const auto expected = solve("masked", std::move(masked));
  in_every_variant(*solve("local", std::move(local)), [&](const DeviceProblem& device) {
    EXPECT_TRUE(same_bytes(expected->result.y, device.y()));
  });
}

TEST_P(FaultsRouting, LocalRangeBeyondTheExpertsIsRefused) {
  const auto solved = solve(ProblemSpec{});
  const DeviceProblem device(engine(), solved->problem);
  memra_bank bank = MEMRA_BANK_INIT;
  bank.format = MEMRA_NVFP4;
  bank.base = device.slab(reference::kGate, 0);
  memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
  desc.hidden_size = 64;
  desc.intermediate_size = 64;
  desc.n_experts = 8;
  desc.top_k = 2;
  desc.max_tokens = 1;
  desc.local_expert_offset = 6;
  desc.n_local_experts = 4;
  desc.gate = desc.up = desc.down = &bank;
  memra_moe_layer* layer = nullptr;
  EXPECT_TRUE(fails_with(memra_moe_layer_create(engine().get(), &desc, &layer),
                         MEMRA_ERROR_INVALID_ARGUMENT, {"n_local_experts", "4"}));
  EXPECT_EQ(layer, nullptr);
}

TEST_P(FaultsRouting, DuplicateIdsAreTwoPairs) {
  ProblemSpec spec;
  spec.tokens = 2;
  spec.top_k = 2;
  MoeProblem problem = solve(spec)->problem;
  problem.ids = {1, 1, 3, 3};
  problem.weights = {0.5f, 0.5f, 1.0f, -1.0f};
  const auto solved = solve("twice", std::move(problem));
  in_every_variant(*solved, [](const DeviceProblem& device) {
    EXPECT_FALSE(is_plus_zero(device.y_row(0)));
    // fma(-1 * s, dot, fma(s, dot, 0)) need not be zero in bits, but is next to it.
    for (const float value : device.y_row(1))
      EXPECT_LT(std::abs(value), 1e-5f);
  });
}

TEST_P(FaultsRouting, NullEntriesOfATableAreSkippedPairs) {
  ProblemSpec spec;
  spec.tokens = 5;
  for (const reference::Plane plane : {reference::kGate, reference::kUp, reference::kDown}) {
    MoeProblem problem = solve(spec)->problem;
    for (const std::size_t expert : {0, 2})
      problem.banks[plane].slabs[expert].bytes.clear();
    // Token 3 has none but such.
    problem.ids[6] = 0;
    problem.ids[7] = 2;
    const auto solved = solve("null", std::move(problem));
    for (const Slabs slabs : {Slabs::kTables, Slabs::kPointers}) {
      in_every_variant(
          *solved, [](const DeviceProblem& device) { EXPECT_TRUE(is_plus_zero(device.y_row(3))); },
          {slabs, 0});
    }
  }
}

// Tables given with a call win over the layer's own banks.
TEST_P(FaultsRouting, TablesOfACallOverrideTheLayers) {
  ProblemSpec spec;
  spec.tokens = 5;
  const auto own = solve(spec);
  spec.seed = 2;
  const auto other = solve(spec);
  for (const Formats& formats : {v1(), v2()}) {
    MoeProblem problem = own->in(formats);
    for (const reference::Bank& bank : other->in(formats).banks) {
      for (const reference::Slab& slab : bank.slabs)
        problem.table_slabs.push_back(&slab);
    }
    const auto with_slabs = solve("slabs", problem);
    EXPECT_NE(with_slabs->result.y, own->result.y);
    for (const reference::Bank& bank : other->problem.banks)
      problem.table_scales.insert(problem.table_scales.end(), bank.scales.begin(),
                                  bank.scales.end());
    const auto with_both = solve("both", problem);
    for (const auto& solved : {with_slabs, with_both}) {
      const DeviceProblem device(engine(), solved->problem);
      for (const std::uint32_t variant : device.variants()) {
        device.run({variant});
        EXPECT_TRUE(device.check({variant}, solved->result))
            << formats.name << ", " << variant_name(variant);
      }
      EXPECT_TRUE(device.inputs_intact());
    }
  }
}

TEST_P(FaultsRouting, ZeroTokensAreFineWithNullPointers) {
  const DeviceProblem device(engine(), solve(ProblemSpec{})->problem);
  const memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  EXPECT_TRUE(ok(memra_moe_rows(device.layer(), &args, engine().stream())));
  EXPECT_TRUE(ok(memra_moe_rows(device.layer(), &args, nullptr)));
}

MEMRA_ON_BOTH_BACKENDS(FaultsRouting);

}  // namespace
}  // namespace memra::test
