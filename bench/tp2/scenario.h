// The work of one iteration as the options describe it, issued from one host thread.
#pragma once

#include <array>
#include <vector>

#include "tp2/rank.h"
#include "tp2/trace.h"

namespace memra::bench::tp2 {

// What of it is issued.
struct Part {
  std::array<bool, kRanks> ranks = {true, true};
  bool copies = true;  // between the ranks, as far as the options ask for them
};

inline constexpr Part kAll = {};
inline constexpr Part kNoCopies = {.copies = false};
inline constexpr Part alone(int rank) {
  return {.ranks = {rank == 0, rank == 1}, .copies = false};
}

class Scenario {
 public:
  Scenario(const Options& options, const Rank& first, const Rank& second);

  const Rank& rank(int index) const { return *ranks_[static_cast<size_t>(index)]; }
  const Options& options() const { return options_; }

  void issue(const Part& part, Trace* trace = nullptr) const;
  void synchronize() const;
  // From the first issue to the end of both ranks' work, on the host's clock.
  double time_us(const Part& part) const;

 private:
  // `to` waits for what is on the stream of `from` now, and copies rows from it.
  void copy(int from, int to, void* dst, const void* src, Trace* trace) const;
  void issue_layer(const Part& part, Trace* trace) const;

  const Options& options_;
  std::array<const Rank*, kRanks> ranks_;
  std::array<Event, kRanks> ready_;  // where a copy may begin
};

}  // namespace memra::bench::tp2
