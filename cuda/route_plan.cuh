#pragma once

// How many pairs, bins and passes the kernels of route.cu have for a call, and what they need of
// the workspace.

#include <algorithm>
#include <cstdint>

#include "numerics/platform.h"

namespace memra::cuda {

inline constexpr int kRouteThreads = 512;
inline constexpr int kRouteWarps = kRouteThreads / 32;
inline constexpr int kMaxRouteBlocks = 128;  // every one of them reads the counts of all
// Pairs of a thread: where there is one block, at most, and where there are many.
inline constexpr int kFewItems = 1;
inline constexpr int kOneBlockItems = 8;
inline constexpr int kTileItems = 4;
inline constexpr int64_t kFewPairs = kRouteThreads * kFewItems;
inline constexpr int64_t kOneBlockPairs = kRouteThreads * kOneBlockItems;
inline constexpr int64_t kTilePairs = kRouteThreads * kTileItems;

// Bins are experts and, last, skipped pairs; where there are more, the values of a digit.
inline constexpr int kDigitBits = 10;
inline constexpr int kDigitBins = 1 << kDigitBits;
inline constexpr int kMaxBins = kDigitBins + 1;

struct RoutePlan {
  int64_t n_pairs;
  bool by_digits;
  int n_digits;   // 1 where not by digits
  int n_bins;     // of a pass
  int64_t chunk;  // pairs of a block, a multiple of kTilePairs
  int64_t blocks;

  static constexpr RoutePlan of(int64_t n_pairs, int64_t n_local_experts) {
    RoutePlan plan{n_pairs, n_local_experts >= kMaxBins, 1, 0, 0, 0};
    if (plan.by_digits) {
      while (n_local_experts >> (plan.n_digits * kDigitBits) != 0)
        ++plan.n_digits;
    }
    plan.n_bins = plan.by_digits ? kDigitBins : static_cast<int>(n_local_experts + 1);
    const int64_t tiles = (n_pairs + kTilePairs - 1) / kTilePairs;
    plan.chunk = (tiles + kMaxRouteBlocks - 1) / kMaxRouteBlocks * kTilePairs;
    plan.blocks = plan.chunk == 0 ? 0 : (n_pairs + plan.chunk - 1) / plan.chunk;
    return plan;
  }
  constexpr bool one_block() const { return !by_digits && n_pairs <= kOneBlockPairs; }

  // uint32 [blocks][n_bins], and, by digits, int32 [n_pairs] behind it. Both as many as calls with
  // fewer pairs or experts may have, so that the workspace rises with either.
  constexpr uint64_t counts_bytes() const {
    const int64_t tiles = (n_pairs + kTilePairs - 1) / kTilePairs;
    const int64_t most_blocks = std::clamp<int64_t>(tiles, 1, kMaxRouteBlocks);
    const int64_t most_bins = by_digits ? kMaxBins : n_bins;
    return static_cast<uint64_t>(most_blocks * most_bins) * sizeof(uint32_t);
  }
  constexpr uint64_t workspace_bytes() const {
    return counts_bytes() + (by_digits ? static_cast<uint64_t>(n_pairs) * sizeof(int32_t) : 0);
  }
};

}  // namespace memra::cuda
