// What the grouped path promises of bits, sizes and state: batches, runs, streams, graphs,
// workspaces, and the choice between the paths.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "conformance/grouped.h"

namespace memra::test {
namespace {

using reference::IdPattern;
using reference::MoeProblem;
using reference::ProblemSpec;

class GroupedOrder : public GroupedTest {};

// On one layer, over every border of a tile, in calls that grow and shrink.
TEST_P(GroupedOrder, ATokensBitsDoNotDependOnItsCompany) {
  for (const IdPattern ids : {IdPattern::kDistinct, IdPattern::kOneExpert}) {
    ProblemSpec spec;
    spec.hidden = 192;
    spec.intermediate = 128;
    spec.tokens = 258;
    spec.ids = ids;
    const MoeProblem problem = reference::make_problem(spec);
    const DeviceProblem device(engine(), problem);
    device.run(grouped_call());
    const Bytes all = device.y();
    ASSERT_TRUE(reference::count_values(all, reference::DType::kF32, problem.tokens, problem.hidden)
                    .informative());
    for (const std::int64_t first : {0, 57}) {
      for (const std::int64_t tokens :
           {1, 2, 3, 7, 8, 9, 129, 16, 17, 31, 33, 63, 64, 65, 127, 128, 5, 200}) {
        device.run(grouped_call(first, tokens));
        const Bytes y = device.y();
        const auto begin = first * problem.hidden * 4, end = (first + tokens) * problem.hidden * 4;
        EXPECT_TRUE(std::equal(y.begin() + begin, y.begin() + end, all.begin() + begin))
            << tokens << " tokens from " << first;
      }
    }
  }
}

TEST_P(GroupedOrder, ManyTokensAndTheirBorders) {
  ProblemSpec spec;
  spec.hidden = spec.intermediate = 64;
  spec.tokens = 4097;
  spec.n_experts = 3;
  const auto exact = solve_exact(spec);
  const DeviceProblem device(engine(), exact->problem());
  for (const std::int64_t tokens : {4095, 4096, 4097, 255, 256, 257, 1}) {
    const Call call = grouped_call(0, tokens);
    device.run(call);
    EXPECT_TRUE(device.check_close(call, exact->y)) << tokens;
  }
}

TEST_P(GroupedOrder, RunsGiveTheSameBits) {
  ProblemSpec spec;
  spec.hidden = 320;
  spec.tokens = 100;
  const DeviceProblem device(engine(), solve_exact(spec)->problem());
  device.run(grouped_call());
  const Bytes first = device.y();
  for (int run = 0; run < 20; ++run) {
    device.run(grouped_call());
    ASSERT_EQ(first, device.y()) << run;
  }
}

// Stage after stage, from a whole call's workspace: the bits of the whole.
TEST_P(GroupedOrder, StagesGiveTheBitsOfTheWhole) {
  ProblemSpec spec;
  spec.hidden = 320;
  spec.intermediate = 192;
  spec.tokens = 70;
  spec.ids = IdPattern::kWithInvalid;
  const auto exact = solve_exact(spec);
  const Call call = grouped_call();
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), exact->solved.in(formats));
    device.run(call);
    ASSERT_TRUE(device.check_close(call, exact->y));
    const Bytes whole = device.y();
    const memra_moe_args args = device.args(call);
    const auto run = [&](std::uint32_t stages) {
      require(memra_moe_grouped_probe(device.layer(), &args, stages, engine().stream()));
    };
    device.reset();
    run(MEMRA_GROUPED_ALL);
    engine().synchronize();
    EXPECT_EQ(whole, device.y()) << formats.name << ", all at once";
    // On a poisoned workspace: each has what the stages before it left, and nothing else.
    const auto run_each = [&] {
      device.reset();
      run(MEMRA_GROUPED_ROUTE);
      run(MEMRA_GROUPED_GATHER);
      run(MEMRA_GROUPED_GATE_UP);
      run(MEMRA_GROUPED_DOWN | MEMRA_GROUPED_SUM);
    };
    run_each();
    engine().synchronize();
    EXPECT_EQ(whole, device.y()) << formats.name;
    // Stages run again change nothing where what they read has been made anew.
    for (const std::uint32_t stages :
         {MEMRA_GROUPED_ROUTE, MEMRA_GROUPED_DOWN, MEMRA_GROUPED_GATHER, MEMRA_GROUPED_GATE_UP,
          MEMRA_GROUPED_GATE_UP}) {
      run(stages);
    }
    require(memra_memset(engine().get(), args.y, 0xFF, whole.size(), engine().stream()));
    run(MEMRA_GROUPED_DOWN | MEMRA_GROUPED_SUM);
    engine().synchronize();
    EXPECT_EQ(whole, device.y()) << formats.name << ", again";
    EXPECT_TRUE(device.inputs_intact());
  }
}

TEST_P(GroupedOrder, StreamsAtOnce) {
  ProblemSpec spec;
  spec.hidden = 320;
  spec.tokens = 90;
  const auto a = solve_exact(spec);
  spec.seed = 9;
  const auto b = solve_exact(spec);
  const DeviceProblem first(engine(), a->problem());
  const DeviceProblem second(engine(), b->problem());
  const Stream one(engine()), other(engine());
  first.reset();
  second.reset();
  engine().synchronize();
  constexpr std::uint64_t kRounds = 10;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    require(first.enqueue(grouped_call(), one.get()));
    require(second.enqueue(grouped_call(), other.get()));
  }
  one.synchronize();
  other.synchronize();
  EXPECT_TRUE(first.check_close(grouped_call(), a->y));
  EXPECT_TRUE(second.check_close(grouped_call(), b->y));
}

TEST_P(GroupedOrder, ReplaysSeeNewContents) {
  ProblemSpec spec;
  spec.tokens = 20;
  const auto a = solve_exact(spec);
  spec.seed = 5;
  const auto b = solve_exact(spec);
  DeviceProblem device(engine(), a->problem(), {Slabs::kTables});
  const Graph graph(engine(), engine().stream(),
                    [&] { return device.enqueue(grouped_call(), engine().stream()); });
  device.reset();
  graph.launch(engine().stream());
  engine().synchronize();
  EXPECT_TRUE(device.check_close(grouped_call(), a->y));
  device.replace_tokens(b->problem());
  device.replace_slabs(b->problem());
  std::vector<float> scales;
  for (const reference::Bank& bank : b->problem().banks)
    scales.insert(scales.end(), bank.scales.begin(), bank.scales.end());
  device.replace_tables(device.slab_table(), scales);
  device.reset();
  graph.launch(engine().stream());
  engine().synchronize();
  EXPECT_TRUE(device.check_close(grouped_call(), b->y));
}

// The first call ever on an engine is a recorded one.
TEST_P(GroupedOrder, FirstCallOfAnEngineUnderCapture) {
  const auto exact = solve_exact(ProblemSpec{});
  Engine fresh(GetParam());
  const DeviceProblem device(fresh, exact->problem());
  device.run_recorded(grouped_call());
  EXPECT_TRUE(device.check_close(grouped_call(), exact->y));
}

// A NULL entry in any plane skips the expert's pairs.
TEST_P(GroupedOrder, NullEntriesOfTablesAreSkippedPairs) {
  ProblemSpec spec;
  spec.tokens = 30;
  for (std::int64_t plane = 0; plane < 3; ++plane) {
    MoeProblem problem = reference::make_problem(spec);
    for (const reference::Bank& bank : problem.banks) {
      for (const reference::Slab& slab : bank.slabs)
        problem.table_slabs.push_back(&slab);
    }
    problem.table_slabs[static_cast<std::size_t>(plane * problem.n_local + 2)] = nullptr;
    // The slabs live in `problem`, which must not move.
    const DeviceProblem device(engine(), problem);
    device.run(grouped_call());
    const std::vector<double> exact = solve_exact(problem)->y;
    EXPECT_TRUE(device.check_close(grouped_call(), exact)) << plane;
    const Bytes with_null = device.y();
    MoeProblem masked = reference::make_problem(spec);
    std::replace(masked.ids.begin(), masked.ids.end(), 2, -1);
    const DeviceProblem other(engine(), masked);
    other.run(grouped_call());
    EXPECT_EQ(with_null, other.y()) << plane;
  }
}

TEST_P(GroupedOrder, TokensWithoutALocalExpert) {
  ProblemSpec spec;
  spec.tokens = 5;
  MoeProblem problem = reference::make_problem(spec);
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  problem.ids = {-1, 4, kMin, kMax, 2, -1, -1, -1, 3, 0};
  const auto exact = solve_exact(problem);
  const DeviceProblem device(engine(), problem);
  device.run(grouped_call());
  EXPECT_TRUE(device.check_close(grouped_call(), exact->y));
  EXPECT_EQ(device.counted_since_reset(), 3u);
  for (const std::int64_t token : {0, 1, 3}) {
    for (const float value : device.y_row(token))
      ASSERT_EQ(reference::bits_of(value), 0u) << token;
  }
}

// ---- Sizes ----

TEST_P(GroupedOrder, WorkspaceIsBoundedAndMonotone) {
  struct Shape {
    std::int64_t hidden, intermediate, n_experts, top_k;
  };
  for (const Shape& shape :
       {Shape{4096, 640, 288, 8}, Shape{7168, 2048, 256, 8}, Shape{2880, 2880, 128, 4},
        Shape{64, 64, 4, 1}, Shape{64, 64, 8, 8}, Shape{8192, 64, 16, 1}, Shape{64, 8192, 16, 2}}) {
    memra_bank bank = MEMRA_BANK_INIT;
    bank.format = MEMRA_NVFP4_V2;
    memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
    desc.hidden_size = shape.hidden;
    desc.intermediate_size = shape.intermediate;
    desc.n_experts = shape.n_experts;
    desc.top_k = shape.top_k;
    desc.max_tokens = std::numeric_limits<std::int64_t>::max();
    desc.gate = desc.up = desc.down = &bank;
    memra_moe_layer* layer = nullptr;
    require(memra_moe_layer_create(engine().get(), &desc, &layer));
    std::uint64_t last = 0;
    for (const std::int64_t tokens : {0, 1, 2, 3, 16, 64, 100, 576, 1024, 1025, 4096, 65536}) {
      std::uint64_t bytes = 0, either = 0, rows = 0;
      require(memra_moe_grouped_workspace_size(layer, tokens, &bytes));
      require(memra_moe_workspace_size(layer, tokens, &either));
      require(memra_moe_rows_workspace_size(layer, tokens, &rows));
      const auto pairs = static_cast<double>(tokens * shape.top_k);
      const double planes = 2.0 * static_cast<double>(shape.hidden + shape.intermediate);
      EXPECT_LE(static_cast<double>(bytes),
                1.05 * pairs * planes + 16.0 * static_cast<double>(shape.n_experts) + 4096)
          << shape.hidden << ", " << shape.intermediate << ", " << tokens;
      EXPECT_GE(bytes, last);
      EXPECT_EQ(either, std::max(bytes, rows));
      last = bytes;
    }
    memra_moe_layer_destroy(layer);
  }
}

TEST_P(GroupedOrder, WorkspaceOneByteShortIsRefused) {
  for (const memra_path path : {MEMRA_PATH_GROUPED, MEMRA_PATH_AUTO}) {
    const DeviceProblem device(engine(), solve_exact(ProblemSpec{})->problem());
    device.reset();
    Call call = grouped_call();
    call.path = path;
    memra_moe_args args = device.args(call);
    --args.workspace_bytes;
    const auto entry = path == MEMRA_PATH_AUTO ? memra_moe : memra_moe_grouped;
    EXPECT_TRUE(fails_with(entry(device.layer(), &args, engine().stream()),
                           MEMRA_ERROR_WORKSPACE_TOO_SMALL, {"workspace_bytes"}));
    engine().synchronize();
    EXPECT_TRUE(device.untouched());
    ++args.workspace_bytes;
    EXPECT_TRUE(ok(entry(device.layer(), &args, engine().stream())));
    engine().synchronize();
  }
}

TEST_P(GroupedOrder, ZeroTokensAndTooMany) {
  const MoeProblem problem = reference::make_problem({});
  const DeviceProblem device(engine(), problem);
  device.reset();
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  EXPECT_TRUE(ok(memra_moe_grouped(device.layer(), &args, engine().stream())));
  args = device.args(grouped_call());
  args.tokens = problem.tokens + 1;
  for (const auto entry : {memra_moe_grouped, memra_moe}) {
    EXPECT_TRUE(fails_with(entry(device.layer(), &args, engine().stream()),
                           MEMRA_ERROR_INVALID_ARGUMENT, {"tokens is 4", "3"}));
  }
  engine().synchronize();
  EXPECT_TRUE(device.untouched());
}

// 65,536 pairs, what a grid's second dimension takes, and more: each token is as in a small call.
class GroupedLargestCalls : public GroupedTest {};

TEST_P(GroupedLargestCalls, VeryManyPairs) {
  ProblemSpec spec;
  spec.hidden = spec.intermediate = 64;
  spec.tokens = 65537;
  spec.top_k = 1;
  const MoeProblem problem = reference::make_problem(spec);
  const DeviceProblem device(engine(), problem);
  device.run(grouped_call());
  const Bytes all = device.y();
  for (const std::int64_t first : {0, 32767, 65500}) {
    const std::int64_t tokens = std::min<std::int64_t>(100, spec.tokens - first);
    device.run(grouped_call(first, tokens));
    const Bytes y = device.y();
    const auto begin = first * spec.hidden * 4, end = (first + tokens) * spec.hidden * 4;
    const Bytes part(y.begin() + begin, y.begin() + end);
    EXPECT_TRUE(
        reference::count_values(part, reference::DType::kF32, tokens, spec.hidden).informative());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + begin)) << first;
  }
}

MEMRA_ON_BOTH_BACKENDS(GroupedLargestCalls);

// ---- memra_moe ----

TEST_P(GroupedOrder, EitherPathIsTheOneThatInfoNames) {
  ProblemSpec spec;
  spec.tokens = 700;
  spec.n_experts = 3;
  const MoeProblem problem = reference::make_problem(spec);
  const DeviceProblem device(engine(), problem);
  memra_moe_layer_properties info;
  require(memra_moe_layer_properties_init(&info, sizeof info));
  require(memra_moe_layer_info(device.layer(), &info));
  EXPECT_EQ(info.grouped_determinism, MEMRA_DETERMINISM_BATCH_INVARIANT);
  EXPECT_EQ(info.grouped_max_tokens, problem.tokens);
  EXPECT_STRNE(info.grouped_gate_up_kernel, "");
  EXPECT_STRNE(info.grouped_down_kernel, "");
  ASSERT_GE(info.grouped_min_tokens, 1);
  ASSERT_LE(info.grouped_min_tokens, problem.tokens + 1);

  std::vector<std::int64_t> counts = {1, problem.tokens};
  for (const std::int64_t tokens : {info.grouped_min_tokens - 1, info.grouped_min_tokens}) {
    if (tokens >= 1 && tokens <= problem.tokens) counts.push_back(tokens);
  }
  for (const std::int64_t tokens : counts) {
    Bytes y[3];
    for (const memra_path path : {MEMRA_PATH_AUTO, MEMRA_PATH_ROWS, MEMRA_PATH_GROUPED}) {
      Call call{MEMRA_ROWS_AUTO, false, 0, tokens, path};
      device.run(call);
      y[path] = device.y();
      // Pinned, the other entry gives the same.
      call.path = MEMRA_PATH_AUTO;
      memra_moe_args args = device.args(call);
      args.path = path;
      device.reset();
      ASSERT_TRUE(ok(memra_moe(device.layer(), &args, engine().stream())));
      engine().synchronize();
      EXPECT_EQ(y[path], device.y()) << tokens << ", pinned to " << path;
    }
    const bool grouped = tokens >= info.grouped_min_tokens;
    EXPECT_EQ(y[MEMRA_PATH_AUTO], y[grouped ? MEMRA_PATH_GROUPED : MEMRA_PATH_ROWS]) << tokens;
    EXPECT_NE(y[MEMRA_PATH_ROWS], y[MEMRA_PATH_GROUPED]) << "then this test shows nothing";
  }
}

// Rows end at their limit, either path goes on: grouped, or with the bits of rows in parts.
TEST_P(GroupedOrder, BeyondTheRowsPath) {
  ProblemSpec spec;
  spec.hidden = spec.intermediate = 64;
  spec.tokens = 2 * MEMRA_ROWS_MAX_TOKENS + 1;
  const auto exact = solve_exact(spec);
  const DeviceProblem device(engine(), exact->problem());
  memra_moe_layer_properties info;
  require(memra_moe_layer_properties_init(&info, sizeof info));
  require(memra_moe_layer_info(device.layer(), &info));
  const Call call{MEMRA_ROWS_AUTO, false, 0, -1, MEMRA_PATH_AUTO};
  device.run(call);
  if (info.grouped_min_tokens <= spec.tokens) {
    EXPECT_TRUE(device.check_close(call, exact->y));
  } else {
    EXPECT_TRUE(device.check(call, reference::moe_rows(exact->problem())));
  }
  device.reset();
  memra_moe_args args = device.args(call);
  args.path = MEMRA_PATH_ROWS;
  EXPECT_TRUE(fails_with(memra_moe(device.layer(), &args, engine().stream()),
                         MEMRA_ERROR_INVALID_ARGUMENT, {"tokens", "1024"}));
  engine().synchronize();
  EXPECT_TRUE(device.untouched());
}

MEMRA_ON_BOTH_BACKENDS(GroupedOrder);

}  // namespace
}  // namespace memra::test
