#include "reference/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace memra::reference {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

std::uint8_t random_scale(Random& random, ScaleCodes scales) {
  return static_cast<std::uint8_t>(scales == ScaleCodes::kAll ? random.below(127)
                                                              : 0x38 + random.below(8));
}

Bank random_bank(Random& random, const ProblemSpec& spec, Format format, std::int64_t n_local,
                 std::int64_t rows, std::int64_t cols, double output_per_input) {
  Bank bank;
  bank.format = format;
  bank.rows = rows;
  bank.cols = cols;
  const double dot_rms = weight_rms(spec.scales) * std::sqrt(static_cast<double>(cols));
  for (std::int64_t expert = 0; expert < n_local; ++expert) {
    bank.slabs.push_back(random_slab(random, format, rows, cols, spec.scales));
    const double jitter = random.uniform(0.75f, 1.25f);
    bank.scales.push_back(static_cast<float>(jitter * output_per_input / dot_rms));
  }
  if (spec.bias) {
    bank.bias.resize(at(n_local * rows));
    for (float& value : bank.bias)
      value = random.uniform(-0.5f, 0.5f);
  }
  return bank;
}

std::vector<std::int32_t> random_ids(Random& random, const ProblemSpec& spec) {
  constexpr std::int32_t kBad[] = {-1, std::numeric_limits<std::int32_t>::min(),
                                   std::numeric_limits<std::int32_t>::max()};
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < spec.tokens; ++token) {
    std::vector<std::int32_t> deck;
    for (std::int64_t e = 0; e < spec.n_experts; ++e)
      deck.push_back(static_cast<std::int32_t>(e));
    for (std::int64_t slot = 0; slot < spec.top_k; ++slot) {
      if (spec.ids == IdPattern::kOneExpert) {
        ids.push_back(static_cast<std::int32_t>(spec.n_experts - 1));
        continue;
      }
      if (spec.ids == IdPattern::kDuplicates || slot >= spec.n_experts) {
        ids.push_back(static_cast<std::int32_t>(random.below(spec.n_experts)));
        continue;
      }
      std::swap(deck[at(slot)], deck[at(slot + random.below(spec.n_experts - slot))]);
      ids.push_back(deck[at(slot)]);
      if (spec.ids != IdPattern::kWithInvalid) continue;
      if (token == 0 || random.below(3) == 0) {
        const std::int64_t kind = random.below(4);
        ids.back() = kind == 3 ? static_cast<std::int32_t>(spec.n_experts) : kBad[kind];
      }
    }
  }
  return ids;
}

}  // namespace

std::uint64_t Random::bits() {
  state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::int64_t Random::below(std::int64_t n) {
  return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
}

float Random::uniform() {
  return static_cast<float>(bits() >> 40) * 0x1p-24f;
}

float Random::uniform(float low, float high) {
  return low + (high - low) * uniform();
}

float Random::normal() {
  // Four uniforms have variance 4 / 12.
  const float sum = uniform() + uniform() + uniform() + uniform();
  return (sum - 2.0f) * 1.7320508f;
}

Slab random_slab(Random& random, Format format, std::int64_t rows, std::int64_t cols,
                 ScaleCodes scales) {
  Slab slab(format, rows, cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; col += 16) {
      set_scale(slab, row, col, random_scale(random, scales));
      const std::uint64_t bits = random.bits();
      Codes16 codes;
      for (std::size_t i = 0; i < 16; ++i)
        codes[i] = bits >> (4 * i) & 15;
      set_codes(slab, row, col, codes);
    }
  }
  return slab;
}

double weight_rms(ScaleCodes scales) {
  double code_square = 0;
  for (int code = 0; code < 16; ++code) {
    const double value = e2m1_value(static_cast<std::uint8_t>(code));
    code_square += value * value / 16;
  }
  const int first = scales == ScaleCodes::kAll ? 0 : 0x38;
  const int count = scales == ScaleCodes::kAll ? 127 : 8;
  double scale_square = 0;
  for (int i = 0; i < count; ++i) {
    const double value = ue4m3_value(static_cast<std::uint8_t>(first + i));
    scale_square += value * value / count;
  }
  return std::sqrt(code_square * scale_square);
}

ProblemSpec& ProblemSpec::with_format(Format format) {
  gate_format = up_format = down_format = format;
  return *this;
}

MoeProblem make_problem(const ProblemSpec& spec) {
  Random random(spec.seed);
  MoeProblem problem;
  problem.hidden = spec.hidden;
  problem.intermediate = spec.intermediate;
  problem.n_experts = spec.n_experts;
  problem.top_k = spec.top_k;
  problem.local_offset = spec.local_offset;
  problem.n_local = spec.n_local < 0 ? spec.n_experts - spec.local_offset : spec.n_local;
  problem.activation = spec.activation;
  problem.tokens = spec.tokens;

  // Gate and up for x of order 1; down for activations near a half.
  problem.banks = {random_bank(random, spec, spec.gate_format, problem.n_local, spec.intermediate,
                               spec.hidden, spec.pre_activation),
                   random_bank(random, spec, spec.up_format, problem.n_local, spec.intermediate,
                               spec.hidden, spec.pre_activation),
                   random_bank(random, spec, spec.down_format, problem.n_local, spec.hidden,
                               spec.intermediate, 2.0)};

  problem.ids = random_ids(random, spec);
  for (std::int64_t pair = 0; pair < problem.n_pairs(); ++pair) {
    problem.weights.push_back(random.uniform(0.1f, 1.0f));
  }

  problem.x_dtype = spec.x_dtype;
  problem.x_stride = spec.hidden + spec.x_padding;
  problem.x.assign(
      at(strided_elements(spec.tokens, spec.hidden, problem.x_stride) * dtype_bytes(spec.x_dtype)),
      0xFF);
  for (std::int64_t token = 0; token < spec.tokens; ++token) {
    fill_row(problem, token, RowKind::kNormal, random);
  }
  for (const SpecialRow& row : spec.special_rows)
    fill_row(problem, row.token, row.kind, random);

  problem.y_dtype = spec.y_dtype;
  problem.y_stride = spec.hidden + spec.y_padding;
  problem.accumulate = spec.accumulate;
  problem.y_initial.assign(
      at(strided_elements(spec.tokens, spec.hidden, problem.y_stride) * dtype_bytes(spec.y_dtype)),
      0xFF);
  for (std::int64_t token = 0; spec.accumulate && token < spec.tokens; ++token) {
    for (std::int64_t col = 0; col < spec.hidden; ++col) {
      store(problem.y_initial, spec.y_dtype, token * problem.y_stride + col, random.normal());
    }
  }
  return problem;
}

MoeProblem with_format(const MoeProblem& problem, Format format) {
  MoeProblem result = problem;
  for (Bank& bank : result.banks) {
    bank.format = format;
    for (Slab& slab : bank.slabs) {
      if (!slab.bytes.empty()) slab = convert(slab, format);
      slab.format = format;
    }
  }
  return result;
}

MoeProblem only_tokens(const MoeProblem& problem, std::int64_t first, std::int64_t count) {
  MoeProblem result = problem;
  result.tokens = count;
  const auto rows_of = [&](const std::vector<std::uint8_t>& bytes, DType dtype,
                           std::int64_t stride) {
    const std::int64_t begin = first * stride * dtype_bytes(dtype);
    const std::int64_t size = strided_elements(count, problem.hidden, stride) * dtype_bytes(dtype);
    return std::vector<std::uint8_t>(bytes.begin() + begin, bytes.begin() + begin + size);
  };
  result.x = rows_of(problem.x, problem.x_dtype, problem.x_stride);
  result.y_initial = rows_of(problem.y_initial, problem.y_dtype, problem.y_stride);
  const auto pairs_begin = first * problem.top_k;
  const auto pairs_end = (first + count) * problem.top_k;
  result.ids.assign(problem.ids.begin() + pairs_begin, problem.ids.begin() + pairs_end);
  result.weights.assign(problem.weights.begin() + pairs_begin, problem.weights.begin() + pairs_end);
  return result;
}

void fill_row(MoeProblem& problem, std::int64_t token, RowKind kind, Random& random) {
  const std::int64_t hidden = problem.hidden;
  const std::int64_t chosen = random.below(hidden);
  for (std::int64_t col = 0; col < hidden; ++col) {
    const float normal = random.normal();
    float value = normal;
    switch (kind) {
      case RowKind::kNormal:
        break;
      case RowKind::kZero:
        value = 0.0f;
        break;
      case RowKind::kOneNan:
        value = col == chosen ? canonical_nan() : normal;
        break;
      case RowKind::kOneInf:
        value = col == chosen ? -HUGE_VALF : normal;
        break;
      case RowKind::kTiny41:
        value = 1e-41f * normal;
        break;
      case RowKind::kTiny38:
        value = 1e-38f * normal;
        break;
      case RowKind::kTinyMixed:
        value = col % 3 == 0 ? 1e-41f : (col % 3 == 1 ? -1e-38f : 1.0f);
        break;
      case RowKind::kOneHuge:
        if (col == chosen) value = problem.x_dtype == DType::kF16 ? 6e4f : 1e5f;
        break;
      case RowKind::kBlockOf6000:
        if (col / 32 == chosen / 32) value = 6000.0f;
        break;
    }
    store(problem.x, problem.x_dtype, token * problem.x_stride + col, value);
  }
}

}  // namespace memra::reference
