// Device times of work that is recorded once and replayed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "session.h"
#include "stats.h"

namespace memra::bench {

// Between two events of the session's stream.
class Stopwatch {
 public:
  explicit Stopwatch(const Session& session);

  // Microseconds that the device takes for what `work` enqueues; waits for it.
  template <typename Work>
  double time_us(Work work) const {
    start();
    work();
    return stop();
  }

 private:
  void start() const;
  double stop() const;

  const Session& session_;
  Event begin_;
  Event end_;
};

// A graph of launches that belong together.
struct Replay {
  Graph graph;
  int64_t launches = 0;

  void enqueue(const Session& session) const;
};

// `rotation` is the number of launches after which they repeat: enqueue(i), i below it, enqueues
// one. The graph holds whole rotations, and `min_launches` at least.
template <typename Enqueue>
Replay record(const Session& session, int64_t rotation, int64_t min_launches, Enqueue enqueue) {
  const int64_t rounds = std::max<int64_t>(1, (min_launches + rotation - 1) / rotation);
  Graph graph = session.capture([&] {
    for (int64_t i = 0; i < rounds * rotation; ++i)
      enqueue(i % rotation);
  });
  return {std::move(graph), rounds * rotation};
}

struct Sampling {
  int iters = 0;
  double min_us = 0;  // device time of a sample, at the least
};

// A graph is not made longer than this: by then the gap between two replays is nothing.
inline constexpr int64_t kMaxGraphLaunches = 1024;

// As `record`, with launches for about min_us.
template <typename Enqueue>
Replay record_for(const Session& session, int64_t rotation, double min_us, const Enqueue& enqueue) {
  Replay once = record(session, rotation, 1, enqueue);
  once.enqueue(session);  // warms up
  const double us = Stopwatch(session).time_us([&] { once.enqueue(session); });
  const double rounds = std::ceil(min_us / std::max(us, 1.0));
  const int64_t most = std::max<int64_t>(1, kMaxGraphLaunches / rotation);
  const int64_t launches =
      rotation * (rounds < static_cast<double>(most) ? static_cast<int64_t>(rounds) : most);
  return launches <= rotation ? std::move(once) : record(session, rotation, launches, enqueue);
}

// Microseconds per launch of each, warm. Samples are taken in turn, so that what drifts meets all
// of them alike.
std::vector<Summary> time_in_turn(const Session& session, const std::vector<const Replay*>& replays,
                                  const Sampling& sampling);

}  // namespace memra::bench
