// The command line of moe-rows-ceiling.
#pragma once

#include <cstdint>
#include <string>

#include "memra.h"

namespace memra::bench {

struct Shape {
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 2048;
  int64_t n_experts = 64;
  int64_t top_k = 8;
  int64_t tokens = 1;

  int64_t n_pairs() const { return tokens * top_k; }
};

struct Activation {
  memra_activation kind = MEMRA_SWIGLU_PRECLAMP;
  float limit = 7.0F;
  float alpha = 1.702F;
};

// A count left at 0 takes a default that depends on the backend (see resolve_defaults).
struct Options {
  int iters = 0;
  int reps = 0;
  int copies = 0;
  Shape shape;
  Activation activation;
  std::string model;
  memra_backend backend = MEMRA_BACKEND_AUTO;
  int device = 0;
  int threads = 0;
  bool inputs_stable = false;
  bool top_k_given = false;       // on the command line: wins over a file's or model's
  bool activation_given = false;  // likewise, kind or limit
  std::string arms;               // comma-separated parts of arm names; empty: all
  std::string gguf_path;
  uint32_t gguf_layer = 0;
  std::string json_path;
};

enum class ParseResult { kRun, kExit, kUsageError };

// On kExit (help, version, a list) and kUsageError everything has been printed.
ParseResult parse_options(int argc, char** argv, Options* options);

// "swiglu", "preclamp", "postclamp" or "oai".
const char* activation_name(memra_activation kind);

// Whether the clamp limit takes part in the function.
inline bool is_clamped(memra_activation kind) {
  return kind != MEMRA_SWIGLU;
}

}  // namespace memra::bench
