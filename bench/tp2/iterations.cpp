#include "tp2/iterations.h"

#include <algorithm>
#include <chrono>

namespace memra::bench::tp2 {
namespace {

using Clock = std::chrono::steady_clock;

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Ends {
  Event head;
  Event tail;
};

double span_us(const Ends& ends) {
  for (const Event* event : {&ends.head, &ends.tail})
    check(memra_event_query(event->get()), "memra_event_query");
  float milliseconds = 0;
  check(memra_event_elapsed(ends.head.get(), ends.tail.get(), &milliseconds),
        "memra_event_elapsed");
  return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace

std::vector<Iteration> run_iterations(const Scenario& scenario) {
  std::array<Ends, kRanks> ends;
  for (int r = 0; r < kRanks; ++r) {
    const Session& session = scenario.rank(r).session();
    ends[static_cast<size_t>(r)] = {session.event(), session.event()};
  }
  const auto record = [&](Event Ends::*which) {
    for (int r = 0; r < kRanks; ++r) {
      check(memra_event_record((ends[static_cast<size_t>(r)].*which).get(),
                               scenario.rank(r).session().stream()),
            "memra_event_record");
    }
  };
  std::vector<Iteration> iterations;
  for (int i = 0; i < scenario.options().iters; ++i) {
    Iteration iteration;
    iteration.number = i;
    const Clock::time_point start = Clock::now();
    record(&Ends::head);
    scenario.issue(kAll);
    record(&Ends::tail);
    iteration.issue_us = since_us(start);
    scenario.synchronize();
    iteration.join_us = since_us(start);
    try {
      for (size_t r = 0; r < kRanks; ++r)
        iteration.span_us[r] = span_us(ends[r]);
    } catch (const Failure& failure) {
      iteration.fault = failure.what();
    }
    iterations.push_back(std::move(iteration));
  }
  return iterations;
}

const Iteration* best_warm(const std::vector<Iteration>& iterations) {
  const Iteration* best = nullptr;
  for (const Iteration& iteration : iterations) {
    if (!iteration.is_valid() || !iteration.is_warm()) continue;
    if (best == nullptr || iteration.join_us < best->join_us) best = &iteration;
  }
  return best;
}

void trace_iteration(const Scenario& scenario, Trace* trace) {
  scenario.issue(kAll, trace);
  for (int r = 0; r < kRanks; ++r)
    trace->end(r);
  trace->begin(kHostLane, "wait for both");
  scenario.synchronize();
  trace->end(kHostLane);
  trace->finish();
}

}  // namespace memra::bench::tp2
