// The command line of moe-rows-ceiling.
#pragma once

#include <cstdint>
#include <string>

#include "parse_result.h"
#include "session.h"
#include "shape.h"

namespace memra::bench {

// A count left at 0 takes a default that depends on the backend (see resolve_defaults).
struct Options {
  int iters = 0;
  int reps = 0;
  int copies = 0;
  Shape shape;
  Activation activation;
  std::string model;
  EngineChoice engine;
  bool inputs_stable = false;
  bool top_k_given = false;       // on the command line: wins over a file's or model's
  bool activation_given = false;  // likewise, kind or limit
  std::string arms;               // comma-separated parts of arm names; empty: all
  std::string gguf_path;
  uint32_t gguf_layer = 0;
  std::string json_path;
};

ParseResult parse_options(int argc, char** argv, Options* options);

}  // namespace memra::bench
