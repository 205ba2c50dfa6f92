// The findings, for people and as JSON. Of rank 0 alone.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "parallel/measure.h"
#include "parallel/options.h"

namespace memra::bench::parallel {

// Of a rank: a fixed size, so that ranks can tell each other.
struct RankDevice {
  memra_backend backend = MEMRA_BACKEND_AUTO;
  int device = 0;
  int threads = 0;
  char name[128] = {};
};

struct Case {
  Scheme scheme = Scheme::kTensor;
  memra_path path = MEMRA_PATH_AUTO;
  int64_t tokens = 0;
  int micro_batches = 1;
  std::vector<int64_t> n_pairs;  // of each rank
  Agreement agreement;
  SplitTimes times;
  Summary one_device_us;
};

struct Results {
  std::FILE* out = stdout;  // stderr where stdout takes the JSON
  const Options* options = nullptr;
  std::vector<RankDevice> ranks;
  std::string transport;
  std::vector<std::string> notes;
  std::vector<Case> cases;

  bool all_agree() const;
};

void print_setup(const Results& results);
void print_case(const Results& results, const Case& result);

// To options->json_path. Throws Failure where the file cannot be written.
void write_json(const Results& results);

}  // namespace memra::bench::parallel
