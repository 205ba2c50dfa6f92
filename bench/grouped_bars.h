// What the grouped path should reach on an NVIDIA H200, and where a run stands.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "grouped_measure.h"
#include "valley.h"

namespace memra::bench {

struct Bar {
  std::string name;
  std::string regime;    // "" where there is none
  std::string unit;      // "" of a quotient
  bool at_least = true;  // else at most
  double bar = 0;
  double aim = 0;
  std::optional<double> measured;

  bool is_met() const { return excess(bar) >= 0; }
  bool is_missed() const { return measured && !is_met(); }
  // "met by 1.2 %, aim missed by 8.0 %", in parts of the bar and of the aim
  std::string verdict() const;

 private:
  // On the good side of the limit by this part of it; negative on the other; NaN: not measured.
  double excess(double limit) const;
};

// Every bar, with what rows and valleys say of it.
std::vector<Bar> judge_bars(const std::vector<GroupedRow>& rows,
                            const std::vector<Valley>& valleys);

void print_bars(std::FILE* out, const std::vector<Bar>& bars);

}  // namespace memra::bench
