// The command line of moe-rows-sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models.h"
#include "parse_result.h"
#include "session.h"
#include "shape.h"

namespace memra::bench {

// What is left empty or at 0 takes a default that depends on the backend.
struct SweepOptions {
  std::vector<int64_t> tokens;
  Shape shape;
  bool experts_given = false;
  bool top_k_given = false;
  const ModelShape* model = nullptr;
  bool models = false;
  bool widths = false;
  bool variants = false;
  int iters = 0;
  EngineChoice engine;
  std::string json_path;
};

// A layer, and the calls of it that are measured.
struct SweepCase {
  std::string name;
  std::string model;  // "" if of none
  Shape shape;        // tokens: the most of a call
  Activation activation;
  std::vector<int64_t> tokens;
  bool stages = false;  // each stage alone as well
};

ParseResult parse_sweep_options(int argc, char** argv, SweepOptions* options);

// Smaller on the CPU: fewer experts and token counts, unless they were given.
std::vector<SweepCase> sweep_cases(const SweepOptions& options, bool on_cpu);

}  // namespace memra::bench
