// What holds an arm back, read from the ratios of measured times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "timing.h"

namespace memra::bench {

struct Reading {
  std::string_view arm;
  // "at the roof", "access pattern", "instruction stream"; where that cannot be told "above the
  // roof" or "unclear".
  std::string verdict;
  std::string text;  // the ratios
};

// The stage's arm that everything is compared with, and its plain stream; NULL if not measured.
const ArmTiming* find_baseline(const std::vector<ArmTiming>& timings, Stage stage);
const ArmTiming* find_stream(const std::vector<ArmTiming>& timings, Stage stage);

// One for each baseline, and for each other arm whose loads or arithmetic were measured alone; of
// the stages whose stream was measured. Times are those of the graph.
std::vector<Reading> read_timings(const std::vector<ArmTiming>& timings);

}  // namespace memra::bench
