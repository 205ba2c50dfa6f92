// What moe-rows-sweep measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arms.h"
#include "console.h"
#include "replay.h"
#include "sweep_options.h"

namespace memra::bench {

// All times are microseconds per launch or call, of a graph replay, unless they say otherwise.

// What the host needs to enqueue a call on an idle stream, and what it needs for a call that
// enqueues one kernel and does hardly anything else: what the driver takes for a launch.
struct HostTiming {
  Summary call;
  Summary launch;
};

// One stage alone, in the variant that AUTO runs, and the launch that reads its bytes.
struct StageTiming {
  Stage stage = Stage::kGateUp;
  uint32_t variant = 0;
  double bytes = 0;
  Summary stream;            // to be compared with `plain`
  Summary stream_dependent;  // to be compared with `stable`
  Summary plain;
  Summary stable;
};

struct VariantTiming {
  uint32_t variant = 0;
  Summary us;
};

// AUTO beside all explicit variants; then, because the best of many noisy figures flatters, beside
// the fastest one alone.
struct VariantSweep {
  std::vector<VariantTiming> all;
  uint32_t fastest = 0;
  Summary fastest_us;
  Summary auto_us;

  // Above 1 AUTO is slower than the fastest.
  double auto_ratio() const { return auto_us.median / fastest_us.median; }
};

struct SweepRow {
  std::string name;
  std::string model;
  Shape shape;
  Activation activation;
  int64_t calls = 0;  // with different ids, in rotation
  double unique_experts = 0;
  double gate_up_bytes = 0;
  double down_bytes = 0;
  double repeat_bytes = 0;  // read before a slab is read again
  std::optional<memra_rows_plan> plan;
  Summary roof;
  Summary layer;
  Summary stable;  // with MEMRA_FLAG_INPUTS_STABLE
  HostTiming host;
  std::vector<StageTiming> stages;
  std::optional<VariantSweep> variants;

  double bytes() const { return gate_up_bytes + down_bytes; }
  double ratio() const { return roof.median / layer.median; }
  double stable_ratio() const { return roof.median / stable.median; }
};

// One row for each token count of the case. Throws Failure where outputs are degenerate, or where
// the bits of a variant differ from AUTO's.
std::vector<SweepRow> run_case(const Session& session, const SweepCase& sweep_case,
                               const Sampling& sampling, bool variants, Progress* progress);

}  // namespace memra::bench
