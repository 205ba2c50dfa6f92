#include "grouped_measure.h"

#include <algorithm>
#include <functional>
#include <map>

#include "routing.h"

namespace memra::bench {
namespace {

// What is compared stands side by side.
constexpr std::string_view kNames[] = {"gate_up", "dense.gate_up", "down",  "dense.down",
                                       "planes",  "planes_gather", "layer", "layer_tables",
                                       "route",   "gather",        "sum"};

struct Arm {
  GroupedTiming timing;
  int64_t rotation = 0;
  std::function<void()> prepare;
  std::function<void(int64_t)> enqueue;
};

class Arms {
 public:
  Arms(const GroupedCalls& calls, const GroupedPlanes& planes, const DenseBlas* blas)
      : calls_(calls), planes_(planes) {
    const double gate_up = calls.flops() * 2 / 3;
    const double down = calls.flops() / 3;
    const double bytes = calls.bytes();
    add_stage("route", MEMRA_GROUPED_ROUTE, 0, 0);
    add_stage("gather", MEMRA_GROUPED_GATHER, 0, 0);
    add_stage("gate_up", MEMRA_GROUPED_GATE_UP, gate_up, bytes * 2 / 3);
    add_stage("down", MEMRA_GROUPED_DOWN, down, bytes / 3);
    add_stage("sum", MEMRA_GROUPED_SUM, 0, 0);
    add({{"layer", calls.flops(), bytes, {}}, calls.count(), {}, [&calls](int64_t call) {
           calls.launch(call, {});
         }});
    add({{"layer_tables", calls.flops(), bytes, {}}, calls.count(), {}, [&calls](int64_t call) {
           calls.launch(call, {MEMRA_PATH_GROUPED, true});
         }});
    const int64_t banks = calls.banks().count();
    add({{"planes", calls.flops(), bytes, {}}, banks, {}, [&planes](int64_t bank) {
           for (const Plane plane : {kGate, kUp, kDown})
             planes.launch_product(bank, plane);
         }});
    add({{"planes_gather", 0, 0, {}}, banks, {}, [&planes](int64_t) { planes.launch_gathers(); }});
    if (blas == nullptr) return;
    add_dense("dense.gate_up", *blas, false);
    add_dense("dense.down", *blas, true);
  }

  // Those that a part names, in the order of kNames.
  std::vector<Arm> select(const std::vector<std::string>& parts) const {
    std::vector<Arm> selected;
    for (const std::string_view name : kNames) {
      const auto found = arms_.find(name);
      const bool wanted = parts.empty() || std::any_of(parts.begin(), parts.end(), [&](auto& part) {
                            return name.find(part) != std::string_view::npos;
                          });
      if (wanted && found != arms_.end()) selected.push_back(found->second);
    }
    return selected;
  }

 private:
  void add(Arm arm) {
    const auto name =
        std::find(std::begin(kNames), std::end(kNames), std::string_view(arm.timing.name));
    arms_.emplace(*name, std::move(arm));
  }
  // Before it, what it reads is made by the stages before it.
  void add_stage(const char* name, uint32_t stage, double flops, double bytes) {
    const GroupedCalls& calls = calls_;
    std::function<void()> prepare;
    if (stage > MEMRA_GROUPED_ROUTE)
      prepare = [&calls, stage] { calls.launch_stages(0, stage - 1); };
    add({{name, flops, bytes, {}}, calls.banks().count(), prepare, [&calls, stage](int64_t call) {
           calls.launch_stages(call, stage);
         }});
  }
  void add_dense(const char* name, const DenseBlas& blas, bool is_down) {
    const auto product = std::make_shared<DenseProduct>(blas, calls_, is_down);
    add({{name, product->flops(), 0, {}}, product->count(), {}, [product](int64_t call) {
           product->launch(call);
         }});
  }

  const GroupedCalls& calls_;
  const GroupedPlanes& planes_;
  std::map<std::string_view, Arm> arms_;
};

void count_pairs(const std::vector<int32_t>& ids, GroupedRow* row) {
  std::map<int32_t, int64_t> by_expert;
  for (const int32_t id : ids)
    ++by_expert[id];
  std::vector<int64_t> counts;
  counts.reserve(by_expert.size());
  for (const auto& [expert, count] : by_expert)
    counts.push_back(count);
  std::sort(counts.begin(), counts.end());
  row->active = static_cast<int64_t>(counts.size());
  row->pairs_min = counts.front();
  row->pairs_median = counts[counts.size() / 2];
  row->pairs_max = counts.back();
}

void time_arms(const Session& session, std::vector<Arm> arms, const GroupedOptions& options,
               const std::string& title, Progress* progress, GroupedRow* row) {
  const RegimeSettings settings = regime_settings(options, session.on_cpu());
  std::vector<Replay> replays;
  for (const Arm& arm : arms) {
    progress->show(title + ": recording " + arm.timing.name);
    if (arm.prepare) arm.prepare();
    replays.push_back(record_for(session, arm.rotation, settings.min_sample_us, arm.enqueue));
  }
  std::vector<TimedReplay> timed;
  timed.reserve(arms.size());
  for (size_t i = 0; i < arms.size(); ++i)
    timed.push_back({&replays[i], arms[i].prepare});
  for (const Regime regime : options.regimes) {
    progress->show(title + ": timing, " + regime_name(regime));
    const std::vector<Summary> us = time_in_regime(session, timed, regime, settings);
    for (size_t i = 0; i < arms.size(); ++i)
      arms[i].timing.us[static_cast<int>(regime)] = us[i];
  }
  session.synchronize();
  for (Arm& arm : arms)
    row->timings.push_back(std::move(arm.timing));
}

}  // namespace

std::span<const std::string_view> grouped_arm_names() {
  return kNames;
}

const GroupedTiming* GroupedRow::find(std::string_view name) const {
  const auto found = std::find_if(timings.begin(), timings.end(),
                                  [&](const auto& timing) { return timing.name == name; });
  return found == timings.end() ? nullptr : &*found;
}

double GroupedRow::sum_us(Regime regime, const std::vector<std::string_view>& names) const {
  double sum = 0;
  for (const std::string_view name : names) {
    const GroupedTiming* timing = find(name);
    if (timing == nullptr || timing->of(regime).median <= 0) return 0;
    sum += timing->of(regime).median;
  }
  return sum;
}

GroupedRow measure_grouped(const GroupedBanks& banks, const GroupedCase& grouped_case,
                           int64_t tokens, const DenseBlas* blas, const GroupedOptions& options,
                           Progress* progress) {
  const std::string title = format("%s, %s, %lld tokens", grouped_case.name.c_str(),
                                   format_name(banks.format()), static_cast<long long>(tokens));
  progress->show(title + ": inputs");
  const GroupedCalls calls(banks, tokens, grouped_case.skew);
  const GroupedPlanes planes(calls);
  GroupedRow row;
  row.case_name = grouped_case.name;
  row.shape = calls.shape();
  row.skew = grouped_case.skew;
  row.format = banks.format();
  row.gate_up_kernel = banks.properties().grouped_gate_up_kernel;
  row.down_kernel = banks.properties().grouped_down_kernel;
  count_pairs(calls.ids(), &row);
  if (!options.skip_accuracy) {
    progress->show(title + ": accuracy");
    row.accuracy = measure_accuracy(calls, planes);
  }
  const Arms arms(calls, planes, blas);
  time_arms(banks.session(), arms.select(options.arms), options, title, progress, &row);
  return row;
}

std::vector<GroupedRatio> grouped_ratios(const GroupedRow& row) {
  using Names = std::vector<std::string_view>;
  struct Quotient {
    const char* name;
    Names over, under;
  };
  const Names products = {"gate_up", "down"};
  const Names dense = {"dense.gate_up", "dense.down"};
  const Quotient quotients[] = {{"gate_up: dense / memra", {"dense.gate_up"}, {"gate_up"}},
                                {"down: dense / memra", {"dense.down"}, {"down"}},
                                {"three products: dense / memra", dense, products},
                                {"three products as planes: dense / memra", dense, {"planes"}},
                                {"layer / its products", {"layer"}, products},
                                {"layer with tables / layer", {"layer_tables"}, {"layer"}}};
  std::vector<GroupedRatio> ratios;
  for (const Quotient& quotient : quotients) {
    GroupedRatio ratio{quotient.name, {}};
    bool any = false;
    for (const Regime regime : kRegimes) {
      const double over = row.sum_us(regime, quotient.over);
      const double under = row.sum_us(regime, quotient.under);
      if (over <= 0 || under <= 0) continue;
      ratio.value[static_cast<int>(regime)] = over / under;
      any = true;
    }
    if (any) ratios.push_back(ratio);
  }
  return ratios;
}

}  // namespace memra::bench
