#include "tp2/scenario.h"

#include <algorithm>
#include <chrono>

namespace memra::bench::tp2 {
namespace {

void begin(Trace* trace, int lane, const char* name) {
  if (trace != nullptr) trace->begin(lane, name);
}

}  // namespace

Scenario::Scenario(const Options& options, const Rank& first, const Rank& second)
    : options_(options), ranks_{&first, &second} {
  for (int r = 0; r < kRanks; ++r)
    ready_[static_cast<size_t>(r)] = rank(r).session().event();
}

void Scenario::copy(int from, int to, void* dst, const void* src, Trace* trace) const {
  const Session& source = rank(from).session();
  const Session& target = rank(to).session();
  const Event& ready = ready_[static_cast<size_t>(from)];
  begin(trace, to, "wait for the other rank");
  check(memra_event_record(ready.get(), source.stream()), "memra_event_record");
  check(memra_event_wait(target.engine(), ready.get(), target.stream()), "memra_event_wait");
  begin(trace, to, "copy");
  check(memra_memcpy_engines(target.engine(), dst, source.engine(), src, rank(to).inbox().bytes(),
                             target.stream()),
        "memra_memcpy_engines");
}

void Scenario::issue_layer(const Part& part, Trace* trace) const {
  const bool peer_copy = part.copies && options_.peer_copy != 0;
  std::array<Inputs, kRanks> inputs;
  for (size_t r = 0; r < kRanks; ++r) {
    if (!part.ranks[r]) continue;
    if (options_.fresh_alloc != 0) begin(trace, kHostLane, "allocate");
    inputs[r] = options_.fresh_alloc != 0 ? ranks_[r]->allocate() : ranks_[r]->resident();
  }
  const auto copy_x = [&] { copy(0, 1, inputs[1].x, rank(0).resident().x, trace); };
  if (peer_copy && options_.copy_first != 0) copy_x();
  for (size_t r = 0; r < kRanks; ++r) {
    if (!part.ranks[r]) continue;
    begin(trace, kHostLane, r == 0 ? "issue rank 0" : "issue rank 1");
    if (r > 0 && peer_copy && options_.copy_first == 0) copy_x();
    ranks_[r]->chain(inputs[r], trace);
    if (options_.fresh_alloc != 0) ranks_[r]->release(inputs[r]);
  }
  if (part.copies && options_.layers > 0)
    copy(1, 0, rank(0).inbox().as(), rank(1).outbox().as(), trace);
}

void Scenario::issue(const Part& part, Trace* trace) const {
  if (part.ranks[0]) {
    if (options_.root_busy > 0) {
      begin(trace, kHostLane, "issue rank 0");
      begin(trace, 0, "root busy");
    }
    for (int i = 0; i < options_.root_busy; ++i) {
      rank(0).gather(rank(0).resident());
      rank(0).multiply(kGate);
    }
  }
  for (int layer = 0; layer < std::max(1, options_.layers); ++layer)
    issue_layer(part, trace);
}

void Scenario::synchronize() const {
  for (const Rank* rank : ranks_)
    rank->session().synchronize();
}

double Scenario::time_us(const Part& part) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  issue(part);
  synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace memra::bench::tp2
