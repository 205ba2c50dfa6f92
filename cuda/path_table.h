#pragma once

// From how many tokens on memra_moe takes the grouped path: tables by experts and top_k, one for
// layers in NVFP4_V2 of each size, and one for others. They need no CUDA, so that tests can read
// them anywhere.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "memra.h"

namespace memra::cuda {

// Layers with at most so many experts, of the whole model as in memra_moe_layer_desc, and at most
// this top_k: rows below min_tokens, grouped from there on.
struct PathRow {
  int64_t most_experts = 0;
  int64_t most_top_k = 0;
  int64_t min_tokens = 0;
};

inline constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
// Rows for all that one call of theirs takes.
inline constexpr int64_t kMostMinTokens = MEMRA_ROWS_MAX_TOKENS + 1;

// The first row that fits holds. To edit: bands of experts rise; within a band, which is rows with
// the same most_experts, those of top_k rise up to kAny; the last band is kAny. A value is what
// `moe-grouped-ceiling --valley --both-paths` prints last, the second of the counts between which
// the paths cross, or lies between them by a straight line (docs/performance.md, "Which path", has
// the shapes that were timed). Rows without a name are between those that were.
//
// Small layers gain less by the grouped path, which is several launches.
inline constexpr int64_t kSmallHidden = 2048;
inline constexpr PathRow kPathTableSmallV2[] = {
    {.most_experts = 8, .most_top_k = kAny, .min_tokens = 7},
    {.most_experts = 16, .most_top_k = 1, .min_tokens = 39},
    {.most_experts = 16, .most_top_k = 2, .min_tokens = 15},
    {.most_experts = 16, .most_top_k = kAny, .min_tokens = 10},
    {.most_experts = kAny, .most_top_k = 1, .min_tokens = 35},
    {.most_experts = kAny, .most_top_k = 2, .min_tokens = 29},
    {.most_experts = kAny, .most_top_k = 4, .min_tokens = 16},
    {.most_experts = kAny, .most_top_k = 6, .min_tokens = 11},
    {.most_experts = kAny, .most_top_k = 8, .min_tokens = 10},    // Qwen3-30B-A3B
    {.most_experts = kAny, .most_top_k = kAny, .min_tokens = 8},  // Qwen3-Next
};
inline constexpr PathRow kPathTableV2[] = {
    {.most_experts = 8, .most_top_k = kAny, .min_tokens = 7},  // Mixtral's shape
    {.most_experts = 16, .most_top_k = 1, .min_tokens = 39},
    {.most_experts = 16, .most_top_k = 2, .min_tokens = 15},
    {.most_experts = 16, .most_top_k = kAny, .min_tokens = 10},
    {.most_experts = 32, .most_top_k = 1, .min_tokens = 35},
    {.most_experts = 32, .most_top_k = 2, .min_tokens = 29},
    {.most_experts = 32, .most_top_k = 4, .min_tokens = 8},
    {.most_experts = 32, .most_top_k = kAny, .min_tokens = 6},
    {.most_experts = 64, .most_top_k = 1, .min_tokens = 35},
    {.most_experts = 64, .most_top_k = 2, .min_tokens = 29},
    {.most_experts = 64, .most_top_k = 4, .min_tokens = 11},
    {.most_experts = 64, .most_top_k = kAny, .min_tokens = 6},
    {.most_experts = kAny, .most_top_k = 1, .min_tokens = 35},
    {.most_experts = kAny, .most_top_k = 2, .min_tokens = 29},
    {.most_experts = kAny, .most_top_k = 4, .min_tokens = 11},  // gpt-oss
    {.most_experts = kAny, .most_top_k = 6, .min_tokens = 8},
    {.most_experts = kAny, .most_top_k = kAny, .min_tokens = 5},  // the other models
};
// Layers with a bank of NVFP4_V1.
inline constexpr PathRow kPathTableV1[] = {
    {.most_experts = 8, .most_top_k = kAny, .min_tokens = 6},
    {.most_experts = 16, .most_top_k = 1, .min_tokens = 13},
    {.most_experts = 16, .most_top_k = kAny, .min_tokens = 10},
    {.most_experts = 64, .most_top_k = 2, .min_tokens = 23},
    {.most_experts = 64, .most_top_k = 4, .min_tokens = 21},
    {.most_experts = 64, .most_top_k = 6, .min_tokens = 12},
    {.most_experts = 64, .most_top_k = kAny, .min_tokens = 6},
    {.most_experts = 192, .most_top_k = 1, .min_tokens = 38},
    {.most_experts = 192, .most_top_k = 4, .min_tokens = 55},
    {.most_experts = 192, .most_top_k = kAny, .min_tokens = 9},  // Qwen3, GLM-4.5
    {.most_experts = kAny, .most_top_k = 1, .min_tokens = 38},
    {.most_experts = kAny, .most_top_k = 4, .min_tokens = 55},
    {.most_experts = kAny, .most_top_k = kAny, .min_tokens = 10},  // Step-3.5-Flash, DeepSeek-V3
};

// Every layer has a row, every row has layers, and every value is a number of tokens.
constexpr bool is_path_table(std::span<const PathRow> table) {
  PathRow last;  // ends a band that holds nothing
  last.most_top_k = kAny;
  for (const PathRow& row : table) {
    const bool new_band = last.most_top_k == kAny;
    if (new_band ? row.most_experts <= last.most_experts : row.most_experts != last.most_experts)
      return false;
    if (row.most_top_k <= (new_band ? 0 : last.most_top_k)) return false;
    if (row.min_tokens < 1 || row.min_tokens > kMostMinTokens) return false;
    last = row;
  }
  return last.most_experts == kAny && last.most_top_k == kAny;
}
static_assert(is_path_table(kPathTableSmallV2) && is_path_table(kPathTableV2) &&
              is_path_table(kPathTableV1));

// The row of a layer.
constexpr const PathRow& path_rule(std::span<const PathRow> table, int64_t n_experts,
                                   int64_t top_k) {
  std::size_t i = 0;
  while (n_experts > table[i].most_experts || top_k > table[i].most_top_k)
    ++i;
  return table[i];
}
constexpr std::span<const PathRow> path_table(bool all_v2, int64_t hidden_size) {
  if (!all_v2) return kPathTableV1;
  if (hidden_size <= kSmallHidden) return kPathTableSmallV2;
  return kPathTableV2;
}

}  // namespace memra::cuda
