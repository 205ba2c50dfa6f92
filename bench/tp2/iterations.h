// Iterations as a server would run them: what the host sees, and what each rank's events say.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tp2/scenario.h"

namespace memra::bench::tp2 {

inline constexpr int kFirstWarm = 2;

// Microseconds.
struct Iteration {
  int number = 0;
  double issue_us = 0;  // until the host has issued everything
  double join_us = 0;   // until both ranks are done
  // Between a rank's head and tail events: what the rank waits for lies inside.
  std::array<double, kRanks> span_us = {};
  std::string fault;  // of an event; the iteration counts for nothing then

  bool is_valid() const { return fault.empty(); }
  bool is_warm() const { return number >= kFirstWarm; }
  double sum_us() const { return span_us[0] + span_us[1]; }
  double max_us() const { return std::max(span_us[0], span_us[1]); }
};

std::vector<Iteration> run_iterations(const Scenario& scenario);

// The valid warm one with the shortest join; NULL where there is none.
const Iteration* best_warm(const std::vector<Iteration>& iterations);

// One more, with events between the pieces.
void trace_iteration(const Scenario& scenario, Trace* trace);

}  // namespace memra::bench::tp2
