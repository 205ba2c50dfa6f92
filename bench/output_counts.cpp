#include "output_counts.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace memra::bench {

OutputCounts count_outputs(const std::vector<uint32_t>& output,
                           const std::vector<uint32_t>& baseline) {
  OutputCounts counts;
  counts.outputs = output.size();
  for (size_t i = 0; i < output.size(); ++i) {
    const auto value = std::bit_cast<float>(output[i]);
    const bool is_nan = std::isnan(value);
    counts.non_zero += value != 0.0F ? 1U : 0U;
    counts.nan += is_nan ? 1U : 0U;
    if (!is_nan) counts.max = std::max(counts.max, std::abs(value));
    if (output[i] == baseline[i]) continue;
    ++counts.differing;
    const float difference = std::abs(value - std::bit_cast<float>(baseline[i]));
    if (!std::isnan(difference))
      counts.max_difference = std::max(counts.max_difference, difference);
  }
  return counts;
}

}  // namespace memra::bench
