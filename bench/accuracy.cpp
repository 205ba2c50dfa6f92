#include "accuracy.h"

#include <cmath>
#include <limits>

#include "console.h"

namespace memra::bench {

double AccuracySums::Sums::relative() const {
  if (error == 0 && size == 0) return 0;
  const double ratio = std::sqrt(error / size);
  return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

void AccuracySums::add_row(std::span<const float> actual, std::span<const double> exact) {
  for (size_t column = 0; column < actual.size(); ++column) {
    Sums& sums = by_column_[column % by_column_.size()];
    const double difference = static_cast<double>(actual[column]) - exact[column];
    sums.error += difference * difference;
    sums.size += exact[column] * exact[column];
  }
  outputs_ += static_cast<int64_t>(actual.size());
}

Accuracy AccuracySums::result() const {
  Accuracy accuracy;
  accuracy.outputs = outputs_;
  for (size_t i = 0; i < kModuli.size(); ++i) {
    std::vector<Sums> classes(static_cast<size_t>(kModuli[i]));
    Sums total;
    for (size_t column = 0; column < by_column_.size(); ++column) {
      for (Sums* sums : {&classes[column % classes.size()], &total}) {
        sums->error += by_column_[column].error;
        sums->size += by_column_[column].size;
      }
    }
    accuracy.relative_l2 = total.relative();
    WorstColumns& worst = accuracy.worst[i];
    worst.modulus = kModuli[i];
    for (size_t column = 0; column < classes.size(); ++column) {
      const double relative = classes[column].relative();
      if (relative <= worst.relative_l2) continue;
      worst.column = static_cast<int64_t>(column);
      worst.relative_l2 = relative;
    }
  }
  return accuracy;
}

std::string Accuracy::text() const {
  std::string text =
      format("%.2e over %lld outputs; worst column", relative_l2, static_cast<long long>(outputs));
  const char* separator = "";
  for (const WorstColumns& columns : worst) {
    text += format("%s mod %d: %lld (%.2e)", separator, columns.modulus,
                   static_cast<long long>(columns.column), columns.relative_l2);
    separator = ",";
  }
  return text;
}

}  // namespace memra::bench
