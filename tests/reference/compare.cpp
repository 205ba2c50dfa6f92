#include "reference/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>

namespace memra::reference {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

double difference(double expected, double actual) {
  const bool both_nan = expected != expected && actual != actual;
  if (both_nan || expected == actual) return 0;
  const double error = std::fabs(expected - actual);
  return error != error ? std::numeric_limits<double>::infinity() : error;
}

struct Element {
  std::uint32_t bits;
  double value;
};

Element element(std::span<const std::uint8_t> bytes, DType dtype, std::int64_t index) {
  if (dtype == DType::kF32) {
    const float value = load(bytes, dtype, index);
    return {bits_of(value), value};
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * index, sizeof bits);
  return {bits, load(bytes, dtype, index)};
}

// `expected_at` and `actual_at` take (row, col).
template <typename ExpectedAt, typename ActualAt>
BitReport compare(std::int64_t rows, std::int64_t cols, ExpectedAt expected_at,
                  ActualAt actual_at) {
  BitReport report;
  report.elements = rows * cols;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const Element expected = expected_at(row, col);
      const Element actual = actual_at(row, col);
      if (expected.bits == actual.bits) continue;
      if (report.differing++ == 0) {
        report.first_row = row;
        report.first_col = col;
        report.first_expected = expected.bits;
        report.first_actual = actual.bits;
        report.first_expected_value = expected.value;
        report.first_actual_value = actual.value;
      }
      report.errors.note(col, difference(expected.value, actual.value));
    }
  }
  return report;
}

// A report of what cannot be compared: every element differs.
BitReport size_mismatch(std::size_t expected, std::size_t actual) {
  BitReport report;
  report.elements = static_cast<std::int64_t>(std::max(expected, actual));
  report.differing = report.elements;
  return report;
}

// "7: 0.5" for the residues with an error, worst first, at most four.
template <std::size_t kN>
void print_worst(std::ostream& out, const std::array<double, kN>& worst) {
  std::array<std::size_t, kN> order;
  for (std::size_t i = 0; i < kN; ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return worst[a] > worst[b]; });
  const auto bad = std::count_if(worst.begin(), worst.end(), [](double e) { return e > 0; });
  out << "\n  columns mod " << kN << ": " << bad << " of " << kN << " with errors;";
  for (std::size_t i = 0; i < 4 && worst[order[i]] > 0; ++i) {
    out << " " << order[i] << ": " << worst[order[i]];
  }
}

void print_errors(std::ostream& out, const ColumnErrors& errors) {
  print_worst(out, errors.mod32);
  print_worst(out, errors.mod64);
  print_worst(out, errors.mod128);
}

}  // namespace

void ColumnErrors::note(std::int64_t col, double error) {
  mod32[at(col % 32)] = std::max(mod32[at(col % 32)], error);
  mod64[at(col % 64)] = std::max(mod64[at(col % 64)], error);
  mod128[at(col % 128)] = std::max(mod128[at(col % 128)], error);
}

std::string BitReport::text() const {
  std::ostringstream out;
  out << differing << " of " << elements << " elements differ";
  if (first_row >= 0) {
    out << "; first at (" << first_row << ", " << first_col << "): expected "
        << first_expected_value << std::hex << " (0x" << first_expected << ")" << std::dec
        << ", got " << first_actual_value << std::hex << " (0x" << first_actual << ")" << std::dec;
    print_errors(out, errors);
  } else if (differing > 0) {
    out << ": the sizes do not match";
  }
  return out.str();
}

BitReport compare_bits(std::span<const std::uint8_t> expected, std::span<const std::uint8_t> actual,
                       DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  if (stride == 0) stride = cols;
  const std::size_t needed = at(strided_elements(rows, cols, stride) * dtype_bytes(dtype));
  if (expected.size() < needed || actual.size() < needed) {
    return size_mismatch(expected.size(), actual.size());
  }
  const auto from = [=](std::span<const std::uint8_t> bytes) {
    return [=](std::int64_t row, std::int64_t col) {
      return element(bytes, dtype, row * stride + col);
    };
  };
  return compare(rows, cols, from(expected), from(actual));
}

BitReport compare_bits(std::span<const float> expected, std::span<const float> actual,
                       std::int64_t cols) {
  if (expected.size() != actual.size()) return size_mismatch(expected.size(), actual.size());
  const auto from = [=](std::span<const float> values) {
    return [=](std::int64_t row, std::int64_t col) {
      const float value = values[at(row * cols + col)];
      return Element{bits_of(value), value};
    };
  };
  return compare(static_cast<std::int64_t>(expected.size()) / cols, cols, from(expected),
                 from(actual));
}

BitReport compare_bits(std::span<const std::int8_t> expected, std::span<const std::int8_t> actual,
                       std::int64_t cols) {
  if (expected.size() != actual.size()) return size_mismatch(expected.size(), actual.size());
  const auto from = [=](std::span<const std::int8_t> values) {
    return [=](std::int64_t row, std::int64_t col) {
      const std::int8_t value = values[at(row * cols + col)];
      return Element{static_cast<std::uint8_t>(value), static_cast<double>(value)};
    };
  };
  return compare(static_cast<std::int64_t>(expected.size()) / cols, cols, from(expected),
                 from(actual));
}

std::string Closeness::text() const {
  std::ostringstream out;
  out << "relative L2 " << relative_l2 << ", cosine " << cosine;
  print_errors(out, errors);
  return out.str();
}

Closeness closeness(std::span<const double> expected, std::span<const float> actual,
                    std::int64_t cols) {
  Closeness result;
  double error2 = 0;
  double expected2 = 0;
  double actual2 = 0;
  double product = 0;
  for (std::size_t i = 0; i < expected.size() && i < actual.size(); ++i) {
    const double e = expected[i];
    const double a = actual[i];
    error2 += (a - e) * (a - e);
    expected2 += e * e;
    actual2 += a * a;
    product += a * e;
    result.errors.note(static_cast<std::int64_t>(i) % cols, difference(e, a));
  }
  if (expected.size() != actual.size()) error2 = std::numeric_limits<double>::infinity();
  if (error2 != 0) result.relative_l2 = std::sqrt(error2 / expected2);
  if (expected2 != 0 || actual2 != 0) result.cosine = product / std::sqrt(expected2 * actual2);
  return result;
}

bool ValueCounts::informative() const {
  return 2 * (nonzero - nan - inf) > elements && (distinct > 16 || 2 * distinct > elements);
}

std::string ValueCounts::text() const {
  std::ostringstream out;
  out << elements << " elements: " << nonzero << " not zero, " << nan << " NaN, " << inf << " Inf, "
      << distinct << " distinct";
  return out.str();
}

ValueCounts count_values(std::span<const float> values) {
  ValueCounts counts;
  std::set<std::uint32_t> distinct;
  for (const float value : values) {
    ++counts.elements;
    if (value != 0) ++counts.nonzero;
    if (std::isnan(value)) ++counts.nan;
    if (std::isinf(value)) ++counts.inf;
    if (distinct.size() <= 1000) distinct.insert(bits_of(value));
  }
  counts.distinct = static_cast<std::int64_t>(distinct.size());
  return counts;
}

ValueCounts count_values(std::span<const std::uint8_t> bytes, DType dtype, std::int64_t rows,
                         std::int64_t cols, std::int64_t stride) {
  return count_values(widen(bytes, dtype, rows, cols, stride == 0 ? cols : stride));
}

std::int64_t count_saturated(const MoeProblem& problem, const MoeResult& result) {
  const ActivationParams& activation = problem.activation;
  if (activation.kind == Activation::kSwiglu) return 0;
  std::int64_t saturated = 0;
  for (std::size_t i = 0; i < result.gate_up.act.size(); ++i) {
    if (!result.pair_live[i / at(problem.intermediate)]) continue;
    const float g = result.gate_up.gate[i];
    const float gate = activation.kind == Activation::kSwigluPostclamp ? silu(g) : g;
    if (gate > activation.limit || std::fabs(result.gate_up.up[i]) > activation.limit) ++saturated;
  }
  return saturated;
}

}  // namespace memra::reference
