#pragma once

// From how many tokens on memra_moe takes the grouped path: a table by experts and top_k. It needs
// no CUDA, so that tests can read it anywhere.

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
// `moe-grouped-ceiling --valley --both-paths` prints last: the second of the counts between which
// the paths cross. Both paths have been timed with 288 experts and top_k 8 alone
// (docs/performance.md, "Which path"); the other rows have that value until they are timed, too.
inline constexpr PathRow kPathTable[] = {
    {.most_experts = 64, .most_top_k = 4, .min_tokens = 8},
    {.most_experts = 64, .most_top_k = kAny, .min_tokens = 8},
    {.most_experts = 128, .most_top_k = 4, .min_tokens = 8},     // gpt-oss-120b
    {.most_experts = 128, .most_top_k = kAny, .min_tokens = 8},  // Qwen3-30B-A3B, GLM-4.5-Air
    {.most_experts = 256, .most_top_k = 4, .min_tokens = 8},
    {.most_experts = 256, .most_top_k = kAny, .min_tokens = 8},  // GLM-4.5, DeepSeek-V3
    {.most_experts = kAny, .most_top_k = 4, .min_tokens = 8},
    {.most_experts = kAny, .most_top_k = kAny, .min_tokens = 8},  // Step-3.5-Flash, Kimi-K2
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
static_assert(is_path_table(kPathTable));

// The row of a layer, of such a table.
constexpr const PathRow& path_rule(int64_t n_experts, int64_t top_k,
                                   std::span<const PathRow> table = kPathTable) {
  std::size_t i = 0;
  while (n_experts > table[i].most_experts || top_k > table[i].most_top_k)
    ++i;
  return table[i];
}

}  // namespace memra::cuda
