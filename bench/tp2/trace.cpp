#include "tp2/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "json_parts.h"

namespace memra::bench::tp2 {
namespace {

constexpr int kTies = 100;

double elapsed_us(const Event& start, const Event& end) {
  float milliseconds = 0;
  check(memra_event_elapsed(start.get(), end.get(), &milliseconds), "memra_event_elapsed");
  return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace

Trace::Trace(const Ranks& ranks) : ranks_(ranks), origin_(Clock::now()) {
  for (int rank = 0; rank < kRanks; ++rank)
    ties_[static_cast<size_t>(rank)] = tie(rank);
}

double Trace::now_us() const {
  return std::chrono::duration<double, std::micro>(Clock::now() - origin_).count();
}

Trace::Tie Trace::tie(int rank) const {
  const Session& session = ranks_[rank];
  session.synchronize();
  Tie best;
  best.error_us = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTies; ++i) {
    Event event = session.event();
    const double before = now_us();
    check(memra_event_record(event.get(), session.stream()), "memra_event_record");
    check(memra_event_synchronize(event.get()), "memra_event_synchronize");
    const double after = now_us();
    const double error = 0.5 * (after - before);
    if (error < best.error_us) best = {std::move(event), 0.5 * (before + after), error};
  }
  return best;
}

double Trace::time_us(int rank, const Event& event) const {
  const Tie& tie = ties_[static_cast<size_t>(rank)];
  return tie.host_us + elapsed_us(tie.event, event);
}

void Trace::add_mark(int lane, std::string name) {
  Mark mark;
  mark.name = std::move(name);
  mark.host_us = now_us();
  if (lane != kHostLane) {
    mark.event = ranks_[lane].event();
    check(memra_event_record(mark.event.get(), ranks_[lane].stream()), "memra_event_record");
  }
  marks_[static_cast<size_t>(lane)].push_back(std::move(mark));
}

void Trace::begin(int lane, const char* name) {
  add_mark(lane, name);
}

void Trace::end(int lane) {
  add_mark(lane, "");
}

void Trace::finish() {
  for (int lane = 0; lane <= kHostLane; ++lane) {
    const std::vector<Mark>& marks = marks_[static_cast<size_t>(lane)];
    const auto time = [&](const Mark& mark) {
      return lane == kHostLane ? mark.host_us : time_us(lane, mark.event);
    };
    for (size_t i = 0; i + 1 < marks.size(); ++i) {
      if (!marks[i].name.empty())
        slices_.push_back({lane, marks[i].name, time(marks[i]), time(marks[i + 1])});
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const Tie last = tie(rank);
    const double drift = std::abs(time_us(rank, last.event) - last.host_us);
    error_us_ =
        std::max({error_us_, ties_[static_cast<size_t>(rank)].error_us, drift + last.error_us});
  }
}

void Trace::write(const std::string& path, const std::string& devices) const {
  using nlohmann::json;
  json events = json::array();
  const char* const lanes[] = {"rank 0", "rank 1", "host: issues and waits"};
  for (int lane = 0; lane <= kHostLane; ++lane) {
    events.push_back({{"ph", "M"},
                      {"pid", 0},
                      {"tid", lane},
                      {"name", "thread_name"},
                      {"args", {{"name", lanes[lane]}}}});
  }
  for (const Slice& slice : slices_) {
    events.push_back({{"ph", "X"},
                      {"pid", 0},
                      {"tid", slice.lane},
                      {"name", slice.name},
                      {"ts", slice.begin_us},
                      {"dur", std::max(0.0, slice.end_us - slice.begin_us)}});
  }
  write_document({{"traceEvents", events},
                  {"displayTimeUnit", "ns"},
                  {"otherData",
                   {{"devices", devices},
                    {"time_base", "the host's steady clock, from the start of the trace"},
                    {"calibration_error_us", error_us_}}}},
                 path, "--trace");
}

}  // namespace memra::bench::tp2
