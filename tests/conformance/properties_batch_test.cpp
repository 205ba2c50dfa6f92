// A token's bits do not depend on its company: alone, in every batch, at every threshold, up to the
// largest call.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/matrix.h"

namespace memra::test {
namespace {

using reference::ProblemSpec;

// 1..17, 31..33, ...: around every count where a kernel or a tile may change.
std::vector<std::int64_t> counts_around_thresholds() {
  std::vector<std::int64_t> counts;
  for (std::int64_t t = 1; t <= 17; ++t)
    counts.push_back(t);
  for (const std::int64_t t : {32, 64, 128, 256})
    counts.insert(counts.end(), {t - 1, t, t + 1});
  return counts;
}

struct Shape {
  std::int64_t hidden;
  std::int64_t intermediate;
};

class BatchInvariance : public BackendCaseTest<Shape> {
 protected:
  ProblemSpec spec(std::int64_t tokens) const {
    ProblemSpec spec;
    spec.hidden = param().hidden;
    spec.intermediate = param().intermediate;
    spec.tokens = tokens;
    spec.seed = 7;
    return spec;
  }
  // Those of short rows run in every variant.
  std::vector<std::uint32_t> variants(const DeviceProblem& device) const {
    if (param().hidden <= 256) return device.variants();
    std::vector<std::uint32_t> chosen = {MEMRA_ROWS_AUTO, MEMRA_ROWS_DEDUP_ORDER};
    for (const std::uint32_t variant : device.variants()) {
      if (variant == MEMRA_ROWS_LANE_MAJOR) chosen.push_back(variant);
    }
    return chosen;
  }
};

TEST_P(BatchInvariance, EveryCountAgreesWithOneTokenAtATime) {
  const auto solved = solve(spec(257));
  ASSERT_TRUE(is_informative(*solved));
  const std::int64_t row = solved->problem.hidden * 4;
  Bytes alone;
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solved->in(formats));
    if (alone.empty()) {
      for (std::int64_t token = 0; token < 257; ++token) {
        device.run({MEMRA_ROWS_AUTO, false, token, 1});
        const Bytes y = device.y();
        alone.insert(alone.end(), y.begin() + token * row, y.begin() + (token + 1) * row);
      }
      EXPECT_TRUE(device.inputs_intact());
    }
    // One long-lived layer sees the counts rising and falling.
    std::vector<std::int64_t> counts = counts_around_thresholds();
    for (const std::uint32_t variant : variants(device)) {
      std::reverse(counts.begin(), counts.end());
      for (const std::int64_t count : counts) {
        const Call call{variant, false, 0, count};
        device.run(call);
        const Bytes y = device.y();
        EXPECT_TRUE(std::equal(y.begin(), y.begin() + count * row, alone.begin()))
            << formats.name << ", " << variant_name(variant) << ", " << count << " tokens";
        ASSERT_TRUE(device.check(call, solved->result))
            << formats.name << ", " << variant_name(variant) << ", " << count << " tokens";
      }
    }
  }
}

TEST_P(BatchInvariance, AmongOthersWhateverItsPlace) {
  const auto solved = solve(spec(66));
  const std::int64_t token = 20;
  const std::int64_t row = solved->problem.hidden * 4;
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solved->in(formats));
    device.run({MEMRA_ROWS_AUTO, false, token, 1});
    const Bytes alone = device.y();
    for (const std::uint32_t variant : variants(device)) {
      for (const std::int64_t others : {2, 8, 9, 64}) {
        for (const std::int64_t before :
             {std::int64_t{0}, std::min(others / 2, token), std::min(others, token)}) {
          const std::int64_t first = token - before;
          if (first + others + 1 > solved->problem.tokens) continue;
          device.run({variant, false, first, others + 1});
          const Bytes y = device.y();
          EXPECT_TRUE(std::equal(y.begin() + token * row, y.begin() + (token + 1) * row,
                                 alone.begin() + token * row))
              << formats.name << ", " << variant_name(variant) << ", among " << others << ", "
              << before << " before it";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, BatchInvariance,
    ::testing::Combine(both_backends(), ::testing::Values(Shape{192, 64}, Shape{1408, 64})),
    case_namer([](const Shape& s) { return name_of_shape(s.hidden, s.intermediate); }));

class LargestCalls : public BackendTest {
 protected:
  // A CPU takes a while for these: the kernels' structure is covered elsewhere.
  std::vector<std::uint32_t> variants(const DeviceProblem& device) const {
    if (engine().is_cuda()) return device.variants();
    return {MEMRA_ROWS_AUTO, MEMRA_ROWS_PLAIN, MEMRA_ROWS_DEDUP_ORDER | MEMRA_ROWS_PACK};
  }
  void expect_same(const Solved& solved) {
    ASSERT_TRUE(is_informative(solved));
    for (const Formats& formats : {v1(), v2()}) {
      const DeviceProblem device(engine(), solved.in(formats));
      for (const std::uint32_t variant : variants(device)) {
        device.run({variant});
        EXPECT_TRUE(device.check({variant}, solved.result))
            << formats.name << ", " << variant_name(variant);
      }
    }
  }
};

TEST_P(LargestCalls, MostTokens) {
  ProblemSpec spec;
  spec.hidden = 128;
  spec.tokens = MEMRA_ROWS_MAX_TOKENS;
  spec.n_experts = 16;
  const auto solved = solve(spec);
  expect_same(*solved);
  // One more than the layer's max_tokens is refused by name.
  const DeviceProblem device(engine(), solved->problem);
  device.reset();
  memra_moe_args args = device.args({});
  args.tokens = MEMRA_ROWS_MAX_TOKENS + 1;
  EXPECT_TRUE(fails_with(memra_moe_rows(device.layer(), &args, engine().stream()),
                         MEMRA_ERROR_INVALID_ARGUMENT, {"tokens", "1025", "1024"}));
  engine().synchronize();
  EXPECT_TRUE(same_bytes(solved->problem.y_initial, device.y()));
}

// 65,536 pairs: one more than a grid's second dimension takes.
TEST_P(LargestCalls, MostPairs) {
  ProblemSpec spec;
  spec.hidden = 64;
  spec.intermediate = 64;
  spec.tokens = MEMRA_ROWS_MAX_TOKENS;
  spec.n_experts = MEMRA_MAX_TOP_K;
  spec.top_k = MEMRA_MAX_TOP_K;
  expect_same(*solve(spec));
}

// More rows than a grid's second dimension takes, and one more.
TEST_P(LargestCalls, ManyRowsToQuantise) {
  const std::int64_t rows = 65537;
  const std::int64_t columns = 64;
  reference::Random random(11);
  std::vector<float> x(static_cast<std::size_t>(rows * columns));
  for (float& value : x)
    value = random.normal();
  const reference::QuantizedRows expected = reference::quantize_q8(x, rows, columns);
  const Input in(engine(), x);
  const Buffer q(engine(), rows * columns);
  const Buffer d(engine(), rows * (columns / 32) * 4);
  const Buffer permuted(engine(), rows * columns);
  memra_q8_1_args args = MEMRA_Q8_1_ARGS_INIT;
  args.x = in.data();
  args.rows = rows;
  args.columns = columns;
  args.q = q.as<std::int8_t>();
  args.d = d.as<float>();
  ASSERT_TRUE(ok(memra_quantize_q8_1(engine().get(), &args, engine().stream())));
  ASSERT_TRUE(ok(memra_q8_to_lane_major(engine().get(), q.as<std::int8_t>(), rows, columns,
                                        permuted.as<std::int8_t>(), engine().stream())));
  engine().synchronize();
  EXPECT_TRUE(same_bytes(bytes_of(expected.q), q.download()));
  EXPECT_TRUE(same_bytes(bytes_of(expected.d), d.download()));
  // Whatever the order, each group keeps its sum.
  const auto sum = [](const std::vector<std::int8_t>& values, std::size_t group) {
    int total = 0;
    for (std::size_t i = 0; i < 32; ++i)
      total += values[32 * group + i];
    return total;
  };
  const auto moved = permuted.download_values<std::int8_t>();
  for (std::size_t group = 0; group < moved.size() / 32; ++group)
    ASSERT_EQ(sum(moved, group), sum(expected.q, group)) << group;
}

MEMRA_ON_BOTH_BACKENDS(LargestCalls);

}  // namespace
}  // namespace memra::test
