// Which experts the tokens of a call go to, and how calls rotate over a bank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shape.h"
#include "weights.h"

namespace memra::bench {

// top_k distinct experts for each token, at random: [tokens * top_k].
std::vector<int32_t> draw_experts(const Shape& shape, Lcg* lcg);

// The expert of pair p in the routing that prefill is measured with: floor(u^skew * n_experts), u
// in [0, 1) a hash of p. A skew of 1 is uniform, above 1 low experts get more. A token may have an
// expert twice.
int32_t hashed_expert(uint64_t pair, int64_t n_experts, double skew);
// Of the shape's pairs, from a pair on.
std::vector<int32_t> hashed_experts(const Shape& shape, double skew, int64_t first_pair = 0);

// The distinct ones among `ids`, in order of first appearance.
std::vector<int32_t> distinct(const std::vector<int32_t>& ids);

// A permutation of pairs that puts those of one expert side by side.
std::vector<int32_t> expert_order(const std::vector<int32_t>& ids);

// What a stream launch is given that reads `n_experts` slabs a plane, each once, on behalf of a
// call of this shape: a stage with that many pairs, or a few more, which are NULL. (A call's own
// table, with NULL for repeats, would cost the launch a look at every repeat.) The call's buffers
// are large enough for it.
Shape roof_shape(const Shape& shape, int64_t n_experts);

// Calls that follow one another, each with the experts that rested longest, in a pattern of repeats
// drawn for it alone.
struct Routing {
  std::vector<std::vector<int32_t>> ids;     // of a call: [tokens * top_k]
  std::vector<std::vector<int32_t>> unique;  // of a call: its distinct experts

  int64_t n_calls() const { return static_cast<int64_t>(ids.size()); }
  double mean_unique() const;
  // Weight bytes that are read between two reads of one slab, at the least, when the calls are
  // repeated in turn: whole calls, and the other stage of one.
  double repeat_bytes(const Shape& shape) const;
};

// As few calls (at least 4) as give repeat_bytes of `min_bytes`; where no number does, the one that
// comes closest.
Routing draw_routing(const Shape& shape, double min_bytes);

}  // namespace memra::bench
