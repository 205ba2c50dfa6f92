#include "valley.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "grouped_calls.h"

namespace memra::bench {
namespace {

constexpr double kMinSampleUs = 10e3;

// Calls of rising token counts, each in a graph, and where its time goes.
class Recording {
 public:
  Recording(const Session& session, const RegimeSettings& settings)
      : session_(session), settings_(settings) {}

  void add(const GroupedCalls& calls, memra_path path, std::function<void(const Summary&)> store) {
    replays_.push_back(
        record_for(session_, calls.count(), settings_.min_sample_us, [&](int64_t call) {
          calls.launch(call, {path, false});
        }));
    stores_.push_back(std::move(store));
  }

  void time() const {
    std::vector<const Replay*> in_turn;
    in_turn.reserve(replays_.size());
    for (const Replay& replay : replays_)
      in_turn.push_back(&replay);
    const Sampling sampling = {settings_.rounds * settings_.samples,
                               settings_.min_sample_us > 0 ? kMinSampleUs : 0};
    const std::vector<Summary> us = time_in_turn(session_, in_turn, sampling);
    for (size_t i = 0; i < us.size(); ++i)
      stores_[i](us[i]);
  }

 private:
  const Session& session_;
  const RegimeSettings& settings_;
  std::vector<Replay> replays_;
  std::vector<std::function<void(const Summary&)>> stores_;
};

}  // namespace

void find_falls(std::vector<ValleyPoint>* points) {
  double slowest = 0;
  for (ValleyPoint& point : *points) {
    point.fall = slowest > point.us.median ? 1 - point.us.median / slowest : 0;
    slowest = std::max(slowest, point.us.median);
  }
}

PathCrossing find_crossing(const std::vector<ValleyPoint>& points) {
  PathCrossing crossing;
  for (const ValleyPoint& point : points) {
    if (!point.rows_us || !point.grouped_us) continue;
    if (point.rows_us->median < point.grouped_us->median) {
      crossing = {point.tokens, 0};
    } else if (crossing.first_grouped == 0) {
      crossing.first_grouped = point.tokens;
    }
  }
  return crossing;
}

Valley measure_valley(const GroupedBanks& banks, const GroupedCase& grouped_case,
                      const RegimeSettings& settings, bool both_paths, Progress* progress) {
  Valley valley;
  valley.case_name = grouped_case.name;
  valley.shape = banks.shape();
  valley.skew = grouped_case.skew;
  valley.format = banks.format();
  valley.grouped_min_tokens = banks.properties().grouped_min_tokens;
  valley.points.resize(grouped_case.tokens.size());

  std::vector<std::unique_ptr<GroupedCalls>> calls;
  Recording recording(banks.session(), settings);
  for (ValleyPoint& point : valley.points) {
    point.tokens = grouped_case.tokens[calls.size()];
    point.grouped = point.tokens >= valley.grouped_min_tokens;
    progress->show(format("%s: recording %lld tokens", grouped_case.name.c_str(),
                          static_cast<long long>(point.tokens)));
    calls.push_back(std::make_unique<GroupedCalls>(banks, point.tokens, grouped_case.skew));
    recording.add(*calls.back(), MEMRA_PATH_AUTO, [&](const Summary& us) { point.us = us; });
    if (!both_paths) continue;
    recording.add(*calls.back(), MEMRA_PATH_GROUPED,
                  [&](const Summary& us) { point.grouped_us = us; });
    if (point.tokens > banks.properties().rows_max_tokens) continue;
    recording.add(*calls.back(), MEMRA_PATH_ROWS, [&](const Summary& us) { point.rows_us = us; });
  }
  progress->show(grouped_case.name + ": timing all token counts in turn");
  recording.time();
  find_falls(&valley.points);
  return valley;
}

}  // namespace memra::bench
