#include "reference/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/arithmetic.h"

namespace memra::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

std::vector<float> finite_logits(std::span<const float> row) {
  std::vector<float> result(row.begin(), row.end());
  for (float& x : result) {
    if (std::isnan(x)) x = -kInf;
    if (x == kInf) x = std::numeric_limits<float>::max();
  }
  return result;
}

std::vector<float> softmax(const std::vector<float>& logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<float> scores(logits.size(), 0.0f);
  if (largest == -kInf) return scores;
  for (std::size_t e = 0; e < logits.size(); ++e)
    scores[e] = exp_f32(logits[e] - largest);
  // Expert e is added to lane e mod 32, then halves are added to halves.
  std::vector<float> lanes(32, 0.0f);
  for (std::size_t e = 0; e < logits.size(); ++e)
    lanes[e % 32] = add(lanes[e % 32], scores[e]);
  while (lanes.size() > 1) {
    const std::size_t half = lanes.size() / 2;
    for (std::size_t l = 0; l < half; ++l)
      lanes[l] = add(lanes[l], lanes[half + l]);
    lanes.resize(half);
  }
  for (float& score : scores)
    score = lanes[0] > 0 ? div(score, lanes[0]) : 0.0f;
  return scores;
}

float key_of(float a, float b) {
  const float sum = add(a, b);
  return std::isnan(sum) ? -kInf : sum;
}

// Indices of keys, best first, equal ones in rising order.
std::vector<std::int32_t> by_key(const std::vector<float>& keys) {
  std::vector<std::int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return keys[at(a)] > keys[at(b)]; });
  return order;
}

std::vector<bool> best_groups(const Router& router, const std::vector<float>& keys) {
  const std::int64_t size = router.n_experts / router.n_groups;
  std::vector<float> group_keys;
  for (std::int64_t g = 0; g < router.n_groups; ++g) {
    std::vector<float> group(keys.begin() + g * size, keys.begin() + (g + 1) * size);
    std::sort(group.begin(), group.end(), std::greater<>());
    group_keys.push_back(router.top2_sum ? key_of(group[0], group[1]) : group[0]);
  }
  std::vector<bool> stays(at(router.n_groups), false);
  const std::vector<std::int32_t> order = by_key(group_keys);
  for (std::int64_t i = 0; i < router.top_k_groups; ++i)
    stays[at(order[at(i)])] = true;
  return stays;
}

}  // namespace

Chosen choose_experts(const Router& router, std::span<const float> logits) {
  Chosen chosen;
  const std::size_t n = at(router.n_experts);
  for (std::size_t begin = 0; begin < logits.size(); begin += n) {
    std::vector<float> scores = finite_logits(logits.subspan(begin, n));
    if (router.sigmoid) {
      for (float& x : scores)
        x = sig(x);
    } else {
      scores = softmax(scores);
    }
    std::vector<float> keys = scores;
    for (std::size_t e = 0; e < router.bias.size(); ++e)
      keys[e] = key_of(scores[e], router.bias[e]);
    std::vector<std::int32_t> order = by_key(keys);
    if (router.n_groups != 0) {
      const std::vector<bool> stays = best_groups(router, keys);
      const std::int64_t size = router.n_experts / router.n_groups;
      std::erase_if(order, [&](std::int32_t e) { return !stays[at(e / size)]; });
    }
    order.resize(at(router.top_k));
    float sum = 0.0f;
    for (const std::int32_t e : order)
      sum = add(sum, scores[at(e)]);
    for (const std::int32_t e : order) {
      float weight = scores[at(e)];
      if (router.renormalize) weight = sum > 0 ? div(weight, sum) : 0.0f;
      chosen.ids.push_back(e);
      chosen.weights.push_back(mul(weight, router.factor));
    }
  }
  return chosen;
}

SortedPairs sort_pairs(std::span<const std::int32_t> ids, std::int64_t n_experts,
                       std::int64_t offset, std::int64_t n_local,
                       const std::vector<bool>& missing) {
  SortedPairs sorted;
  std::vector<std::int64_t> expert;  // n_local where a pair is skipped
  for (const std::int64_t id : ids) {
    if (id < -1 || id >= n_experts) ++sorted.invalid;
    const std::int64_t local = id - offset;
    const bool here = id >= 0 && id < n_experts && local >= 0 && local < n_local;
    expert.push_back(here && (missing.empty() || !missing[at(local)]) ? local : n_local);
  }
  sorted.order.resize(ids.size());
  std::iota(sorted.order.begin(), sorted.order.end(), 0);
  std::stable_sort(sorted.order.begin(), sorted.order.end(),
                   [&](std::int32_t a, std::int32_t b) { return expert[at(a)] < expert[at(b)]; });
  sorted.inverse.assign(ids.size(), -1);
  std::int32_t live = 0;
  for (const std::int32_t pair : sorted.order) {
    if (expert[at(pair)] == n_local) break;
    if (live == 0 || expert[at(pair)] != sorted.active.back()) {
      sorted.active.push_back(static_cast<std::int32_t>(expert[at(pair)]));
      sorted.offsets.push_back(live);
    }
    sorted.inverse[at(pair)] = live++;
  }
  sorted.n_active = static_cast<std::int32_t>(sorted.active.size());
  sorted.active.resize(at(n_local), -1);
  sorted.offsets.resize(at(n_local + 1), live);
  return sorted;
}

}  // namespace memra::reference
