// Times in the two states that a power-limited card can be in.
#pragma once

#include <functional>
#include <vector>

#include "replay.h"

namespace memra::bench {

enum class Regime {
  kBurst,     // after a pause, a few replays
  kSustained  // after half a second of replays
};
inline constexpr Regime kRegimes[] = {Regime::kBurst, Regime::kSustained};

const char* regime_name(Regime regime);

struct RegimeSettings {
  int rounds = 3;         // over all replays, in turn
  int samples = 5;        // of one replay, in each round
  int burst_warmups = 2;  // replays between pause and first sample
  double pause_ms = 300;  // burst: before each replay's turn
  double warm_ms = 500;   // sustained: of replays, before each replay's turn
  double min_sample_us = 4e3;
};

struct TimedReplay {
  const Replay* replay = nullptr;
  std::function<void()> prepare;  // enqueues what a first replay needs; may be empty
};

// Microseconds per launch of each.
std::vector<Summary> time_in_regime(const Session& session, const std::vector<TimedReplay>& replays,
                                    Regime regime, const RegimeSettings& settings);

}  // namespace memra::bench
