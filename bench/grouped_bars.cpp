#include "grouped_bars.h"

#include <algorithm>
#include <cmath>

namespace memra::bench {
namespace {

using Rows = std::vector<GroupedRow>;
using Arms = std::vector<std::string_view>;
using Figure = std::optional<double>;

struct Place {
  const char* case_name;
  int64_t tokens;
  memra_format format;
};
constexpr Place kLong = {"reference", 4096, MEMRA_NVFP4_V2};
constexpr Place kLongV1 = {"reference", 4096, MEMRA_NVFP4};
constexpr Place kMiddle = {"reference", 576, MEMRA_NVFP4_V2};
constexpr Place kShort = {"reference", 64, MEMRA_NVFP4_V2};
constexpr Place kUniform128 = {"uniform-128", 8192, MEMRA_NVFP4_V2};
constexpr Place kUniform256 = {"uniform-256", 4096, MEMRA_NVFP4_V2};

// Times of some arms of one row, added up.
struct Times {
  Place place;
  Arms arms;
};

const GroupedRow* find_row(const Rows& rows, const Place& place) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const GroupedRow& candidate) {
    return candidate.case_name == place.case_name && candidate.shape.tokens == place.tokens &&
           candidate.format == place.format;
  });
  return row == rows.end() ? nullptr : &*row;
}

Figure microseconds(const Rows& rows, const Times& times, Regime regime) {
  const GroupedRow* const row = find_row(rows, times.place);
  const double us = row == nullptr ? 0 : row->sum_us(regime, times.arms);
  return us > 0 ? Figure(us) : Figure();
}

// How a bar's figure comes from times.
enum class Kind { kQuotient, kTeraflops, kMilliseconds };

const char* unit_of(Kind kind) {
  return kind == Kind::kQuotient ? "" : kind == Kind::kTeraflops ? "TFLOP/s" : "ms";
}

struct Rule {
  const char* name;
  std::vector<Regime> regimes;
  Kind kind;
  Times times;  // of one arm for TFLOP/s
  Times under;  // of a quotient
  bool at_least;
  double bar, aim;
};

Figure measured(const Rows& rows, const Rule& rule, Regime regime) {
  const Figure us = microseconds(rows, rule.times, regime);
  if (!us) return {};
  if (rule.kind == Kind::kMilliseconds) return *us / 1e3;
  if (rule.kind == Kind::kTeraflops) {
    const GroupedRow* const row = find_row(rows, rule.times.place);
    return row->find(rule.times.arms.front())->flops / *us / 1e6;
  }
  const Figure under_us = microseconds(rows, rule.under, regime);
  return under_us ? Figure(*us / *under_us) : Figure();
}

std::vector<Rule> speed_rules() {
  const Times products = {kLong, {"gate_up", "down"}};
  const Times layer = {kLong, {"layer"}};
  const std::vector<Regime> burst = {Regime::kBurst};
  const std::vector<Regime> sustained = {Regime::kSustained};
  const std::vector<Regime> both = {Regime::kBurst, Regime::kSustained};
  const auto at = [](const Place& place, const Arms& arms) { return Times{place, arms}; };
  const Arms dense = {"dense.gate_up", "dense.down"};
  constexpr Kind kQuotient = Kind::kQuotient;
  constexpr Kind kMilliseconds = Kind::kMilliseconds;
  return {
      {"gate and up: dense / memra", sustained, kQuotient, at(kLong, {"dense.gate_up"}),
       at(kLong, {"gate_up"}), true, 0.86, 0.95},
      {"down: dense / memra", sustained, kQuotient, at(kLong, {"dense.down"}), at(kLong, {"down"}),
       true, 0.80, 0.90},
      {"gate and up", burst, Kind::kTeraflops, at(kLong, {"gate_up"}), {}, true, 600, 680},
      {"down", burst, Kind::kTeraflops, at(kLong, {"down"}), {}, true, 520, 600},
      {"three products as planes, f32 out",
       burst,
       kMilliseconds,
       at(kLong, {"planes"}),
       {},
       false,
       1.05,
       0.95},
      {"products in the layer",
       burst,
       kMilliseconds,
       at(kMiddle, products.arms),
       {},
       false,
       0.37,
       0.33},
      {"products in the layer",
       burst,
       kMilliseconds,
       at(kShort, products.arms),
       {},
       false,
       0.29,
       0.265},
      {"layer / its products", both, kQuotient, layer, products, false, 1.30, 1.15},
      {"layer with tables of the call / layer", both, kQuotient, at(kLong, {"layer_tables"}), layer,
       false, 1.03, 1.0},
      {"products, V1 / V2", both, kQuotient, at(kLongV1, products.arms), products, false, 1.3, 1.1},
      {"layer, V1 / V2", both, kQuotient, at(kLongV1, layer.arms), layer, false, 1.3, 1.1},
      {"products: dense / memra", sustained, kQuotient, at(kUniform128, dense),
       at(kUniform128, products.arms), true, 0.85, 0.95},
      {"products: dense / memra", sustained, kQuotient, at(kUniform256, dense),
       at(kUniform256, products.arms), true, 0.82, 0.95}};
}

Bar limit_bar(const char* name, double limit, const Figure& measured) {
  return {name, "", "", false, limit, limit, measured};
}

// The largest over everything that was measured.
void add_accuracy(const Rows& rows, std::vector<Bar>* bars) {
  Figure product, layer;
  for (const GroupedRow& row : rows) {
    if (!row.accuracy) continue;
    for (const Accuracy& plane : row.accuracy->planes)
      product = std::max(product.value_or(0), plane.relative_l2);
    layer = std::max(layer.value_or(0), row.accuracy->layer.relative_l2);
  }
  bars->push_back(
      limit_bar("relative L2, worst product of all", GroupedAccuracy::kPlaneLimit, product));
  bars->push_back(
      limit_bar("relative L2, worst layer of all", GroupedAccuracy::kLayerLimit, layer));
}

void add_valley(const std::vector<Valley>& valleys, std::vector<Bar>* bars) {
  Figure fall;
  for (const Valley& valley : valleys) {
    for (const ValleyPoint& point : valley.points)
      fall = std::max(fall.value_or(0), 100 * point.fall);
  }
  Bar bar = limit_bar("time of memra_moe falls where tokens rise", 100 * Valley::kTolerance, fall);
  bar.unit = "%";
  bars->push_back(bar);
}

std::string with_unit(double value, const std::string& unit) {
  return format("%.4g", value) + (unit.empty() ? "" : " " + unit);
}

}  // namespace

double Bar::excess(double limit) const {
  const double value = measured.value_or(std::nan(""));
  return (at_least ? value - limit : limit - value) / limit;
}

std::string Bar::verdict() const {
  if (!measured) return "not measured";
  const auto text = [](double excess) {
    return format(excess < 0 ? "missed by %.1f %%" : "met by %.1f %%", 100 * std::abs(excess));
  };
  if (is_missed()) return "BAR " + text(excess(bar));
  if (aim == bar) return text(excess(bar));
  return text(excess(bar)) + ", aim " + text(excess(aim));
}

std::vector<Bar> judge_bars(const std::vector<GroupedRow>& rows,
                            const std::vector<Valley>& valleys) {
  std::vector<Bar> bars;
  for (const Rule& rule : speed_rules()) {
    const std::string name = format("%s (%s, %lld tokens)", rule.name, rule.times.place.case_name,
                                    static_cast<long long>(rule.times.place.tokens));
    for (const Regime regime : rule.regimes) {
      bars.push_back({name, regime_name(regime), unit_of(rule.kind), rule.at_least, rule.bar,
                      rule.aim, measured(rows, rule, regime)});
    }
  }
  add_accuracy(rows, &bars);
  add_valley(valleys, &bars);
  return bars;
}

void print_bars(std::FILE* out, const std::vector<Bar>& bars) {
  Table table({"bars of an H200", "regime", "measured", "bar", "aim", "verdict"});
  table.text_last();
  for (const Bar& bar : bars) {
    const char* const side = bar.at_least ? ">= " : "<= ";
    table.add({bar.name, bar.regime, bar.measured ? with_unit(*bar.measured, bar.unit) : "-",
               side + with_unit(bar.bar, bar.unit), side + with_unit(bar.aim, bar.unit),
               bar.verdict()});
  }
  std::fprintf(out, "\n");
  table.print(out);
  const auto count = [&](auto is) {
    return static_cast<long long>(std::count_if(bars.begin(), bars.end(), is));
  };
  const long long met = count([](const Bar& bar) { return bar.is_met(); });
  const long long missed = count([](const Bar& bar) { return bar.is_missed(); });
  std::fprintf(out, "bars: %lld met, %lld missed, %lld not measured\n", met, missed,
               static_cast<long long>(bars.size()) - met - missed);
}

}  // namespace memra::bench
