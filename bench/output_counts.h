// What a run left in its f32 outputs, and how that compares with an earlier run.
#pragma once

#include <cstdint>
#include <vector>

namespace memra::bench {

struct OutputCounts {
  uint64_t outputs = 0;
  uint64_t differing = 0;  // bits unlike the baseline's
  uint64_t non_zero = 0;
  uint64_t nan = 0;
  float max = 0;             // magnitudes; NaN does not count
  float max_difference = 0;  // from the baseline, likewise

  // Equal bits prove nothing then.
  bool is_degenerate() const { return outputs == 0 || nan > 0 || 2 * non_zero < outputs; }
};

// Of the bits of f32 values; both have the same size.
OutputCounts count_outputs(const std::vector<uint32_t>& output,
                           const std::vector<uint32_t>& baseline);

}  // namespace memra::bench
