#include "parallel/split.h"

#include "memra.h"

namespace memra::bench::parallel {
namespace {

// Whether a rank's experts are among a token's.
bool needs(const Shape& shape, const std::vector<int32_t>& ids, int64_t token,
           const Range& experts) {
  for (int64_t slot = 0; slot < shape.top_k; ++slot) {
    const int64_t expert = ids[static_cast<size_t>(token * shape.top_k + slot)] - experts.begin;
    if (expert >= 0 && expert < experts.count) return true;
  }
  return false;
}

}  // namespace

Range part_of(int64_t total, int parts, int index, int64_t unit) {
  const int64_t units = total / unit;
  const int64_t begin = units * index / parts;
  const int64_t end = units * (index + 1) / parts;
  return {begin * unit, (end - begin) * unit};
}

const char* scheme_name(Scheme scheme) {
  switch (scheme) {
    case Scheme::kTensor:
      return "tensor";
    case Scheme::kExpert:
      return "expert";
    case Scheme::kExpertAllToAll:
      return "expert-a2a";
  }
  return "";
}

Share share_of(Scheme scheme, const Shape& shape, int ranks, int rank) {
  Share share = {{0, shape.n_experts}, {0, shape.intermediate_size}};
  if (scheme == Scheme::kTensor) {
    share.intermediate = part_of(shape.intermediate_size, ranks, rank, MEMRA_COLUMN_MULTIPLE);
  } else {
    share.experts = part_of(shape.n_experts, ranks, rank);
  }
  return share;
}

Range own_tokens(int64_t tokens, int ranks, int rank, int micro_batches, int micro_batch) {
  const Range own = part_of(tokens, ranks, rank);
  const Range part = part_of(own.count, micro_batches, micro_batch);
  return {own.begin + part.begin, part.count};
}

TokenPlan make_token_plan(const Shape& shape, const std::vector<int32_t>& ids, int ranks, int rank,
                          int micro_batches, int micro_batch) {
  const auto experts = [&](int r) {
    return share_of(Scheme::kExpertAllToAll, shape, ranks, r).experts;
  };
  const auto tokens = [&](int r) {
    return own_tokens(shape.tokens, ranks, r, micro_batches, micro_batch);
  };
  TokenPlan plan;
  const Range own = tokens(rank);
  std::vector<std::vector<int32_t>> places(static_cast<size_t>(own.count));
  for (int to = 0; to < ranks; ++to) {
    const size_t before = plan.send_rows.size();
    for (int64_t row = 0; row < own.count; ++row) {
      if (!needs(shape, ids, own.begin + row, experts(to))) continue;
      places[static_cast<size_t>(row)].push_back(static_cast<int32_t>(plan.send_rows.size()));
      plan.send_rows.push_back(static_cast<int32_t>(row));
    }
    plan.send_counts.push_back(static_cast<int64_t>(plan.send_rows.size() - before));
  }
  for (int from = 0; from < ranks; ++from) {
    const size_t before = plan.received.size();
    const Range theirs = tokens(from);
    for (int64_t token = theirs.begin; token < theirs.begin + theirs.count; ++token) {
      if (needs(shape, ids, token, experts(rank))) plan.received.push_back(token);
    }
    plan.receive_counts.push_back(static_cast<int64_t>(plan.received.size() - before));
  }
  plan.sum_offsets.push_back(0);
  for (const std::vector<int32_t>& of_row : places) {
    plan.sum_places.insert(plan.sum_places.end(), of_row.begin(), of_row.end());
    plan.sum_offsets.push_back(static_cast<int32_t>(plan.sum_places.size()));
  }
  return plan;
}

}  // namespace memra::bench::parallel
