// The findings of moe-grouped-ceiling, for people and as JSON.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "grouped_measure.h"
#include "valley.h"

namespace memra::bench {

struct GroupedResults {
  std::FILE* out = stdout;  // stderr where stdout takes the JSON
  const GroupedOptions* options = nullptr;
  const Session* session = nullptr;
  RegimeSettings settings;
  std::string dense;  // "" where there is none
  std::vector<GroupedRow> rows;
  std::vector<Valley> valleys;
  std::vector<std::string> notes;  // on what was left out

  // Errors against f64 are within what memra.h promises.
  bool is_accurate() const;
};

void print_grouped_setup(const GroupedResults& results);
void print_grouped_row(std::FILE* out, const GroupedRow& row);
void print_valley(std::FILE* out, const Valley& valley);
// What compares rows, and the notes.
void print_grouped_summary(const GroupedResults& results);

// "time falls by more than 5 % at 17 (8.1 %), 33 (6.0 %) tokens", or that it does not.
std::string valley_verdict(const Valley& valley);

// "paths cross between 7 and 8 tokens; memra_moe changes at 8", or that they or it do not; "" where
// no count was timed by both paths.
std::string crossing_text(const Valley& valley);

void write_grouped_json(const GroupedResults& results);

}  // namespace memra::bench
