// The findings, for people and as JSON.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tp2/determinism.h"
#include "tp2/iterations.h"
#include "tp2/overlap.h"
#include "tp2/peer_copy.h"

namespace memra::bench::tp2 {

struct Results {
  std::FILE* out = stdout;  // stderr where stdout takes the JSON
  const Options* options = nullptr;
  const Ranks* ranks = nullptr;
  std::string devices;  // the first line
  int64_t n_active = 0;
  std::vector<Iteration> iterations;
  OverlapResult overlap;
  PeerCopy peer_copy;
  std::vector<DeterminismCase> determinism;
  std::optional<double> trace_error_us;
  int status = 0;
};

void print_setup(const Results& results);
void print_iterations(const Results& results);
void print_overlap(const Results& results);
void print_determinism(const Results& results);
void print_trace(const Results& results);

// To options->json_path. Throws Failure where the file cannot be written.
void write_json(const Results& results);

}  // namespace memra::bench::tp2
