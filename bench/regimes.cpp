#include "regimes.h"

#include <chrono>
#include <thread>

namespace memra::bench {
namespace {

// Device time of one replay, warm.
double replay_us(const Session& session, const Stopwatch& stopwatch, const TimedReplay& timed) {
  if (timed.prepare) timed.prepare();
  timed.replay->enqueue(session);
  return stopwatch.time_us([&] { timed.replay->enqueue(session); });
}

}  // namespace

const char* regime_name(Regime regime) {
  return regime == Regime::kBurst ? "burst" : "sustained";
}

std::vector<Summary> time_in_regime(const Session& session, const std::vector<TimedReplay>& replays,
                                    Regime regime, const RegimeSettings& settings) {
  const Stopwatch stopwatch(session);
  std::vector<int64_t> warmups;
  for (const TimedReplay& timed : replays) {
    const double us = std::max(replay_us(session, stopwatch, timed), 1.0);
    const auto half_second = static_cast<int64_t>(std::ceil(1e3 * settings.warm_ms / us));
    warmups.push_back(regime == Regime::kBurst ? settings.burst_warmups : half_second);
  }
  std::vector<std::vector<double>> samples(replays.size());
  for (int round = 0; round < settings.rounds; ++round) {
    for (size_t i = 0; i < replays.size(); ++i) {
      const Replay& replay = *replays[i].replay;
      if (replays[i].prepare) replays[i].prepare();
      session.synchronize();
      if (regime == Regime::kBurst) {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(settings.pause_ms));
      }
      for (int64_t warmup = 0; warmup < warmups[i]; ++warmup)
        replay.enqueue(session);
      for (int sample = 0; sample < settings.samples; ++sample) {
        const double us = stopwatch.time_us([&] { replay.enqueue(session); });
        samples[i].push_back(us / static_cast<double>(replay.launches));
      }
    }
  }
  std::vector<Summary> summaries;
  summaries.reserve(samples.size());
  for (std::vector<double>& us : samples)
    summaries.push_back(summarize(std::move(us)));
  return summaries;
}

}  // namespace memra::bench
