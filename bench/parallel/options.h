// The command line and the environment of moe-parallel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/group.h"
#include "parallel/split.h"
#include "parse_result.h"
#include "shape.h"

namespace memra::bench::parallel {

extern const char* const kTool;  // the program's name, with NCCL or without

enum class TransportKind { kAuto, kNccl, kHost };

struct Options {
  int iters = 10;
  // Of the whole layer. Tokens of 0: 1 by rows, and 4096 (CPU: 43) grouped. Experts of 0: 288 (CPU:
  // 16).
  Shape shape = {
      .hidden_size = 4096, .intermediate_size = 1280, .n_experts = 0, .top_k = 8, .tokens = 0};
  std::vector<Scheme> schemes = {std::begin(kSchemes), std::end(kSchemes)};
  std::vector<memra_path> paths = {MEMRA_PATH_ROWS, MEMRA_PATH_GROUPED};
  memra_dtype dtype = MEMRA_F32;
  int micro_batches = 1;
  int layers = 0;  // back to back, in one sample; 0: 8 (CPU: 2)
  Place place;
  Meeting meeting;
  TransportKind transport = TransportKind::kAuto;
  memra_backend backend = MEMRA_BACKEND_AUTO;
  int device = -1;  // CUDA; below 0: the rank among those of its host
  int threads = 0;  // CPU; 0: an equal share
  std::string json_path;
};

ParseResult parse_options(int argc, char** argv, Options* options);

}  // namespace memra::bench::parallel
