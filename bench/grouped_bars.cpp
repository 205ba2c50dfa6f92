#include "grouped_bars.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace memra::bench {
namespace {

using Rows = std::vector<GroupedRow>;
using Arms = std::vector<std::string_view>;
using Figure = std::optional<double>;
using Measure = std::function<Figure(const Rows&, Regime)>;

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

Measure quotient(const Times& over, const Times& under) {
  return [=](const Rows& rows, Regime regime) -> Figure {
    const Figure numerator = microseconds(rows, over, regime);
    const Figure denominator = microseconds(rows, under, regime);
    if (!numerator || !denominator) return {};
    return *numerator / *denominator;
  };
}

Measure milliseconds(const Times& times) {
  return [=](const Rows& rows, Regime regime) -> Figure {
    const Figure us = microseconds(rows, times, regime);
    if (!us) return {};
    return *us / 1e3;
  };
}

Measure teraflops(const Place& place, std::string_view arm) {
  return [=](const Rows& rows, Regime regime) -> Figure {
    const Figure us = microseconds(rows, {place, {arm}}, regime);
    if (!us) return {};
    return find_row(rows, place)->find(arm)->flops / *us / 1e6;
  };
}

struct Rule {
  const char* name;
  Place place;
  std::vector<Regime> regimes;
  const char* unit;
  Measure measure;
  bool at_least;
  double bar, aim;
};

std::vector<Rule> speed_rules() {
  const Arms products = {"gate_up", "down"};
  const Arms dense = {"dense.gate_up", "dense.down"};
  const std::vector<Regime> burst = {Regime::kBurst};
  const std::vector<Regime> sustained = {Regime::kSustained};
  const std::vector<Regime> both = {Regime::kBurst, Regime::kSustained};
  const auto dense_quotient = [&](const Place& place) {
    return quotient({place, dense}, {place, products});
  };
  return {{"gate and up: dense / memra", kLong, sustained, "",
           quotient({kLong, {"dense.gate_up"}}, {kLong, {"gate_up"}}), true, 0.86, 0.95},
          {"down: dense / memra", kLong, sustained, "",
           quotient({kLong, {"dense.down"}}, {kLong, {"down"}}), true, 0.80, 0.90},
          {"gate and up", kLong, burst, "TFLOP/s", teraflops(kLong, "gate_up"), true, 600, 680},
          {"down", kLong, burst, "TFLOP/s", teraflops(kLong, "down"), true, 520, 600},
          {"three products as planes, f32 out", kLong, burst, "ms",
           milliseconds({kLong, {"planes"}}), false, 1.05, 0.95},
          {"products in the layer", kMiddle, burst, "ms", milliseconds({kMiddle, products}), false,
           0.37, 0.33},
          {"products in the layer", kShort, burst, "ms", milliseconds({kShort, products}), false,
           0.29, 0.265},
          {"layer / its products", kLong, both, "", quotient({kLong, {"layer"}}, {kLong, products}),
           false, 1.30, 1.15},
          {"layer with tables of the call / layer", kLong, both, "",
           quotient({kLong, {"layer_tables"}}, {kLong, {"layer"}}), false, 1.03, 1.0},
          {"products, V1 / V2", kLong, both, "", quotient({kLongV1, products}, {kLong, products}),
           false, 1.3, 1.1},
          {"layer, V1 / V2", kLong, both, "", quotient({kLongV1, {"layer"}}, {kLong, {"layer"}}),
           false, 1.3, 1.1},
          {"products: dense / memra", kUniform128, sustained, "", dense_quotient(kUniform128), true,
           0.85, 0.95},
          {"products: dense / memra", kUniform256, sustained, "", dense_quotient(kUniform256), true,
           0.82, 0.95}};
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
  return (at_least ? *measured - limit : limit - *measured) / limit;
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
    const std::string name = format("%s (%s, %lld tokens)", rule.name, rule.place.case_name,
                                    static_cast<long long>(rule.place.tokens));
    for (const Regime regime : rule.regimes) {
      bars.push_back({name, regime_name(regime), rule.unit, rule.at_least, rule.bar, rule.aim,
                      rule.measure(rows, regime)});
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
