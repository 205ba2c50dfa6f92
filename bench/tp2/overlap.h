// Do the ranks overlap? From times of each rank alone and of both, not from spans: a rank that
// waits has the wait inside its span.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "stats.h"
#include "tp2/scenario.h"

namespace memra::bench::tp2 {

inline constexpr double kOverlapped = 0.9;
inline constexpr double kSerialized = 0.1;

// (a + b - both) / min(a, b): 1 where the shorter rank is hidden, 0 where one follows the other.
double overlap_of(double a, double b, double both);

// Both ranks together, in microseconds, and what that says.
struct Together {
  Summary both_us;
  Summary overlap;
  Summary over_slower;  // both / the slower rank alone
  // Overlap of the shortest time of each: what else the machine did meanwhile is not in it.
  double shortest_overlap = 0;
};

struct OverlapResult {
  std::array<Summary, kRanks> alone_us;
  Together without_copies;
  std::optional<Together> with_copies;
  Summary issue_us;  // of both ranks, without copies

  const Together& judged() const { return with_copies ? *with_copies : without_copies; }
};

// The parts in turn, so that what drifts meets all of them alike.
OverlapResult measure_overlap(const Scenario& scenario);

// "OVERLAPPED", "SERIALIZED" or "PARTIAL", by the median.
std::string classify(const Together& together);

// The verdict in a line; "SHARED DEVICE, informational" where both ranks are on one GPU.
std::string verdict(const OverlapResult& result, bool shared_device);

// What holds the ranks back, as far as the times tell; "" where nothing does.
std::string reading(const OverlapResult& result, const Options& options);

}  // namespace memra::bench::tp2
