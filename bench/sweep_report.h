// The findings of moe-rows-sweep, for people and as JSON.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "sweep.h"

namespace memra::bench {

struct SweepResults {
  std::FILE* out = stdout;  // stderr where stdout takes the JSON
  const SweepOptions* options = nullptr;
  const Session* session = nullptr;
  Sampling sampling;
  std::vector<SweepRow> rows;
  std::vector<std::string> notes;  // on what was left out
};

void print_sweep_setup(const SweepResults& results);
void print_sweep(const SweepResults& results);

// Whether AUTO keeps up with the fastest variant in all rows that timed them: a sentence.
std::string variants_verdict(const std::vector<SweepRow>& rows);

void write_sweep_json(const SweepResults& results);

}  // namespace memra::bench
