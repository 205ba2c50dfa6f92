#pragma once

// Loops of the grouped path that every set of kernels compiles for itself; see rows_common.h.

#include <cstdint>

#include "cpu/grouped_kernels.h"
#include "numerics/dot.h"
#include "numerics/f16_rows.h"
#include "numerics/half.h"
#include "numerics/topk.h"

namespace memra::cpu {

template <class Type>
MEMRA_HD std::int8_t narrow_as(const NarrowRun& run) {
  std::uint32_t amax_bits = 0;
  for (std::int64_t i = 0; i < run.count; ++i) {
    const std::uint32_t bits = numerics::magnitude_bits(numerics::load_as_f32<Type>(run.x, i));
    amax_bits = bits > amax_bits ? bits : amax_bits;
  }
  if (amax_bits >= numerics::kInfBits) {
    for (std::int64_t i = 0; i < run.count; ++i)
      run.z[i] = 0;
    return kNotFinite;
  }
  const std::int32_t k = numerics::f16_exponent(amax_bits);
  for (std::int64_t i = 0; i < run.count; ++i)
    run.z[i] = numerics::f16_scaled(numerics::load_as_f32<Type>(run.x, i), k);
  return static_cast<std::int8_t>(k);
}

MEMRA_HD std::int8_t narrow_loop(const NarrowRun& run) {
  switch (run.x_dtype) {
    case MEMRA_F32:
      return narrow_as<numerics::F32>(run);
    case MEMRA_F16:
      return narrow_as<numerics::F16>(run);
    default:
      return narrow_as<numerics::Bf16>(run);
  }
}

MEMRA_HD void widen_loop(const std::uint16_t* z, float factor, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = numerics::mul(numerics::f16_to_f32(z[i]), factor);
}

// ---- Top-k ----

template <class Type>
MEMRA_HD void load_logits(const TopkRow& row, float* logits) {
  const std::int64_t begin = row.token * row.args->logits_stride;
  for (std::int64_t e = 0; e < row.args->n_experts; ++e)
    logits[e] = numerics::router_logit(numerics::load_as_f32<Type>(row.args->logits, begin + e));
}

MEMRA_HD void softmax(float* values, std::int64_t count) {
  float largest = numerics::kLowest;
  for (std::int64_t e = 0; e < count; ++e)
    largest = values[e] > largest ? values[e] : largest;
  for (std::int64_t e = 0; e < count; ++e)
    values[e] = numerics::softmax_term(values[e], largest);
  float lanes[numerics::kVirtualLanes] = {};
  for (std::int64_t e = 0; e < count; ++e) {
    float& lane = lanes[e % numerics::kVirtualLanes];
    lane = numerics::add(lane, values[e]);
  }
  const float sum = numerics::lane_tree(lanes);
  for (std::int64_t e = 0; e < count; ++e)
    values[e] = numerics::softmax_score(values[e], sum);
}

// The `count` largest ranks in falling order; those of 0 never get in before others.
MEMRA_HD void insert_rank(std::uint64_t rank, std::uint64_t* best, std::int64_t count) {
  if (rank <= best[count - 1]) return;
  std::int64_t i = count - 1;
  for (; i > 0 && best[i - 1] < rank; --i)
    best[i] = best[i - 1];
  best[i] = rank;
}

// Sets the ranks of experts outside the best groups to 0.
MEMRA_HD void mask_groups(const memra_moe_topk_args& args, const float* keys,
                          std::uint64_t* ranks) {
  const std::int64_t size = args.n_experts / args.n_groups;
  std::uint64_t best[MEMRA_TOPK_MAX_GROUPS] = {};
  for (std::int64_t g = 0; g < args.n_groups; ++g) {
    float first = numerics::kLowest, second = numerics::kLowest;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float key = keys[e];
      second = key > first ? first : (key > second ? key : second);
      first = key > first ? key : first;
    }
    const float score = args.group_score == MEMRA_GROUP_SCORE_TOP2_SUM
                            ? numerics::selection_key(first, second)
                            : first;
    insert_rank(numerics::selection_rank(score, static_cast<std::uint32_t>(g)), best,
                args.top_k_groups);
  }
  bool stays[MEMRA_TOPK_MAX_GROUPS] = {};
  for (std::int64_t i = 0; i < args.top_k_groups; ++i)
    stays[numerics::rank_index(best[i])] = true;
  for (std::int64_t e = 0; e < args.n_experts; ++e)
    ranks[e] = stays[e / size] ? ranks[e] : 0;
}

MEMRA_HD void topk_loop(const TopkRow& row) {
  const memra_moe_topk_args& args = *row.args;
  float scores[MEMRA_TOPK_MAX_EXPERTS];
  if (args.logits_dtype == MEMRA_F32) {
    load_logits<numerics::F32>(row, scores);
  } else if (args.logits_dtype == MEMRA_F16) {
    load_logits<numerics::F16>(row, scores);
  } else {
    load_logits<numerics::Bf16>(row, scores);
  }
  if (args.scoring == MEMRA_SCORING_SOFTMAX) {
    softmax(scores, args.n_experts);
  } else {
    for (std::int64_t e = 0; e < args.n_experts; ++e)
      scores[e] = numerics::sigmoid_score(scores[e]);
  }
  float keys[MEMRA_TOPK_MAX_EXPERTS];
  std::uint64_t ranks[MEMRA_TOPK_MAX_EXPERTS];
  for (std::int64_t e = 0; e < args.n_experts; ++e) {
    keys[e] = args.bias != nullptr ? numerics::selection_key(scores[e], args.bias[e]) : scores[e];
    ranks[e] = numerics::selection_rank(keys[e], static_cast<std::uint32_t>(e));
  }
  if (args.n_groups != 0) mask_groups(args, keys, ranks);

  std::uint64_t best[MEMRA_MAX_TOP_K] = {};
  for (std::int64_t e = 0; e < args.n_experts; ++e)
    insert_rank(ranks[e], best, args.top_k);
  std::int32_t* const ids = args.topk_ids + row.token * args.top_k;
  float* const weights = args.topk_weights + row.token * args.top_k;
  float sum = 0.0f;
  for (std::int64_t slot = 0; slot < args.top_k; ++slot) {
    const std::uint32_t id = numerics::rank_index(best[slot]);
    ids[slot] = static_cast<std::int32_t>(id);
    weights[slot] = scores[id];
    sum = numerics::add(sum, scores[id]);
  }
  for (std::int64_t slot = 0; slot < args.top_k; ++slot) {
    weights[slot] =
        numerics::slot_weight(weights[slot], args.renormalize != 0, sum, args.scaling_factor);
  }
}

}  // namespace memra::cpu
