// The command line and the environment of moe-tp2-repro.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parse_result.h"
#include "session.h"
#include "shape.h"

namespace memra::bench::tp2 {

inline constexpr const char* kTool = "moe-tp2-repro";

struct Options {
  int iters = 20;
  // Tokens of 0: 4096 on GPUs, 43 on the CPU.
  Shape shape = {
      .hidden_size = 4096, .intermediate_size = 640, .n_experts = 288, .top_k = 8, .tokens = 0};
  memra_format format = MEMRA_NVFP4_V2;
  int random_bank = 1;
  int peer_copy = 0;
  int copy_first = 0;
  int64_t copy_rows = 0;  // 0: 32, or all where there are fewer tokens
  int root_busy = 0;
  int layers = 0;  // 0: one, and no copy after it
  int fresh_alloc = 0;
  int determinism = 0;
  int determinism_concurrent = 0;
  memra_backend backend = MEMRA_BACKEND_AUTO;
  std::vector<int> devices;  // of the two ranks; empty: 0 and 1 where there are two
  int threads = 0;           // of the CPU, both ranks together; 0: all
  std::string json_path;
  std::string trace_path;

  bool has_copies() const { return peer_copy != 0 || layers > 0; }
};

ParseResult parse_options(int argc, char** argv, Options* options);

}  // namespace memra::bench::tp2
