// What moe-rows-sweep would measure, and what it says of AUTO.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sweep_report.h"
#include "variants.h"

namespace memra::bench {
namespace {

using Tokens = std::vector<int64_t>;

TEST(SweepCases, TheUsualLayer) {
  const std::vector<SweepCase> gpu = sweep_cases({}, false);
  ASSERT_EQ(gpu.size(), 1U);
  EXPECT_EQ(gpu[0].name, "4096->2048");
  EXPECT_EQ(gpu[0].tokens, (Tokens{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(gpu[0].shape, (Shape{4096, 2048, 64, 8, 64}));
  EXPECT_FALSE(gpu[0].stages);
  const std::vector<SweepCase> cpu = sweep_cases({}, true);
  EXPECT_EQ(cpu[0].tokens, (Tokens{1, 4}));
  EXPECT_EQ(cpu[0].shape.n_experts, 16);
}

TEST(SweepCases, ModelsKeepTheirDimensionsUnlessTheyAreGiven) {
  SweepOptions options;
  options.models = true;
  EXPECT_EQ(sweep_cases(options, false).size(), model_shapes().size());
  options = {};
  options.model = find_model("Kimi-K2");
  SweepCase kimi = sweep_cases(options, false).at(0);
  EXPECT_EQ(kimi.name, "Kimi-K2");
  EXPECT_EQ(kimi.shape, (Shape{7168, 2048, 384, 8, 4}));
  EXPECT_EQ(kimi.activation.kind, MEMRA_SWIGLU);
  options.tokens = {9, 2};
  options.shape.n_experts = 100;
  options.experts_given = true;
  kimi = sweep_cases(options, true).at(0);
  EXPECT_EQ(kimi.tokens, (Tokens{9, 2}));
  EXPECT_EQ(kimi.shape, (Shape{7168, 2048, 100, 8, 9}));
}

TEST(SweepCases, WidthsHaveStages) {
  SweepOptions options;
  options.widths = true;
  for (const SweepCase& width : sweep_cases(options, false)) {
    EXPECT_TRUE(width.stages);
    EXPECT_EQ(width.tokens, Tokens{1});
  }
}

SweepRow row_with(int64_t tokens, double auto_us) {
  SweepRow row;
  row.name = "case";
  row.shape.tokens = tokens;
  row.variants.emplace();
  row.variants->fastest = MEMRA_ROWS_ORD | MEMRA_ROWS_LANE_MAJOR;
  row.variants->fastest_us = {100, 100, 100};
  row.variants->auto_us = {auto_us, auto_us, auto_us};
  return row;
}

TEST(SweepVerdict, NamesWhereAutoIsSlow) {
  EXPECT_EQ(variants_verdict({row_with(1, 90), row_with(2, 101.5)}),
            "AUTO is the fastest within 2 % at every token count; at worst it is 1.5 % slower");
  EXPECT_EQ(variants_verdict({row_with(1, 90), row_with(4, 112.5), row_with(8, 100)}),
            "AUTO is slower than the fastest variant by more than 2 %: case at 4 tokens "
            "(ord+lane_major, 12.5 %)");
}

TEST(VariantName, ListsBits) {
  EXPECT_EQ(variant_name(MEMRA_ROWS_AUTO), "auto");
  EXPECT_EQ(variant_name(MEMRA_ROWS_PLAIN), "plain");
  EXPECT_EQ(variant_name(MEMRA_ROWS_PACK | MEMRA_ROWS_ILP), "ilp+pack");
  EXPECT_EQ(variant_name(MEMRA_ROWS_PACK | 1U << 20), "pack+1048576");
}

}  // namespace
}  // namespace memra::bench
