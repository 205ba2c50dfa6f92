// The probe's findings, for people and as JSON.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "dataset.h"
#include "identity.h"
#include "options.h"
#include "session.h"
#include "timing.h"

namespace memra::bench {

// Which of the two ways of timing a figure comes from.
enum class Mode { kStream, kGraph };

// All of a run, as far as it got.
struct Results {
  std::FILE* out = stdout;  // stderr where stdout takes the JSON
  const Options* options = nullptr;
  const Session* session = nullptr;
  const DataSet* data = nullptr;
  std::string weights;
  Identity identity;
  std::vector<ArmTiming> timings;
  int status = 0;
};

void print_setup(const Results& results);
void print_identity(const Results& results);
void print_timings(const Results& results);

// To results.options->json_path. Throws Failure where the file cannot be written.
void write_json(const Results& results);

}  // namespace memra::bench
