// Where the time of one iteration goes, on both ranks and the host, on the host's clock.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "session.h"
#include "tp2/ranks.h"

namespace memra::bench::tp2 {

struct Slice {
  int lane = 0;  // a rank, or kHostLane
  std::string name;
  double begin_us = 0;  // since the trace's origin
  double end_us = 0;
};
inline constexpr int kHostLane = kRanks;

// Events of two devices cannot be compared. So each rank records an event on its idle stream, again
// and again, between two looks at the host's clock; the tightest pair ties the rank's events to
// that clock, and half of what lies between its looks is the error. The same at the end tells how
// far the clocks have drifted.
class Trace {
 public:
  explicit Trace(const Ranks& ranks);

  // Ends what the lane has been doing, and begins something else.
  void begin(int lane, const char* name);
  void end(int lane);
  // Once all streams are idle.
  void finish();

  const std::vector<Slice>& slices() const { return slices_; }
  // How far a rank's slices may be from where they are shown.
  double error_us() const { return error_us_; }
  // As a Chrome trace. Throws Failure where the file cannot be written.
  void write(const std::string& path, const std::string& devices) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Tie {
    Event event;
    double host_us = 0;
    double error_us = 0;
  };
  struct Mark {
    std::string name;  // "" where the lane rests
    Event event;       // of a rank
    double host_us = 0;
  };

  double now_us() const;
  Tie tie(int rank) const;
  // On the host's clock.
  double time_us(int rank, const Event& event) const;
  void add_mark(int lane, std::string name);

  const Ranks& ranks_;
  Clock::time_point origin_;
  std::array<Tie, kRanks> ties_;
  std::array<std::vector<Mark>, kRanks + 1> marks_;
  std::vector<Slice> slices_;
  double error_us_ = 0;
};

}  // namespace memra::bench::tp2
