// Who holds and does what: parts of a dimension, and the tokens that go to other ranks' experts.
#pragma once

#include <cstdint>
#include <vector>

#include "shape.h"

namespace memra::bench::parallel {

struct Range {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const Range&) const = default;
};

// Part `index` of `parts` of [0, total), cut at multiples of `unit`; parts differ by one unit.
Range part_of(int64_t total, int parts, int index, int64_t unit = 1);

// How a layer is split among ranks.
enum class Scheme {
  kTensor,          // intermediate_size is split; sums by an all-reduce
  kExpert,          // experts are split, all tokens everywhere; sums by an all-reduce
  kExpertAllToAll,  // experts are split, and tokens; rows of x travel to the experts, sums back
};
inline constexpr Scheme kSchemes[] = {Scheme::kTensor, Scheme::kExpert, Scheme::kExpertAllToAll};

// "tensor", "expert" or "expert-a2a".
const char* scheme_name(Scheme scheme);

// What of the layer's experts and intermediate size a rank holds.
struct Share {
  Range experts;
  Range intermediate;
};
Share share_of(Scheme scheme, const Shape& shape, int ranks, int rank);

// Rows of x that one rank sends to the ranks that hold experts of them, and the sums that come
// back, for one micro-batch. Made on the host from ids that every rank knows; a server would
// exchange counts first.
struct TokenPlan {
  std::vector<int32_t> send_rows;       // of the rank's own, by destination
  std::vector<int64_t> send_counts;     // per destination
  std::vector<int64_t> receive_counts;  // per source
  std::vector<int64_t> received;        // tokens in order of arrival, numbered over all ranks
  // Own row i is the sum of what comes back for places sum_places[sum_offsets[i] ...] of
  // send_rows, in the order of ranks.
  std::vector<int32_t> sum_offsets, sum_places;

  int64_t n_own() const { return static_cast<int64_t>(sum_offsets.size()) - 1; }
  int64_t n_received() const { return static_cast<int64_t>(received.size()); }
};

// Tokens of a rank's micro-batch.
Range own_tokens(int64_t tokens, int ranks, int rank, int micro_batches, int micro_batch);

TokenPlan make_token_plan(const Shape& shape, const std::vector<int32_t>& ids, int ranks, int rank,
                          int micro_batches, int micro_batch);

}  // namespace memra::bench::parallel
