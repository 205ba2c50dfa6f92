#include "tp2/overlap.h"

#include <algorithm>
#include <chrono>

#include "console.h"

namespace memra::bench::tp2 {
namespace {

// Above this share of the time of both ranks, the host is not ahead of the devices.
constexpr double kHostBound = 0.8;

// One round: the ranks alone, then together.
struct Round {
  std::array<double, kRanks> alone = {};
  double without = 0;
  double with = 0;
  double issue = 0;
};

double issue_us(const Scenario& scenario) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  scenario.issue(kNoCopies);
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  scenario.synchronize();
  return us;
}

Round run_round(const Scenario& scenario) {
  Round round;
  for (int r = 0; r < kRanks; ++r)
    round.alone[static_cast<size_t>(r)] = scenario.time_us(alone(r));
  round.without = scenario.time_us(kNoCopies);
  if (scenario.options().has_copies()) round.with = scenario.time_us(kAll);
  round.issue = issue_us(scenario);
  return round;
}

template <typename Value>
Summary over(const std::vector<Round>& rounds, Value value) {
  std::vector<double> values;
  values.reserve(rounds.size());
  for (const Round& round : rounds)
    values.push_back(value(round));
  return summarize(std::move(values));
}

Together together(const std::vector<Round>& rounds, double Round::*both) {
  Together result;
  result.both_us = over(rounds, [&](const Round& r) { return r.*both; });
  result.overlap =
      over(rounds, [&](const Round& r) { return overlap_of(r.alone[0], r.alone[1], r.*both); });
  result.over_slower =
      over(rounds, [&](const Round& r) { return r.*both / std::max(r.alone[0], r.alone[1]); });
  const auto shortest = [&](auto value) { return over(rounds, value).min; };
  result.shortest_overlap =
      overlap_of(shortest([](const Round& r) { return r.alone[0]; }),
                 shortest([](const Round& r) { return r.alone[1]; }), result.both_us.min);
  return result;
}

}  // namespace

double overlap_of(double a, double b, double both) {
  return (a + b - both) / std::min(a, b);
}

OverlapResult measure_overlap(const Scenario& scenario) {
  run_round(scenario);  // warms up
  std::vector<Round> rounds;
  rounds.reserve(static_cast<size_t>(scenario.options().iters));
  for (int i = 0; i < scenario.options().iters; ++i)
    rounds.push_back(run_round(scenario));
  OverlapResult result;
  for (size_t r = 0; r < kRanks; ++r)
    result.alone_us[r] = over(rounds, [&](const Round& round) { return round.alone[r]; });
  result.without_copies = together(rounds, &Round::without);
  if (scenario.options().has_copies()) result.with_copies = together(rounds, &Round::with);
  result.issue_us = over(rounds, [](const Round& round) { return round.issue; });
  return result;
}

std::string classify(const Together& together) {
  if (together.overlap.median >= kOverlapped) return "OVERLAPPED";
  return together.overlap.median <= kSerialized ? "SERIALIZED" : "PARTIAL";
}

std::string verdict(const OverlapResult& result, bool shared_device) {
  const Summary& overlap = result.judged().overlap;
  std::string text = shared_device ? "SHARED DEVICE, informational" : classify(result.judged());
  text += format(", overlap %.2f (%.2f to %.2f)", overlap.median, overlap.min, overlap.max);
  if (result.with_copies) {
    const Summary& baseline = result.without_copies.overlap;
    text +=
        format("; without copies %.2f (%.2f to %.2f)", baseline.median, baseline.min, baseline.max);
  }
  return text;
}

std::string reading(const OverlapResult& result, const Options& options) {
  if (result.judged().overlap.median >= kOverlapped) return "";
  if (result.issue_us.median >= kHostBound * result.without_copies.both_us.median)
    return "the host: issuing the work takes about as long as the work itself";
  const bool baseline_overlaps = result.without_copies.overlap.median >= kOverlapped;
  if (!result.with_copies || !baseline_overlaps)
    return "not the copies: the ranks do not fully overlap without them either";
  if (options.peer_copy != 0 && options.copy_first == 0) {
    return "the caller's order: rank 1 waits for an event that is recorded behind rank 0's chain; "
           "issue the copies first";
  }
  return "the copies and their waits: without them the ranks overlap";
}

}  // namespace memra::bench::tp2
