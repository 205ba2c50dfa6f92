// Summary of repeated measurements.
#pragma once

#include <vector>

namespace memra::bench {

// The median, and the spread as the range of all samples: with the handful of samples that a run
// takes, quartiles would hide the outlier that a reader wants to see.
struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;

  // Range in per cent of the median.
  double spread_percent() const { return median > 0 ? 100.0 * (max - min) / median : 0.0; }
};

// `samples` must not be empty; an even count takes the mean of the two in the middle.
Summary summarize(std::vector<double> samples);

}  // namespace memra::bench
