#include "grouped_report.h"

#include <algorithm>

#include "grouped_bars.h"
#include "setup.h"

namespace memra::bench {
namespace {

constexpr const char* kPlaneNames[] = {"gate", "up", "down"};

std::string number(int64_t value) {
  return std::to_string(value);
}

std::string shape_text(const Shape& shape, double skew) {
  return format("%s experts, top_k %s, %s/%s, %s", number(shape.n_experts).c_str(),
                number(shape.top_k).c_str(), number(shape.hidden_size).c_str(),
                number(shape.intermediate_size).c_str(),
                skew == 1 ? "uniform" : format("u^%g", skew).c_str());
}

// Microseconds, spread, TFLOP/s and GB/s of a regime.
void add_cells(const GroupedTiming& timing, Regime regime, std::vector<std::string>* cells) {
  const Summary& us = timing.of(regime);
  const bool measured = us.median > 0;
  cells->push_back(measured ? format("%.1f", us.median) : "-");
  cells->push_back(measured ? format("%.1f", us.spread_percent()) : "-");
  const bool computes = measured && timing.flops > 0;
  cells->push_back(computes ? format("%.4g", timing.flops / us.median / 1e6) : "-");
}

std::string ratio_cell(double ratio) {
  return ratio > 0 ? format("%.3f", ratio) : "-";
}

void print_accuracy(std::FILE* out, const GroupedAccuracy& accuracy) {
  for (int plane = 0; plane < kPlanes; ++plane)
    std::fprintf(out, "relative L2, %s: %s\n", kPlaneNames[plane],
                 accuracy.planes[plane].text().c_str());
  std::fprintf(out, "relative L2, layer: %s\n", accuracy.layer.text().c_str());
  if (!accuracy.within_limits()) {
    std::fprintf(out, "INACCURATE: at most %g a product and %g a layer are promised\n",
                 GroupedAccuracy::kPlaneLimit, GroupedAccuracy::kLayerLimit);
  }
}

const GroupedRow* same_in_v2(const GroupedResults& results, const GroupedRow& v1) {
  for (const GroupedRow& row : results.rows) {
    if (row.format == MEMRA_NVFP4_V2 && row.case_name == v1.case_name && row.shape == v1.shape)
      return &row;
  }
  return nullptr;
}

void print_formats(const GroupedResults& results) {
  Table table({"V1 / V2", "tokens", "regime", "three products", "layer"});
  bool any = false;
  for (const GroupedRow& row : results.rows) {
    const GroupedRow* v2 = row.format == MEMRA_NVFP4 ? same_in_v2(results, row) : nullptr;
    if (v2 == nullptr) continue;
    for (const Regime regime : results.options->regimes) {
      const auto ratio = [&](const std::vector<std::string_view>& names) {
        const double under = v2->sum_us(regime, names);
        return ratio_cell(under > 0 ? row.sum_us(regime, names) / under : 0);
      };
      table.add({row.case_name, number(row.shape.tokens), regime_name(regime),
                 ratio({"gate_up", "down"}), ratio({"layer"})});
      any = true;
    }
  }
  if (!any) return;
  std::fprintf(results.out, "\n");
  table.print(results.out);
}

}  // namespace

bool GroupedResults::is_accurate() const {
  return std::all_of(rows.begin(), rows.end(), [](const GroupedRow& row) {
    return !row.accuracy || row.accuracy->within_limits();
  });
}

void print_grouped_setup(const GroupedResults& results) {
  print_setup(results.out, "moe-grouped-ceiling", *results.session);
  const RegimeSettings& settings = results.settings;
  const int samples = settings.rounds * settings.samples;
  const auto banks = static_cast<long long>(results.options->banks);
  if (results.options->valley) {
    std::fprintf(results.out,
                 "memra_moe, bf16 in and out, replayed as a graph over %lld banks; medians of %d "
                 "samples, all token counts in turn\n",
                 banks, samples);
    return;
  }
  std::fprintf(
      results.out, "dense: %s\n",
      results.dense.empty() ? "none (no cuBLAS in this build, or no GPU)" : results.dense.c_str());
  std::fprintf(results.out,
               "replayed as graphs over %lld banks, all arms in turn; medians of %d samples in %d "
               "rounds\nburst: after a pause of %g ms and %d replays; sustained: after %g ms of "
               "replays\n",
               banks, samples, settings.rounds, settings.pause_ms, settings.burst_warmups,
               settings.warm_ms);
  std::fflush(results.out);
}

void print_grouped_row(std::FILE* out, const GroupedRow& row) {
  std::fprintf(
      out, "\n%s (%s), %s, %lld tokens: %lld pairs, %lld experts with %lld / %lld / %lld\n",
      row.case_name.c_str(), shape_text(row.shape, row.skew).c_str(), format_name(row.format),
      static_cast<long long>(row.shape.tokens), static_cast<long long>(row.shape.n_pairs()),
      static_cast<long long>(row.active), static_cast<long long>(row.pairs_min),
      static_cast<long long>(row.pairs_median), static_cast<long long>(row.pairs_max));
  std::fprintf(out, "kernels: %s, %s\n", row.gate_up_kernel.c_str(), row.down_kernel.c_str());
  Table arms({"arm", "burst us", "spread %", "TFLOP/s", "sustained us", "spread %", "TFLOP/s"});
  for (const GroupedTiming& timing : row.timings) {
    std::vector<std::string> cells = {timing.name};
    for (const Regime regime : kRegimes)
      add_cells(timing, regime, &cells);
    arms.add(cells);
  }
  arms.print(out);
  const std::vector<GroupedRatio> ratios = grouped_ratios(row);
  Table table({"ratio", "burst", "sustained"});
  for (const GroupedRatio& ratio : ratios) {
    table.add({ratio.name, ratio_cell(ratio.of(Regime::kBurst)),
               ratio_cell(ratio.of(Regime::kSustained))});
  }
  if (!ratios.empty()) table.print(out);
  if (row.accuracy) print_accuracy(out, *row.accuracy);
  std::fflush(out);
}

void print_valley(std::FILE* out, const Valley& valley) {
  std::fprintf(out, "\n%s (%s), %s; grouped from %lld tokens on\n", valley.case_name.c_str(),
               shape_text(valley.shape, valley.skew).c_str(), format_name(valley.format),
               static_cast<long long>(valley.grouped_min_tokens));
  Table table(
      {"tokens", "path", "us", "spread %", "us a token", "rows us", "grouped us", "falls by %"});
  table.text_last();
  const auto path_cell = [](const std::optional<Summary>& us) {
    return us ? format("%.1f", us->median) : "-";
  };
  for (const ValleyPoint& point : valley.points) {
    const std::string fall = point.fall > 0 ? format("%.1f", 100 * point.fall) : "";
    table.add({number(point.tokens), point.grouped ? "grouped" : "rows",
               format("%.1f", point.us.median), format("%.1f", point.us.spread_percent()),
               format("%.2f", point.us.median / static_cast<double>(point.tokens)),
               path_cell(point.rows_us), path_cell(point.grouped_us),
               fall + (valley.is_marked(point) ? "  <-- VALLEY" : "")});
  }
  table.print(out);
  std::fprintf(out, "%s\n", valley_verdict(valley).c_str());
  const std::string crossing = crossing_text(valley);
  if (!crossing.empty()) std::fprintf(out, "%s\n", crossing.c_str());
  std::fflush(out);
}

std::string valley_verdict(const Valley& valley) {
  std::string where;
  for (const ValleyPoint& point : valley.points) {
    if (!valley.is_marked(point)) continue;
    where += format("%s %lld (%.1f %%)", where.empty() ? "" : ",",
                    static_cast<long long>(point.tokens), 100 * point.fall);
  }
  if (where.empty()) {
    return format("time rises with tokens, within %.0f %%", 100 * Valley::kTolerance);
  }
  return format("time falls by more than %.0f %% at%s tokens", 100 * Valley::kTolerance,
                where.c_str());
}

std::string crossing_text(const Valley& valley) {
  const PathCrossing crossing = find_crossing(valley.points);
  if (!crossing.is_timed()) return "";
  std::string text;
  if (crossing.last_rows == 0) {
    text = "paths do not cross, grouped is at least as fast at every count";
  } else if (crossing.first_grouped == 0) {
    text = "paths do not cross, rows are faster at " + number(crossing.last_rows) + " tokens";
  } else {
    text = "paths cross between " + number(crossing.last_rows) + " and " +
           number(crossing.first_grouped) + " tokens";
  }
  if (valley.points.front().grouped) return text + "; memra_moe takes grouped throughout";
  if (!valley.points.back().grouped) return text + "; memra_moe takes rows throughout";
  return text + "; memra_moe changes at " + number(valley.grouped_min_tokens);
}

void print_grouped_summary(const GroupedResults& results) {
  print_formats(results);
  if (results.options->bars) print_bars(results.out, judge_bars(results.rows, results.valleys));
  for (const std::string& note : results.notes)
    std::fprintf(results.out, "note: %s\n", note.c_str());
}

}  // namespace memra::bench
