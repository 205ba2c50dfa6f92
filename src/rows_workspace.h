#pragma once

// The workspace of memra_moe_rows: where each intermediate of a call lies.

#include <cstdint>

#include "memra.h"

namespace memra {

struct RowsWorkspace {
  // Byte offsets from the workspace's begin, each a multiple of MEMRA_WORKSPACE_ALIGNMENT.
  uint64_t q = 0;       // int8 [tokens, hidden_size]
  uint64_t d = 0;       // f32  [tokens, hidden_size / 32]
  uint64_t ptrs = 0;    // void* [3 * n_pairs]
  uint64_t scales = 0;  // f32  [3 * n_pairs]
  uint64_t bias = 0;    // f32* [3 * n_pairs]
  uint64_t order = 0;   // int32 [n_pairs]
  uint64_t act = 0;     // f32  [n_pairs, intermediate_size]
  uint64_t dots = 0;    // f32  [n_pairs, hidden_size], in the place of act: no call needs both
  uint64_t act_q = 0;   // int8 [n_pairs, intermediate_size]
  uint64_t act_d = 0;   // f32  [n_pairs, intermediate_size / 32]
  uint64_t bytes = 0;

  constexpr RowsWorkspace(int64_t tokens, int64_t top_k, int64_t hidden_size,
                          int64_t intermediate_size) {
    const auto t = static_cast<uint64_t>(tokens);
    const auto n = t * static_cast<uint64_t>(top_k);
    const auto h = static_cast<uint64_t>(hidden_size);
    const auto m = static_cast<uint64_t>(intermediate_size);
    q = take(t * h);
    d = take(t * (h / 32) * 4);
    ptrs = take(3 * n * 8);
    scales = take(3 * n * 4);
    bias = take(3 * n * 8);
    order = take(n * 4);
    act = dots = take(n * (m > h ? m : h) * 4);
    act_q = take(n * m);
    act_d = take(n * (m / 32) * 4);
  }

 private:
  constexpr uint64_t take(uint64_t size) {
    const uint64_t begin = bytes;
    constexpr uint64_t kMask = MEMRA_WORKSPACE_ALIGNMENT - 1;
    bytes = (bytes + size + kMask) & ~kMask;
    return begin;
  }
};

}  // namespace memra
