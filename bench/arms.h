// What the probe runs, as data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memra.h"

namespace memra::bench {

enum class Stage { kGateUp, kDown };

enum class Kind {
  kServed,           // the stage itself, in the variant that everything is compared with
  kVariant,          // the stage itself, in another variant
  kLoadOnly,         // same addresses, arithmetic deleted
  kMathOnly,         // loads deleted
  kStream,           // the same bytes read in the best way known
  kStreamDependent,  // the same, each launch prefetching before the one before has ended
};

struct Arm {
  std::string_view name;
  Stage stage;
  Kind kind;
  memra_format format;
  uint32_t variant;
  bool is_baseline;  // ratios and identity of the stage refer to it; always runs

  bool has_output() const { return kind == Kind::kServed || kind == Kind::kVariant; }
  bool is_stream() const { return kind == Kind::kStream || kind == Kind::kStreamDependent; }
};

std::span<const Arm> all_arms();

// The baselines, and the arms whose name contains one of the comma-separated parts of `filter`
// (empty: all). Throws Failure where a part matches nothing.
std::vector<Arm> select_arms(const std::string& filter);

const char* stage_name(Stage stage);

}  // namespace memra::bench
