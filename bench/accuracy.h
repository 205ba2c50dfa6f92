// How far outputs are from what f64 gives.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace memra::bench {

// The columns that are alike modulo some number and have the largest error: a fault of a tile shows
// there.
struct WorstColumns {
  int modulus = 0;
  int64_t column = 0;
  double relative_l2 = 0;
};

struct Accuracy {
  double relative_l2 = 0;
  int64_t outputs = 0;
  std::array<WorstColumns, 3> worst;

  // "2.1e-04; worst column mod 32: 5 (2.3e-04), ..."
  std::string text() const;
};

class AccuracySums {
 public:
  void add_row(std::span<const float> actual, std::span<const double> exact);
  // A NaN, and a difference where all should be 0, make it infinite.
  Accuracy result() const;

 private:
  struct Sums {
    double error = 0;
    double size = 0;
    double relative() const;
  };
  static constexpr std::array<int, 3> kModuli = {32, 64, 128};

  int64_t outputs_ = 0;
  std::array<Sums, 128> by_column_ = {};
};

}  // namespace memra::bench
