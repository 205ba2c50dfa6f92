#include "reference/exact.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace memra::reference {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// [rows, cols], decoded when first asked for.
class ExactSlabs {
 public:
  const std::vector<double>& operator[](const Slab* slab) {
    std::vector<double>& weights = decoded_[slab];
    if (weights.empty()) {
      for (std::int64_t row = 0; row < slab->rows; ++row) {
        for (std::int64_t col = 0; col < slab->cols; ++col)
          weights.push_back(exact_weight(*slab, row, col));
      }
    }
    return weights;
  }

 private:
  std::map<const Slab*, std::vector<double>> decoded_;
};

// One row of x.
std::vector<double> product(const std::vector<double>& weights, std::span<const double> x) {
  std::vector<double> result(weights.size() / x.size(), 0.0);
  for (std::size_t row = 0; row < result.size(); ++row) {
    for (std::size_t col = 0; col < x.size(); ++col)
      result[row] += weights[row * x.size() + col] * x[col];
  }
  return result;
}

// One plane of a pair: dot * scale + bias.
std::vector<double> linear(ExactSlabs& slabs, const PairPlane& plane, std::int64_t pair,
                           std::span<const double> x) {
  std::vector<double> result = product(slabs[plane.slabs[at(pair)]], x);
  const float* bias = plane.bias.empty() ? nullptr : plane.bias[at(pair)];
  for (std::size_t row = 0; row < result.size(); ++row) {
    result[row] = result[row] * static_cast<double>(plane.scales[at(pair)]) +
                  (bias != nullptr ? static_cast<double>(bias[row]) : 0.0);
  }
  return result;
}

}  // namespace

double exact_weight(const Slab& slab, std::int64_t row, std::int64_t col) {
  return static_cast<double>(e2m1_value(get_code(slab, row, col))) *
         static_cast<double>(ue4m3_value(get_scale(slab, row, col)));
}

double exact_activation(const ActivationParams& params, double g, double u) {
  const double limit = params.limit;
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  switch (params.kind) {
    case Activation::kSwiglu:
      break;
    case Activation::kSwigluPreclamp:
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
      break;
    case Activation::kSwigluPostclamp:
      return std::min(g * sigmoid(g), limit) * std::clamp(u, -limit, limit);
    case Activation::kSwigluOai:
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
      return (u + 1) * g * sigmoid(static_cast<double>(params.alpha) * g);
  }
  return g * sigmoid(g) * u;
}

std::vector<double> exact_product(const Slab& slab, std::span<const double> x) {
  ExactSlabs slabs;
  const std::vector<double>& weights = slabs[&slab];
  std::vector<double> result;
  for (std::size_t begin = 0; begin < x.size(); begin += at(slab.cols)) {
    const std::vector<double> row = product(weights, x.subspan(begin, at(slab.cols)));
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

std::vector<double> moe_exact(const MoeProblem& problem) {
  const Tables tables = route(problem);
  const std::vector<float> x_f32 =
      widen(problem.x, problem.x_dtype, problem.tokens, problem.hidden, problem.x_stride);
  const std::vector<double> x(x_f32.begin(), x_f32.end());
  std::vector<double> y(at(problem.tokens * problem.hidden), 0.0);
  if (problem.accumulate) {
    const std::vector<float> before =
        widen(problem.y_initial, problem.y_dtype, problem.tokens, problem.hidden, problem.y_stride);
    y.assign(before.begin(), before.end());
  }
  ExactSlabs slabs;
  for (std::int64_t pair = 0; pair < problem.n_pairs(); ++pair) {
    if (tables.pair_live[at(pair)] == 0) continue;
    const std::int64_t token = pair / problem.top_k;
    const std::span<const double> row{x.data() + token * problem.hidden, at(problem.hidden)};
    double* const to = y.data() + token * problem.hidden;
    if (!std::all_of(row.begin(), row.end(), [](double value) { return std::isfinite(value); })) {
      std::fill_n(to, problem.hidden, std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    std::vector<double> act = linear(slabs, tables.gate, pair, row);
    const std::vector<double> up = linear(slabs, tables.up, pair, row);
    for (std::size_t i = 0; i < act.size(); ++i)
      act[i] = exact_activation(problem.activation, act[i], up[i]);
    // Not the tables' scale, which has the router weight in it, rounded.
    const std::vector<double> dots = product(slabs[tables.down.slabs[at(pair)]], act);
    const std::int64_t local = problem.ids[at(pair)] - problem.local_offset;
    const double scale =
        problem.table_scales.empty()
            ? static_cast<double>(problem.banks[kDown].scales[at(local)])
            : static_cast<double>(problem.table_scales[at(2 * problem.n_local + local)]);
    const float* bias = tables.down.bias[at(pair)];
    for (std::int64_t i = 0; i < problem.hidden; ++i) {
      to[i] += static_cast<double>(problem.weights[at(pair)]) *
               (dots[at(i)] * scale + (bias != nullptr ? static_cast<double>(bias[i]) : 0.0));
    }
  }
  return y;
}

}  // namespace memra::reference
