// Comparisons for tests: bits with a report, relative L2 and cosine, and what the data is worth.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/floats.h"
#include "reference/moe.h"

namespace memra::reference {

// The worst absolute difference in each column class: a structural fault shows as a pattern.
// Elements that differ in NaN-ness or by an infinity count as Inf.
struct ColumnErrors {
  std::array<double, 32> mod32{};
  std::array<double, 64> mod64{};
  std::array<double, 128> mod128{};

  void note(std::int64_t col, double error);
};

struct BitReport {
  std::int64_t elements = 0;
  std::int64_t differing = 0;
  std::int64_t first_row = -1;
  std::int64_t first_col = -1;
  std::uint32_t first_expected = 0;  // bits
  std::uint32_t first_actual = 0;
  double first_expected_value = 0;
  double first_actual_value = 0;
  ColumnErrors errors;

  bool same() const { return differing == 0; }
  std::string text() const;
};

// Matrices of raw elements. Strides in elements; gaps between rows are not looked at.
BitReport compare_bits(std::span<const std::uint8_t> expected, std::span<const std::uint8_t> actual,
                       DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride = 0);
BitReport compare_bits(std::span<const float> expected, std::span<const float> actual,
                       std::int64_t cols);
BitReport compare_bits(std::span<const std::int8_t> expected, std::span<const std::int8_t> actual,
                       std::int64_t cols);

// Against a wider computation.
struct Closeness {
  double relative_l2 = 0;  // |actual - expected| / |expected|; 0 / 0 is 0
  double cosine = 1;
  ColumnErrors errors;
  std::string text() const;
};
Closeness closeness(std::span<const double> expected, std::span<const float> actual,
                    std::int64_t cols);

struct ValueCounts {
  std::int64_t elements = 0;
  std::int64_t nonzero = 0;  // NaN included
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  std::int64_t distinct = 0;  // bit patterns, counted up to about a thousand

  // Most of the elements are finite, not zero and not all alike.
  bool informative() const;
  std::string text() const;
};
ValueCounts count_values(std::span<const float> values);
ValueCounts count_values(std::span<const std::uint8_t> bytes, DType dtype, std::int64_t rows,
                         std::int64_t cols, std::int64_t stride = 0);

// Elements of live pairs whose gate or up the activation's limit has changed (0 for kSwiglu).
std::int64_t count_saturated(const MoeProblem& problem, const MoeResult& result);

}  // namespace memra::reference
