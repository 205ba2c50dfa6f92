#include "replay.h"

namespace memra::bench {

Stopwatch::Stopwatch(const Session& session)
    : session_(session), begin_(session.event()), end_(session.event()) {}

void Stopwatch::start() const {
  check(memra_event_record(begin_.get(), session_.stream()), "memra_event_record");
}

double Stopwatch::stop() const {
  check(memra_event_record(end_.get(), session_.stream()), "memra_event_record");
  check(memra_event_synchronize(end_.get()), "memra_event_synchronize");
  float milliseconds = 0;
  check(memra_event_elapsed(begin_.get(), end_.get(), &milliseconds), "memra_event_elapsed");
  return 1e3 * static_cast<double>(milliseconds);
}

void Replay::enqueue(const Session& session) const {
  check(memra_graph_launch(graph.get(), session.stream()), "memra_graph_launch");
}

std::vector<Summary> time_in_turn(const Session& session, const std::vector<const Replay*>& replays,
                                  const Sampling& sampling) {
  const Stopwatch stopwatch(session);
  std::vector<int64_t> rounds;
  for (const Replay* replay : replays) {
    replay->enqueue(session);
    const double us = stopwatch.time_us([&] { replay->enqueue(session); });
    rounds.push_back(std::max<int64_t>(1, std::llround(sampling.min_us / std::max(us, 1.0))));
  }
  std::vector<std::vector<double>> samples(replays.size());
  for (int i = 0; i < sampling.iters; ++i) {
    for (size_t r = 0; r < replays.size(); ++r) {
      const double us = stopwatch.time_us([&] {
        for (int64_t round = 0; round < rounds[r]; ++round)
          replays[r]->enqueue(session);
      });
      samples[r].push_back(us / static_cast<double>(rounds[r] * replays[r]->launches));
    }
  }
  std::vector<Summary> summaries;
  summaries.reserve(samples.size());
  for (std::vector<double>& us : samples)
    summaries.push_back(summarize(std::move(us)));
  return summaries;
}

}  // namespace memra::bench
