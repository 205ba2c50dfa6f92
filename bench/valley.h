// memra_moe over token counts: where the choice between the paths, or a kernel's tiles, leave a
// valley.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "console.h"
#include "grouped_banks.h"
#include "grouped_options.h"

namespace memra::bench {

struct ValleyPoint {
  int64_t tokens = 0;
  bool grouped = false;  // the path that memra_moe takes
  Summary us;
  // Of either path, where that was asked for and can be taken.
  std::optional<Summary> rows_us, grouped_us;
  double fall = 0;  // below the slowest smaller call, as a fraction of that; 0 where it is not
};

struct Valley {
  std::string case_name;
  Shape shape;
  double skew = 0;
  memra_format format = MEMRA_NVFP4_V2;
  int64_t grouped_min_tokens = 0;  // as memra_moe_layer_info says
  std::vector<ValleyPoint> points;

  // By more than this time must not fall where tokens rise.
  static constexpr double kTolerance = 0.05;
  bool is_marked(const ValleyPoint& point) const { return point.fall > kTolerance; }
};

// Sets `fall` of points in rising order of tokens.
void find_falls(std::vector<ValleyPoint>* points);

// Where the grouped path overtakes rows for good, of the counts at which both were timed; 0: of no
// count is that so.
struct PathCrossing {
  int64_t last_rows = 0;      // the largest at which rows are faster
  int64_t first_grouped = 0;  // the smallest from which on grouped is at least as fast at all

  bool is_timed() const { return last_rows > 0 || first_grouped > 0; }
};

// Of points in rising order of tokens.
PathCrossing find_crossing(const std::vector<ValleyPoint>& points);

Valley measure_valley(const GroupedBanks& banks, const GroupedCase& grouped_case,
                      const RegimeSettings& settings, bool both_paths, Progress* progress);

}  // namespace memra::bench
