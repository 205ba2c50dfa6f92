#include "routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>

namespace memra::bench {
namespace {

constexpr uint32_t kSeed = 21;
constexpr size_t kMinCalls = 4;
constexpr size_t kMaxCalls = 64;

void shuffle_front(std::vector<int32_t>* values, size_t count, Lcg* lcg) {
  const size_t n = values->size();
  for (size_t i = 0; i < count; ++i) {
    const auto step = static_cast<size_t>(lcg->unit() * static_cast<float>(n - i));
    std::swap((*values)[i], (*values)[std::min(i + step, n - 1)]);
  }
}

std::vector<int32_t> all_experts(int64_t n_experts) {
  std::vector<int32_t> all(static_cast<size_t>(n_experts));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Replaces the experts of a pattern by the first ones of `rested`, and sends these to its end.
std::vector<int32_t> deal(std::vector<int32_t> pattern, std::vector<int32_t>* rested) {
  const std::vector<int32_t> unique = distinct(pattern);
  for (int32_t& id : pattern) {
    const auto at = std::find(unique.begin(), unique.end(), id) - unique.begin();
    id = (*rested)[static_cast<size_t>(at)];
  }
  std::rotate(rested->begin(), rested->begin() + static_cast<std::ptrdiff_t>(unique.size()),
              rested->end());
  return pattern;
}

}  // namespace

std::vector<int32_t> draw_experts(const Shape& shape, Lcg* lcg) {
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < shape.tokens; ++token) {
    std::vector<int32_t> all = all_experts(shape.n_experts);
    const auto top_k = static_cast<size_t>(shape.top_k);
    shuffle_front(&all, top_k, lcg);
    ids.insert(ids.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(top_k));
  }
  return ids;
}

int32_t hashed_expert(uint64_t pair, int64_t n_experts, double skew) {
  uint64_t hash = pair * 0x9E3779B97F4A7C15U;
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9U;
  hash ^= hash >> 32;
  const double u = static_cast<double>(hash >> 11) * 0x1p-53;
  const double expert = std::floor(std::pow(u, skew) * static_cast<double>(n_experts));
  return static_cast<int32_t>(std::min(expert, static_cast<double>(n_experts - 1)));
}

std::vector<int32_t> hashed_experts(const Shape& shape, double skew, int64_t first_pair) {
  std::vector<int32_t> ids;
  for (int64_t pair = first_pair; pair < first_pair + shape.n_pairs(); ++pair)
    ids.push_back(hashed_expert(static_cast<uint64_t>(pair), shape.n_experts, skew));
  return ids;
}

std::vector<int32_t> distinct(const std::vector<int32_t>& ids) {
  std::vector<int32_t> unique;
  std::unordered_set<int32_t> seen;
  for (const int32_t id : ids) {
    if (seen.insert(id).second) unique.push_back(id);
  }
  return unique;
}

std::vector<int32_t> expert_order(const std::vector<int32_t>& ids) {
  std::vector<int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
  });
  return order;
}

Shape roof_shape(const Shape& shape, int64_t n_experts) {
  Shape roof = shape;
  roof.tokens = (n_experts + MEMRA_MAX_TOP_K - 1) / MEMRA_MAX_TOP_K;
  roof.top_k = (n_experts + roof.tokens - 1) / roof.tokens;
  return roof.n_pairs() <= shape.n_pairs() ? roof : shape;
}

double Routing::mean_unique() const {
  double sum = 0;
  for (const std::vector<int32_t>& experts : unique)
    sum += static_cast<double>(experts.size());
  return sum / static_cast<double>(unique.size());
}

double Routing::repeat_bytes(const Shape& shape) const {
  const auto gate_up = static_cast<double>(slab_bytes(shape, kGate) + slab_bytes(shape, kUp));
  const auto down = static_cast<double>(slab_bytes(shape, kDown));
  const size_t n = unique.size();
  const auto experts_of = [&](size_t call) { return static_cast<double>(unique[call % n].size()); };
  std::vector<double> before(2 * n + 1);  // experts of the calls before one, over two rounds
  for (size_t call = 0; call < 2 * n; ++call)
    before[call + 1] = before[call] + experts_of(call);
  std::vector<size_t> last(static_cast<size_t>(shape.n_experts), SIZE_MAX);
  double least = std::numeric_limits<double>::max();
  for (size_t call = 0; call < 2 * n; ++call) {
    for (const int32_t expert : unique[call % n]) {
      size_t& previous = last[static_cast<size_t>(expert)];
      if (previous != SIZE_MAX) {
        const double between = before[call] - before[previous + 1];
        const double other = std::min(experts_of(previous) * down, experts_of(call) * gate_up);
        least = std::min(least, between * (gate_up + down) + other);
      }
      previous = call;
    }
  }
  return least;
}

Routing draw_routing(const Shape& shape, double min_bytes) {
  Lcg lcg(kSeed);
  std::vector<int32_t> rested = all_experts(shape.n_experts);
  shuffle_front(&rested, rested.size(), &lcg);
  Routing drawn;
  Routing best;
  double best_bytes = -1;
  while (drawn.ids.size() < kMaxCalls && best_bytes < min_bytes) {
    drawn.ids.push_back(deal(draw_experts(shape, &lcg), &rested));
    drawn.unique.push_back(distinct(drawn.ids.back()));
    if (drawn.ids.size() < kMinCalls) continue;
    const double bytes = drawn.repeat_bytes(shape);
    if (bytes > best_bytes) {
      best = drawn;
      best_bytes = bytes;
    }
  }
  return best;
}

}  // namespace memra::bench
