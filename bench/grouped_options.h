// The command line of moe-grouped-ceiling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models.h"
#include "parse_result.h"
#include "regimes.h"
#include "session.h"
#include "shape.h"

namespace memra::bench {

// A layer, its routing, and the calls of it that are measured.
struct GroupedCase {
  std::string name;
  Shape shape;  // tokens: the most of a call
  double skew = 1;
  std::vector<int64_t> tokens;
};

// What is left empty or at 0 takes a default that depends on the backend.
struct GroupedOptions {
  std::vector<std::string> cases;
  std::vector<int64_t> tokens;  // in rising order
  // Dimensions that were given make a case of their own.
  Shape shape = {0, 0, 0, 0, 0};
  double skew = 0;
  const ModelShape* model = nullptr;
  std::vector<memra_format> formats = {MEMRA_NVFP4_V2, MEMRA_NVFP4};
  std::vector<std::string> arms;  // parts of names; empty: all
  std::vector<Regime> regimes = {Regime::kBurst, Regime::kSustained};
  bool valley = false;
  bool bars = false;
  bool both_paths = false;
  bool skip_accuracy = false;
  int64_t banks = 3;
  int rounds = 0;
  double pause_ms = -1;
  double warm_ms = -1;
  EngineChoice engine;
  std::string json_path;
};

ParseResult parse_grouped_options(int argc, char** argv, GroupedOptions* options);

std::vector<GroupedCase> grouped_cases(const GroupedOptions& options, bool on_cpu);

// What is measured with the same banks: rows of a table, or a valley.
struct GroupedRun {
  GroupedCase layer;
  memra_format format = MEMRA_NVFP4_V2;
  bool valley = false;
};
std::vector<GroupedRun> grouped_runs(const GroupedOptions& options, bool on_cpu);

RegimeSettings regime_settings(const GroupedOptions& options, bool on_cpu);

}  // namespace memra::bench
