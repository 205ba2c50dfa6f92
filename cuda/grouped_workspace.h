#pragma once

// Where a call of the grouped path keeps what is between its launches.

#include <algorithm>
#include <cstdint>

#include "backend.h"
#include "grouped_tiles.cuh"
#include "route_plan.cuh"

namespace memra::cuda {

// Byte offsets. Three share the largest place, one after the other: what routing alone needs, the
// tokens' activations, and the outputs of pairs.
struct GroupedWorkspace {
  static constexpr uint64_t kAlignment = 128;  // of rows of activations

  uint64_t n_active = 0, active = 0, offsets = 0, inverse = 0, tiles = 0;
  uint64_t order = 0, route = 0;  // until the tokens' activations are there
  uint64_t z = 0;                 // f16 [n_pairs, hidden], until gate and up are done
  uint64_t packed = 0;            // u32 [n_pairs, hidden / 2]
  uint64_t zs = 0;                // f32 [n_pairs], of z
  uint64_t act = 0;               // f16 [n_pairs, intermediate]
  uint64_t exponents = 0;         // int8 [intermediate / 16, n_pairs]
  uint64_t bytes = 0;

  GroupedWorkspace(const GroupedShape& shape, int64_t tokens) {
    const int64_t pairs = tokens * shape.top_k, experts = shape.n_local_experts;
    const auto n = static_cast<uint64_t>(pairs);
    const auto e = static_cast<uint64_t>(experts);
    const auto hidden = static_cast<uint64_t>(shape.hidden_size);
    const auto intermediate = static_cast<uint64_t>(shape.intermediate_size);
    n_active = take(4);
    active = take(4 * e);
    offsets = take(4 * (e + 1));
    inverse = take(4 * n);
    tiles = take(tile_plans_bytes(pairs, experts));
    zs = take(4 * n);
    exponents = take(n * (intermediate / 16));
    act = take(2 * n * intermediate);
    order = z = packed = bytes;
    route = order + round_up(4 * n);
    const uint64_t routing = RoutePlan::of(pairs, experts).workspace_bytes();
    take(std::max(2 * n * hidden, route - order + routing));
  }

 private:
  static uint64_t round_up(uint64_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  uint64_t take(uint64_t size) {
    const uint64_t begin = bytes;
    bytes += round_up(size);
    return begin;
  }
};

}  // namespace memra::cuda
