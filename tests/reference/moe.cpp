#include "reference/moe.h"

#include <map>

namespace memra::reference {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// Decodes a slab when it is first asked for.
class DecodedSlabs {
 public:
  const DecodedSlab& operator[](const Slab* slab) {
    const auto found = decoded_.find(slab);
    return found != decoded_.end() ? found->second
                                   : decoded_.emplace(slab, decode(*slab)).first->second;
  }

 private:
  std::map<const Slab*, DecodedSlab> decoded_;
};

float dot(const DecodedSlab& slab, std::int64_t row, const QuantizedRows& x, std::int64_t x_row) {
  return row_dot(slab.doubled.data() + row * slab.cols,
                 slab.scales.data() + row * slab.cols / kScaleGroup, x.q_row(x_row).data(),
                 x.d_row(x_row).data(), slab.cols);
}

const float* pair_bias(const PairPlane& plane, std::int64_t pair) {
  return plane.bias.empty() ? nullptr : plane.bias[at(pair)];
}

// Rule 4.
float scaled(float dot, float scale, const float* bias, std::int64_t row) {
  return bias != nullptr ? fma(dot, scale, bias[row]) : mul(dot, scale);
}

}  // namespace

GateUp gate_up(const QuantizedRows& x, std::int64_t top_k, std::int64_t intermediate,
               const PairPlane& gate, const PairPlane& up, const ActivationParams& activation) {
  GateUp result;
  result.pairs = x.rows * top_k;
  result.intermediate = intermediate;
  const std::size_t elements = at(result.pairs * intermediate);
  result.gate.assign(elements, 0.0f);
  result.up.assign(elements, 0.0f);
  result.act.assign(elements, 0.0f);

  DecodedSlabs slabs;
  for (std::int64_t pair = 0; pair < result.pairs; ++pair) {
    if (gate.slabs[at(pair)] == nullptr || up.slabs[at(pair)] == nullptr) continue;
    const DecodedSlab& gate_slab = slabs[gate.slabs[at(pair)]];
    const DecodedSlab& up_slab = slabs[up.slabs[at(pair)]];
    const std::int64_t token = pair / top_k;
    for (std::int64_t row = 0; row < intermediate; ++row) {
      const float g =
          scaled(dot(gate_slab, row, x, token), gate.scales[at(pair)], pair_bias(gate, pair), row);
      const float u =
          scaled(dot(up_slab, row, x, token), up.scales[at(pair)], pair_bias(up, pair), row);
      const std::size_t element = at(pair * intermediate + row);
      result.gate[element] = canonical(g);
      result.up[element] = canonical(u);
      result.act[element] = canonical(activate(activation, g, u));
    }
  }
  return result;
}

void down(const QuantizedRows& act, std::int64_t top_k, std::int64_t hidden, const PairPlane& plane,
          std::span<const float> weights, std::vector<float>& y) {
  const std::int64_t tokens = top_k == 0 ? 0 : act.rows / top_k;
  DecodedSlabs slabs;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t slot = 0; slot < top_k; ++slot) {
      const std::int64_t pair = token * top_k + slot;
      if (plane.slabs[at(pair)] == nullptr) continue;
      const DecodedSlab& slab = slabs[plane.slabs[at(pair)]];
      const float* bias = pair_bias(plane, pair);
      for (std::int64_t row = 0; row < hidden; ++row) {
        float& sum = y[at(token * hidden + row)];
        sum = fma(plane.scales[at(pair)], dot(slab, row, act, pair), sum);
        if (bias != nullptr) sum = fma(weights[at(pair)], bias[row], sum);
      }
    }
  }
  for (float& sum : y)
    sum = canonical(sum);
}

Tables route(const MoeProblem& problem) {
  const std::int64_t n_local = problem.n_local;
  const auto slab_of = [&](Plane plane, std::int64_t local) -> const Slab* {
    if (!problem.table_slabs.empty()) return problem.table_slabs[at(plane * n_local + local)];
    const Slab& slab = problem.banks[plane].slabs[at(local)];
    return slab.bytes.empty() ? nullptr : &slab;
  };
  const auto scale_of = [&](Plane plane, std::int64_t local) {
    if (!problem.table_scales.empty()) return problem.table_scales[at(plane * n_local + local)];
    return problem.banks[plane].scales[at(local)];
  };
  const auto bias_of = [&](Plane plane, std::int64_t local) -> const float* {
    const Bank& bank = problem.banks[plane];
    return bank.bias.empty() ? nullptr : bank.bias.data() + local * bank.rows;
  };

  Tables tables;
  tables.pair_live.assign(at(problem.n_pairs()), 0);
  PairPlane* planes[3] = {&tables.gate, &tables.up, &tables.down};
  for (PairPlane* plane : planes) {
    plane->slabs.assign(at(problem.n_pairs()), nullptr);
    plane->scales.assign(at(problem.n_pairs()), 0.0f);
    plane->bias.assign(at(problem.n_pairs()), nullptr);
  }
  for (std::int64_t pair = 0; pair < problem.n_pairs(); ++pair) {
    const std::int64_t id = problem.ids[at(pair)];
    if (id >= problem.n_experts || id < -1) ++tables.invalid_ids;
    const std::int64_t local = id - problem.local_offset;
    if (id < 0 || id >= problem.n_experts || local < 0 || local >= n_local) continue;
    if (slab_of(kGate, local) == nullptr || slab_of(kUp, local) == nullptr ||
        slab_of(kDown, local) == nullptr) {
      continue;
    }
    tables.pair_live[at(pair)] = 1;
    for (const Plane plane : {kGate, kUp, kDown}) {
      planes[plane]->slabs[at(pair)] = slab_of(plane, local);
      planes[plane]->scales[at(pair)] = scale_of(plane, local);
      planes[plane]->bias[at(pair)] = bias_of(plane, local);
    }
    tables.down.scales[at(pair)] = mul(problem.weights[at(pair)], scale_of(kDown, local));
  }
  return tables;
}

MoeResult moe_rows(const MoeProblem& problem) {
  MoeResult result;
  Tables tables = route(problem);
  result.pair_live = tables.pair_live;
  result.invalid_ids = tables.invalid_ids;

  const std::vector<float> x =
      widen(problem.x, problem.x_dtype, problem.tokens, problem.hidden, problem.x_stride);
  result.x_q = quantize_q8(x, problem.tokens, problem.hidden);
  result.gate_up = gate_up(result.x_q, problem.top_k, problem.intermediate, tables.gate, tables.up,
                           problem.activation);
  result.act_q = quantize_q8(result.gate_up.act, problem.n_pairs(), problem.intermediate);

  result.y = problem.y_initial;
  if (problem.accumulate) {
    result.y_f32 =
        widen(result.y, problem.y_dtype, problem.tokens, problem.hidden, problem.y_stride);
  } else {
    result.y_f32.assign(at(problem.tokens * problem.hidden), 0.0f);
  }
  down(result.act_q, problem.top_k, problem.hidden, tables.down, problem.weights, result.y_f32);
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    for (std::int64_t col = 0; col < problem.hidden; ++col) {
      store(result.y, problem.y_dtype, token * problem.y_stride + col,
            result.y_f32[at(token * problem.hidden + col)]);
    }
  }
  return result;
}

}  // namespace memra::reference
