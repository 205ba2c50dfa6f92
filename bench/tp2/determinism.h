// Does the same work give the same bits again, alone and beside another rank's work?
#pragma once

#include <string>
#include <vector>

#include "output_counts.h"
#include "tp2/scenario.h"

namespace memra::bench::tp2 {

inline constexpr int kRepetitions = 8;

struct DeterminismCase {
  std::string name;
  std::vector<OutputCounts> repetitions;  // after the first, against the first

  int differing() const;
  bool is_vacuous() const;
  // "DETERMINISTIC, live", "NOT DETERMINISTIC" or "VACUOUS".
  std::string verdict() const;
};

// On rank 0: the gate GEMM, the chain, the layer by the grouped path and by the rows path.
std::vector<DeterminismCase> check_determinism(const Scenario& scenario);

}  // namespace memra::bench::tp2
