// The rule of memra_moe: the CUDA backend's table row by row, and what memra_moe_layer_info says of
// layers at the borders of its rows.
#include "path_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/grouped.h"

namespace memra::test {
namespace {

using cuda::is_path_table;
using cuda::kAny;
using cuda::path_rule;
using cuda::path_table;
using cuda::PathRow;

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// The legal layers that are a row's, by its edges and those of the rows before it.
struct Area {
  std::int64_t first_experts, last_experts;
  std::int64_t first_top_k, last_top_k;
};

// What chooses a table.
struct Kind {
  bool all_v2;
  std::int64_t hidden_size;
};
constexpr Kind kKinds[] = {{true, 64},
                           {true, cuda::kSmallHidden},
                           {true, cuda::kSmallHidden + 64},
                           {false, 64},
                           {false, cuda::kSmallHidden + 64}};

std::vector<Area> areas(std::span<const PathRow> table) {
  std::vector<Area> result;
  std::int64_t experts = 0, top_k = 0;  // of the band before, of the row before in this band
  for (const PathRow& row : table) {
    result.push_back({experts + 1, std::min<std::int64_t>(row.most_experts, MEMRA_MAX_DIMENSION),
                      top_k + 1, std::min<std::int64_t>(row.most_top_k, MEMRA_MAX_TOP_K)});
    top_k = row.most_top_k == kAny ? 0 : row.most_top_k;
    if (top_k == 0) experts = row.most_experts;
  }
  return result;
}

void expect_edges(std::span<const PathRow> table) {
  const std::vector<Area> all = areas(table);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Area& area = all[i];
    ASSERT_LE(area.first_experts, area.last_experts) << "row " << i << " has no legal layers";
    ASSERT_LE(area.first_top_k, area.last_top_k) << "row " << i << " has no legal layers";
    for (const std::int64_t experts :
         {area.first_experts - 1, area.first_experts, area.last_experts, area.last_experts + 1}) {
      if (experts < 1 || experts > MEMRA_MAX_DIMENSION) continue;
      for (const std::int64_t top_k :
           {area.first_top_k - 1, area.first_top_k, area.last_top_k, area.last_top_k + 1}) {
        if (top_k < 1 || top_k > MEMRA_MAX_TOP_K) continue;
        const bool within = experts >= area.first_experts && experts <= area.last_experts &&
                            top_k >= area.first_top_k && top_k <= area.last_top_k;
        EXPECT_EQ(&path_rule(table, experts, top_k) == &table[i], within)
            << "row " << i << ": " << experts << " experts, top_k " << top_k;
      }
    }
  }
}

TEST(PathTable, EveryRowHasTheLayersWithinItsEdgesAlone) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.all_v2 ? "V2" : "V1");
    SCOPED_TRACE(kind.hidden_size);
    expect_edges(path_table(kind.all_v2, kind.hidden_size));
  }
}

TEST(PathTable, SmallLayersHaveTheirOwn) {
  const auto first = [](bool all_v2, std::int64_t hidden) {
    return path_table(all_v2, hidden).data();
  };
  EXPECT_EQ(first(true, 64), first(true, cuda::kSmallHidden));
  EXPECT_NE(first(true, 64), first(true, cuda::kSmallHidden + 64));
  EXPECT_EQ(first(false, 64), first(false, cuda::kSmallHidden + 64));
  EXPECT_NE(first(false, 64), first(true, 64));
}

TEST(PathTable, TheFirstRowThatFitsHolds) {
  constexpr PathRow kTable[] = {{4, 2, 3}, {4, kAny, 1}, {6, kAny, 9}, {kAny, kAny, 1025}};
  static_assert(is_path_table(kTable));
  EXPECT_EQ(path_rule(kTable, 1, 1).min_tokens, 3);
  EXPECT_EQ(path_rule(kTable, 4, 2).min_tokens, 3);
  EXPECT_EQ(path_rule(kTable, 4, 3).min_tokens, 1);
  EXPECT_EQ(path_rule(kTable, 5, 1).min_tokens, 9);
  EXPECT_EQ(path_rule(kTable, 6, 64).min_tokens, 9);
  EXPECT_EQ(path_rule(kTable, 7, 1).min_tokens, 1025);
  EXPECT_EQ(path_rule(kTable, kAny, kAny).min_tokens, 1025);
}

TEST(PathTable, WhatIsNone) {
  const std::vector<PathRow> none[] = {
      {},
      {{4, kAny, 8}},                                 // no row beyond 4 experts
      {{kAny, 2, 8}},                                 // none beyond a top_k of 2
      {{4, 2, 8}, {kAny, kAny, 8}},                   // the band of 4 ends before it should
      {{4, kAny, 8}, {4, kAny, 8}, {kAny, kAny, 8}},  // the second has no layers
      {{4, kAny, 8}, {3, kAny, 8}, {kAny, kAny, 8}},  // nor here
      {{4, 2, 8}, {4, 2, 8}, {4, kAny, 8}, {kAny, kAny, 8}},
      {{kAny, kAny, 8}, {kAny, kAny, 8}},
      {{0, kAny, 8}, {kAny, kAny, 8}},
      {{kAny, 0, 8}, {kAny, kAny, 8}},
      {{kAny, kAny, 0}},
      {{kAny, kAny, MEMRA_ROWS_MAX_TOKENS + 2}},
  };
  for (const std::vector<PathRow>& table : none)
    EXPECT_FALSE(is_path_table(table)) << &table - none;
  for (const std::int64_t tokens : {1, MEMRA_ROWS_MAX_TOKENS + 1}) {
    const PathRow one = {kAny, kAny, tokens};
    EXPECT_TRUE(is_path_table({&one, 1})) << tokens;
  }
}

class PathRule : public GroupedTest {
 protected:
  static constexpr int kNone = -1;

  std::int64_t rule_of(const Kind& kind, std::int64_t n_experts, std::int64_t top_k) {
    if (!engine().is_cuda()) return kMaxInt64;
    return path_rule(path_table(kind.all_v2, kind.hidden_size), n_experts, top_k).min_tokens;
  }
  // v1_plane: gate, up or down, or kNone.
  std::int64_t grouped_min_tokens(int v1_plane, std::int64_t hidden_size, std::int64_t n_experts,
                                  std::int64_t top_k, std::int64_t max_tokens) {
    memra_bank banks[] = {MEMRA_BANK_INIT, MEMRA_BANK_INIT, MEMRA_BANK_INIT};
    for (int plane = 0; plane < 3; ++plane)
      banks[plane].format = plane == v1_plane ? MEMRA_NVFP4 : MEMRA_NVFP4_V2;
    memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
    desc.hidden_size = hidden_size;
    desc.intermediate_size = 64;
    desc.n_experts = n_experts;
    desc.n_local_experts = 1;  // the rule is the same on every rank
    desc.top_k = top_k;
    desc.max_tokens = max_tokens;
    desc.gate = &banks[0];
    desc.up = &banks[1];
    desc.down = &banks[2];
    memra_moe_layer* layer = nullptr;
    require(memra_moe_layer_create(engine().get(), &desc, &layer));
    memra_moe_layer_properties info;
    require(memra_moe_layer_properties_init(&info, sizeof info));
    const memra_status status = memra_moe_layer_info(layer, &info);
    memra_moe_layer_destroy(layer);
    require(status);
    return info.grouped_min_tokens;
  }
};

TEST_P(PathRule, IsWhatInfoSaysOfALayer) {
  constexpr std::int64_t kTokens = 1 << 20;
  for (const int v1_plane : {kNone, 0, 1, 2}) {
    for (const Kind& kind : kKinds) {
      if (kind.all_v2 != (v1_plane == kNone)) continue;
      for (const Area& area : areas(path_table(kind.all_v2, kind.hidden_size))) {
        for (const std::int64_t experts : {area.first_experts, area.last_experts}) {
          for (const std::int64_t top_k : {area.first_top_k, area.last_top_k}) {
            const std::int64_t rule = rule_of(kind, experts, top_k);
            for (const std::int64_t max_tokens : {std::int64_t{1}, rule - 1, rule, kTokens}) {
              if (max_tokens < 1 || max_tokens > kTokens) continue;
              EXPECT_EQ(grouped_min_tokens(v1_plane, kind.hidden_size, experts, top_k, max_tokens),
                        std::min(rule, max_tokens + 1))
                  << experts << " experts, top_k " << top_k << ", max_tokens " << max_tokens
                  << ", hidden_size " << kind.hidden_size << ", plane in V1: " << v1_plane;
            }
          }
        }
      }
    }
  }
}

// Where max_tokens + 1 is no number.
TEST_P(PathRule, TakesTheLargestMaxTokens) {
  const std::int64_t rule = rule_of({true, 64}, 4, 2);
  EXPECT_EQ(grouped_min_tokens(kNone, 64, 4, 2, kMaxInt64), rule);
  EXPECT_EQ(grouped_min_tokens(kNone, 64, 4, 2, kMaxInt64 - 1), rule);
}

MEMRA_ON_BOTH_BACKENDS(PathRule);

}  // namespace
}  // namespace memra::test
