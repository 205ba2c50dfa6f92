// What moe-grouped-ceiling measures, on the CPU and on figures made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "grouped_bars.h"
#include "grouped_report.h"
#include "inputs.h"
#include "routing.h"

namespace memra::bench {
namespace {

constexpr EngineChoice kCpu = {MEMRA_BACKEND_CPU, 0, 2};
constexpr Activation kSwiglu = {MEMRA_SWIGLU, 7.0F, 1.702F};
using Tokens = std::vector<int64_t>;

TEST(HashedExperts, AreTheReferenceRouting) {
  const Shape reference = {4096, 640, 288, 8, 4096};
  std::map<int32_t, int64_t> by_expert;
  for (const int32_t id : hashed_experts(reference, 1.35)) {
    ASSERT_GE(id, 0);
    ASSERT_LT(id, 288);
    ++by_expert[id];
  }
  std::vector<int64_t> counts;
  counts.reserve(by_expert.size());
  for (const auto& [id, count] : by_expert)
    counts.push_back(count);
  std::sort(counts.begin(), counts.end());
  ASSERT_EQ(counts.size(), 288U);
  EXPECT_EQ(counts.front(), 61);
  EXPECT_EQ(counts[144], 102);
  EXPECT_EQ(counts.back(), 494);
  EXPECT_EQ(hashed_experts({64, 64, 288, 8, 1}, 1.35, 8),
            (std::vector<int32_t>{hashed_expert(8, 288, 1.35), hashed_expert(9, 288, 1.35),
                                  hashed_expert(10, 288, 1.35), hashed_expert(11, 288, 1.35),
                                  hashed_expert(12, 288, 1.35), hashed_expert(13, 288, 1.35),
                                  hashed_expert(14, 288, 1.35), hashed_expert(15, 288, 1.35)}));
}

TEST(F16Bits, TruncatesAndKeepsWhatBf16Holds) {
  EXPECT_EQ(f16_bits(0.0F), 0x0000);
  EXPECT_EQ(f16_bits(-0.0F), 0x8000);
  EXPECT_EQ(f16_bits(1.0F), 0x3C00);
  EXPECT_EQ(f16_bits(-0.75F), 0xBA00);
  EXPECT_EQ(f16_bits(std::nextafter(1.0F, 0.0F)), 0x3BFF);
  EXPECT_EQ(f16_bits(0x1p-14F), 0x0400);
  EXPECT_EQ(f16_bits(0x1p-15F), 0x0000);
}

TEST(Accuracy, FindsTheColumnsThatAreWrong) {
  std::vector<float> actual(300, 1.0F);
  const std::vector<double> exact(300, 1.0);
  AccuracySums sums;
  sums.add_row(actual, exact);
  EXPECT_EQ(sums.result().relative_l2, 0);
  actual[67] = actual[195] = 1.5F;  // 3 mod 32 and 64, 67 mod 128
  sums.add_row(actual, exact);
  const Accuracy accuracy = sums.result();
  EXPECT_EQ(accuracy.outputs, 600);
  EXPECT_NEAR(accuracy.relative_l2, std::sqrt(0.5 / 600), 1e-12);
  EXPECT_EQ(accuracy.worst[0].column, 3);
  EXPECT_EQ(accuracy.worst[1].column, 3);
  EXPECT_EQ(accuracy.worst[2].column, 67);
  EXPECT_EQ(accuracy.worst[2].modulus, 128);
  EXPECT_NEAR(accuracy.worst[2].relative_l2, std::sqrt(0.5 / 4), 1e-12);
  actual[0] = std::numeric_limits<float>::quiet_NaN();
  sums.add_row(actual, exact);
  EXPECT_TRUE(std::isinf(sums.result().relative_l2));
  EXPECT_EQ(sums.result().worst[2].column, 0);
}

TEST(GroupedCases, Usual) {
  const std::vector<GroupedCase> gpu = grouped_cases({}, false);
  ASSERT_EQ(gpu.size(), 3U);
  EXPECT_EQ(gpu[0].shape, (Shape{4096, 640, 288, 8, 4096}));
  EXPECT_EQ(gpu[0].tokens, (Tokens{64, 576, 4096}));
  EXPECT_EQ(gpu[1].shape, (Shape{4096, 1536, 128, 8, 8192}));
  EXPECT_EQ(gpu[2].shape, (Shape{7168, 2048, 256, 8, 4096}));
  const std::vector<GroupedCase> cpu = grouped_cases({}, true);
  ASSERT_EQ(cpu.size(), 1U);
  EXPECT_EQ(cpu[0].name, "small");
}

TEST(GroupedCases, DimensionsMakeOneOfTheirOwn) {
  GroupedOptions options;
  options.shape.hidden_size = 256;
  options.tokens = {3, 9};
  const std::vector<GroupedCase> cases = grouped_cases(options, false);
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(cases[0].name, "256->640");
  EXPECT_EQ(cases[0].shape, (Shape{256, 640, 288, 8, 9}));
  options.model = find_model("Kimi-K2");
  EXPECT_EQ(grouped_cases(options, false)[0].shape, (Shape{256, 2048, 384, 8, 9}));
}

TEST(GroupedCases, ValleyIsOverPowersOfTwo) {
  GroupedOptions options;
  options.valley = true;
  const std::vector<GroupedCase> cases = grouped_cases(options, false);
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(cases[0].tokens,
            (Tokens{1,   2,   3,    4,    5,    7,    8,    9,    15,   16,  17,  31,
                    32,  33,  63,   64,   65,   127,  128,  129,  255,  256, 257, 511,
                    512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096}));
  options.tokens = {6};
  EXPECT_EQ(grouped_cases(options, true)[0].tokens, (Tokens{1, 2, 3, 4, 5}));
}

TEST(Valley, MarksFallsBelowTheSlowestSmallerCall) {
  Valley valley;
  for (const double us : {10.0, 20.0, 19.5, 18.0, 30.0})
    valley.points.push_back({static_cast<int64_t>(us), false, {us, us, us}, {}, {}, 0});
  find_falls(&valley.points);
  EXPECT_EQ(valley.points[1].fall, 0);
  EXPECT_NEAR(valley.points[2].fall, 0.025, 1e-12);
  EXPECT_NEAR(valley.points[3].fall, 0.1, 1e-12);
  EXPECT_EQ(valley_verdict(valley), "time falls by more than 5 % at 18 (10.0 %) tokens");
  valley.points[3].us.median = 19.1;
  find_falls(&valley.points);
  EXPECT_EQ(valley_verdict(valley), "time rises with tokens, within 5 %");
}

// Counts 1, 2, ... with medians of rows and of grouped; 0: not timed.
Valley valley_of_paths(const std::vector<std::pair<double, double>>& us, int64_t min_tokens) {
  Valley valley;
  valley.grouped_min_tokens = min_tokens;
  for (const auto& [rows_us, grouped_us] : us) {
    ValleyPoint& point = valley.points.emplace_back();
    point.tokens = static_cast<int64_t>(valley.points.size());
    point.grouped = point.tokens >= min_tokens;
    if (rows_us > 0) point.rows_us = {rows_us, rows_us, rows_us};
    if (grouped_us > 0) point.grouped_us = {grouped_us, grouped_us, grouped_us};
  }
  return valley;
}

TEST(Crossing, IsWhereGroupedIsNoSlowerForGood) {
  const auto text = [](const std::vector<std::pair<double, double>>& us, int64_t min_tokens) {
    return crossing_text(valley_of_paths(us, min_tokens));
  };
  EXPECT_EQ(text({{1, 3}, {2, 3}, {4, 3}, {5, 3}}, 3),
            "paths cross between 2 and 3 tokens; memra_moe changes at 3");
  // As fast is fast enough, and memra_moe may be elsewhere.
  EXPECT_EQ(text({{1, 3}, {3, 3}, {4, 3}}, 3),
            "paths cross between 1 and 2 tokens; memra_moe changes at 3");
  // Faster once, but not for good.
  EXPECT_EQ(text({{1, 3}, {4, 3}, {3, 4}, {5, 4}, {6, 4}}, 2),
            "paths cross between 3 and 4 tokens; memra_moe changes at 2");
  // Counts timed by one path say nothing.
  EXPECT_EQ(text({{1, 3}, {0, 3}, {5, 4}, {0, 5}}, 4),
            "paths cross between 1 and 3 tokens; memra_moe changes at 4");
  EXPECT_EQ(text({{1, 3}, {4, 3}, {3, 4}, {0, 4}}, 5),
            "paths do not cross, rows are faster at 3 tokens; memra_moe takes rows throughout");
  EXPECT_EQ(text({{3, 3}, {4, 3}}, 1),
            "paths do not cross, grouped is at least as fast at every count; memra_moe takes "
            "grouped throughout");
  EXPECT_EQ(text({{0, 3}, {4, 0}, {0, 0}}, 2), "");
  EXPECT_EQ(crossing_text({}), "");
}

TEST(Crossing, IsZeroWhereThereIsNoSuchCount) {
  const auto expect = [](const std::vector<std::pair<double, double>>& us, int64_t last_rows,
                         int64_t first_grouped) {
    const PathCrossing crossing = find_crossing(valley_of_paths(us, 2).points);
    EXPECT_EQ(crossing.last_rows, last_rows);
    EXPECT_EQ(crossing.first_grouped, first_grouped);
    EXPECT_EQ(crossing.is_timed(), last_rows + first_grouped > 0);
  };
  expect({{1, 3}, {4, 3}}, 1, 2);
  expect({{1, 3}, {2, 3}}, 2, 0);
  expect({{3, 3}, {4, 3}}, 0, 1);
  expect({{0, 3}, {4, 0}}, 0, 0);
  expect({}, 0, 0);
}

TEST(GroupedRatios, OnlyOfWhatWasMeasured) {
  GroupedRow row;
  const auto add = [&](const char* name, double burst, double sustained) {
    row.timings.push_back({name, 1, 1, {{burst, burst, burst}, {sustained, 0, 0}}});
  };
  add("gate_up", 500, 600);
  add("dense.gate_up", 450, 540);
  add("down", 300, 0);
  add("layer", 1000, 1200);
  const std::vector<GroupedRatio> ratios = grouped_ratios(row);
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_EQ(ratios[0].name, "gate_up: dense / memra");
  EXPECT_EQ(ratios[0].of(Regime::kBurst), 0.9);
  EXPECT_EQ(ratios[0].of(Regime::kSustained), 0.9);
  EXPECT_EQ(ratios[1].name, "layer / its products");
  EXPECT_EQ(ratios[1].of(Regime::kBurst), 1.25);
  EXPECT_EQ(ratios[1].of(Regime::kSustained), 0);
}

// The runs of --bars, as "case/format/tokens".
std::vector<std::string> runs_of_bars(GroupedOptions options, bool on_cpu) {
  options.bars = true;
  std::vector<std::string> runs;
  for (const GroupedRun& run : grouped_runs(options, on_cpu)) {
    std::string text = run.layer.name + "/" + format_name(run.format);
    if (run.valley) text += "/valley";
    if (!run.valley) {
      for (const int64_t tokens : run.layer.tokens)
        text += "/" + std::to_string(tokens);
    }
    runs.push_back(text);
  }
  return runs;
}

TEST(GroupedRuns, BarsNeedEveryCaseAndLittleOfV1) {
  using Runs = std::vector<std::string>;
  EXPECT_EQ(runs_of_bars({}, false),
            (Runs{"reference/v2/64/576/4096", "uniform-128/v2/8192", "uniform-256/v2/4096",
                  "reference/v1/4096", "reference/v2/valley"}));
  EXPECT_EQ(runs_of_bars({}, true), (Runs{"small/v2/16/64", "small/v1/64", "small/v2/valley"}));
  GroupedOptions options;
  options.formats = {MEMRA_NVFP4};
  options.cases = {"uniform-128"};
  EXPECT_EQ(runs_of_bars(options, false), (Runs{"uniform-128/v1/8192", "uniform-128/v1/valley"}));
}

// A row in which every arm takes as long.
GroupedRow even_row(const char* name, int64_t tokens, memra_format weight_format, double us) {
  GroupedRow row;
  row.case_name = name;
  row.shape.tokens = tokens;
  row.format = weight_format;
  for (const std::string_view arm : grouped_arm_names())
    row.timings.push_back({std::string(arm), 6e11, 1, {{us, us, us}, {us, us, us}}});
  return row;
}

const Bar& bar_named(const std::vector<Bar>& bars, const std::string& start,
                     const std::string& regime) {
  const auto found = std::find_if(bars.begin(), bars.end(), [&](const Bar& bar) {
    return bar.name.rfind(start, 0) == 0 && bar.regime == regime;
  });
  if (found == bars.end()) throw std::out_of_range(start);
  return *found;
}

TEST(Bars, NothingIsKnownOfWhatWasNotMeasured) {
  const std::vector<Bar> bars = judge_bars({even_row("small", 4096, MEMRA_NVFP4_V2, 1)}, {});
  EXPECT_EQ(bars.size(), 20U);
  for (const Bar& bar : bars) {
    EXPECT_FALSE(bar.measured || bar.is_met() || bar.is_missed()) << bar.name;
    EXPECT_EQ(bar.verdict(), "not measured");
    EXPECT_EQ(bar.at_least, bar.aim > bar.bar || bar.unit == "TFLOP/s") << bar.name;
  }
}

TEST(Bars, SayByHowMuch) {
  std::vector<GroupedRow> rows = {even_row("reference", 64, MEMRA_NVFP4_V2, 140),
                                  even_row("reference", 576, MEMRA_NVFP4_V2, 190),
                                  even_row("reference", 4096, MEMRA_NVFP4, 1200),
                                  even_row("reference", 4096, MEMRA_NVFP4_V2, 1000),
                                  even_row("uniform-128", 8192, MEMRA_NVFP4_V2, 900),
                                  even_row("uniform-256", 4096, MEMRA_NVFP4_V2, 900)};
  auto& accuracy = rows[0].accuracy.emplace();
  accuracy.planes[kUp].relative_l2 = 4e-4;
  accuracy.layer.relative_l2 = 2e-3;
  Valley valley;
  valley.points.resize(2);
  valley.points[1].fall = 0.08;
  const std::vector<Bar> bars = judge_bars(rows, {valley});
  for (const Bar& bar : bars)
    EXPECT_TRUE(bar.measured) << bar.name;

  // 6e11 operations in a millisecond.
  const Bar& gate_up = bar_named(bars, "gate and up (reference", "burst");
  EXPECT_NEAR(gate_up.measured.value_or(0), 600, 1e-9);
  EXPECT_EQ(gate_up.verdict(), "met by 0.0 %, aim missed by 11.8 %");
  const Bar& down = bar_named(bars, "down: dense / memra", "sustained");
  EXPECT_EQ(down.verdict(), "met by 25.0 %, aim met by 11.1 %");
  const Bar& few = bar_named(bars, "products in the layer (reference, 64", "burst");
  EXPECT_NEAR(few.measured.value_or(0), 0.28, 1e-12);
  EXPECT_EQ(few.verdict(), "met by 3.4 %, aim missed by 5.7 %");
  const Bar& middle = bar_named(bars, "products in the layer (reference, 576", "burst");
  EXPECT_EQ(middle.verdict(), "BAR missed by 2.7 %");
  EXPECT_TRUE(middle.is_missed());
  for (const char* regime : {"burst", "sustained"}) {
    EXPECT_EQ(bar_named(bars, "products, V1 / V2", regime).measured.value_or(0), 1.2);
    EXPECT_EQ(bar_named(bars, "layer / its", regime).measured.value_or(0), 0.5);
  }
  EXPECT_EQ(bar_named(bars, "relative L2, worst product", "").verdict(), "met by 20.0 %");
  EXPECT_EQ(bar_named(bars, "relative L2, worst layer", "").verdict(), "BAR missed by 100.0 %");
  EXPECT_EQ(bar_named(bars, "time of memra_moe", "").verdict(), "BAR missed by 60.0 %");
}

class GroupedBench : public testing::TestWithParam<memra_format> {
 protected:
  static constexpr Shape kShape = {256, 192, 6, 3, 21};
  static constexpr int64_t kBanks = 2;

  Session session{kCpu};
  GroupedBanks banks{session, kShape, kSwiglu, GetParam(), kBanks};
  GroupedCalls calls{banks, 21, 1.35};
};

TEST_P(GroupedBench, IsAccurate) {
  const GroupedPlanes planes(calls);
  const GroupedAccuracy accuracy = measure_accuracy(calls, planes);
  EXPECT_TRUE(accuracy.within_limits()) << accuracy.layer.text();
  for (const Accuracy& plane : accuracy.planes) {
    EXPECT_GT(plane.outputs, 0);
    EXPECT_GT(plane.relative_l2, 0);
  }
}

TEST_P(GroupedBench, StagesAndTablesAreTheLayer) {
  const std::vector<float> y = calls.output(1);
  EXPECT_EQ(calls.output(0), y) << "banks hold the same values";
  EXPECT_GT(std::abs(y[5]), 0);
  calls.launch_stages(1, MEMRA_GROUPED_ALL);
  calls.launch(1, {MEMRA_PATH_GROUPED, true});
  calls.launch(1, {MEMRA_PATH_ROWS, false});
  EXPECT_NO_THROW(session.synchronize());
  EXPECT_NE(banks.ptrs(0)[0], banks.ptrs(1)[0]);
  EXPECT_EQ(banks.ptrs(1)[kDown * kShape.n_experts + 4], banks.fixture(1).slab(kDown, 4));
}

// Keeps what it is asked for.
class Recorder final : public DenseBlas {
 public:
  void multiply(const void* x, const void* w, void* out, int64_t rows, int64_t outputs,
                int64_t columns) const override {
    operands.insert({x, w, out});
    shape = {rows, outputs, columns};
    last_x = static_cast<const uint16_t*>(x);
    last_w = static_cast<const uint16_t*>(w);
  }
  std::string name() const override { return "none"; }

  mutable std::set<std::vector<const void*>> operands;
  mutable std::vector<int64_t> shape;
  mutable const uint16_t* last_x = nullptr;
  mutable const uint16_t* last_w = nullptr;
};

TEST_P(GroupedBench, DenseProductsHaveTheTotalSize) {
  const Recorder blas;
  const DenseProduct gate_up(blas, calls, false);
  EXPECT_EQ(blas.shape, (std::vector<int64_t>{63, 384, 256}));
  const DenseProduct down(blas, calls, true);
  EXPECT_EQ(blas.shape, (std::vector<int64_t>{63, 256, 192}));
  EXPECT_EQ(gate_up.flops() + down.flops(), calls.flops());
  blas.operands.clear();
  for (int64_t call = 0; call < gate_up.count(); ++call)
    gate_up.launch(call);
  EXPECT_EQ(blas.operands.size(), static_cast<size_t>(gate_up.count()));
  // The last set: x is the calls' once for each slot, weights are E2M1 times UE4M3 values.
  session.synchronize();
  for (size_t i = 0; i < calls.x().size(); ++i) {
    const uint16_t expected = f16_bits(bf16_value(calls.x()[i]));
    ASSERT_EQ(blas.last_x[i], expected);
    ASSERT_EQ(blas.last_x[2 * calls.x().size() + i], expected);
  }
  int64_t zeros = 0;
  for (int64_t i = 0; i < 384 * 256; ++i) {
    ASSERT_EQ(blas.last_w[i] & 0x1F, 0) << i;
    zeros += (blas.last_w[i] & 0x7FFF) == 0 ? 1 : 0;
  }
  EXPECT_LT(zeros, 384 * 256 / 4);
}

INSTANTIATE_TEST_SUITE_P(Formats, GroupedBench, testing::Values(MEMRA_NVFP4, MEMRA_NVFP4_V2),
                         [](const auto& info) { return std::string(format_name(info.param)); });

}  // namespace
}  // namespace memra::bench
