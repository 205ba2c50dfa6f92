#include "stats.h"

#include <algorithm>

namespace memra::bench {

Summary summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const double middle = samples[n / 2];
  return {n % 2 == 1 ? middle : 0.5 * (samples[n / 2 - 1] + middle), samples.front(),
          samples.back()};
}

}  // namespace memra::bench
