#include "sweep_report.h"

#include <algorithm>

#include "setup.h"
#include "variants.h"

namespace memra::bench {
namespace {

// By how much AUTO may be slower than the fastest variant and still count as the fastest: repeated
// measurements of one variant differ by as much.
constexpr double kTolerance = 0.02;

std::string us_cell(const Summary& us) {
  return format("%.2f", us.median);
}
std::string spread_cell(const Summary& us) {
  return format("%.1f", us.spread_percent());
}
std::string rate_cell(double bytes, const Summary& us) {
  return format("%.3f", bytes / us.median / 1e6);
}
std::string ratio_cell(const Summary& roof, const Summary& us) {
  return format("%.3f", roof.median / us.median);
}
std::string megabytes_cell(double bytes) {
  return format("%.1f", bytes / 1e6);
}

// Touched by a call, of the bank's.
std::string experts_cell(const SweepRow& row) {
  return format("%.1f of %lld", row.unique_experts, static_cast<long long>(row.shape.n_experts));
}

std::string kernels_cell(const SweepRow& row) {
  if (!row.plan) return "not listed";
  return std::string(row.plan->gate_up_kernel) + ", " + row.plan->down_kernel;
}

std::string plan_cell(const SweepRow& row) {
  if (!row.plan) return "not listed";
  const std::string gate_up = variant_name(row.plan->gate_up_variant);
  const std::string down = variant_name(row.plan->down_variant);
  return gate_up == down ? gate_up : gate_up + ", " + down;
}

std::string tokens_cell(const SweepRow& row) {
  return std::to_string(row.shape.tokens);
}

void print_layers(const SweepResults& results) {
  Table table({"case", "tokens", "experts", "MB", "roof us", "TB/s", "layer us", "spread %",
               "stable us", "spread %", "roof/layer", "roof/stable", "host us", "launch us",
               "kernels"});
  table.text_last();
  for (const SweepRow& row : results.rows) {
    table.add({row.name, tokens_cell(row), experts_cell(row), megabytes_cell(row.bytes()),
               us_cell(row.roof), rate_cell(row.bytes(), row.roof), us_cell(row.layer),
               spread_cell(row.layer), us_cell(row.stable), spread_cell(row.stable),
               ratio_cell(row.roof, row.layer), ratio_cell(row.roof, row.stable),
               us_cell(row.host.call), us_cell(row.host.launch), kernels_cell(row)});
  }
  std::fprintf(results.out, "\n");
  table.print(results.out);
}

void print_stages(const SweepResults& results) {
  Table table({"case", "tokens", "stage", "MB", "stream us", "TB/s", "plain us", "spread %",
               "stream/plain", "dependent us", "TB/s", "stable us", "spread %", "dependent/stable",
               "variant"});
  table.text_last();
  bool any = false;
  for (const SweepRow& row : results.rows) {
    for (const StageTiming& stage : row.stages) {
      any = true;
      table.add({row.name, tokens_cell(row), stage_name(stage.stage), megabytes_cell(stage.bytes),
                 us_cell(stage.stream), rate_cell(stage.bytes, stage.stream), us_cell(stage.plain),
                 spread_cell(stage.plain), ratio_cell(stage.stream, stage.plain),
                 us_cell(stage.stream_dependent), rate_cell(stage.bytes, stage.stream_dependent),
                 us_cell(stage.stable), spread_cell(stage.stable),
                 ratio_cell(stage.stream_dependent, stage.stable), variant_name(stage.variant)});
    }
  }
  if (!any) return;
  std::fprintf(results.out, "\nstages alone, against the stream arm of the same bytes\n");
  table.print(results.out);
}

void print_variants(const SweepResults& results) {
  Table table({"case", "tokens", "fastest", "us", "AUTO us", "AUTO/fastest", "AUTO runs"});
  table.text_last();
  bool any = false;
  for (const SweepRow& row : results.rows) {
    if (!row.variants) continue;
    any = true;
    table.add({row.name, tokens_cell(row), variant_name(row.variants->fastest),
               us_cell(row.variants->fastest_us), us_cell(row.variants->auto_us),
               format("%.3f", row.variants->auto_ratio()), plan_cell(row)});
  }
  if (!any) return;
  std::fprintf(results.out,
               "\nexplicit variants of the layer; the fastest of each and AUTO, timed "
               "in turn\n");
  table.print(results.out);
  std::fprintf(results.out, "%s\n", variants_verdict(results.rows).c_str());
}

// A slab that is read again soon may come from a cache, in the roof as in the layer.
void print_repeats(const SweepResults& results) {
  const auto l2 = static_cast<double>(results.session->properties().l2_bytes);
  for (const SweepRow& row : results.rows) {
    if (results.session->on_cpu() || row.repeat_bytes >= 2 * l2) continue;
    std::fprintf(
        results.out,
        "note: %s, %lld tokens: a slab is read again after %.0f MB, and L2 holds %.0f MB\n",
        row.name.c_str(), static_cast<long long>(row.shape.tokens), row.repeat_bytes / 1e6,
        l2 / 1e6);
  }
}

}  // namespace

std::string variants_verdict(const std::vector<SweepRow>& rows) {
  double worst = 1;
  std::string slow;
  for (const SweepRow& row : rows) {
    if (!row.variants) continue;
    const double ratio = row.variants->auto_ratio();
    worst = std::max(worst, ratio);
    if (ratio <= 1 + kTolerance) continue;
    slow += format("%s %s at %lld tokens (%s, %.1f %%)", slow.empty() ? "" : ",", row.name.c_str(),
                   static_cast<long long>(row.shape.tokens),
                   variant_name(row.variants->fastest).c_str(), 100 * (ratio - 1));
  }
  if (!slow.empty()) {
    return format("AUTO is slower than the fastest variant by more than %.0f %%:%s",
                  100 * kTolerance, slow.c_str());
  }
  return format(
      "AUTO is the fastest within %.0f %% at every token count; at worst it is %.1f %% slower",
      100 * kTolerance, 100 * (worst - 1));
}

void print_sweep_setup(const SweepResults& results) {
  print_setup(results.out, "moe-rows-sweep", *results.session);
  const memra_engine_properties& engine = results.session->properties();
  std::fprintf(results.out,
               "layer: memra_moe_rows on V2 weights, bf16 in and out, replayed as a graph; medians "
               "of %d samples of about %.0f ms\n",
               results.sampling.iters, results.sampling.min_us / 1e3);
  std::fprintf(
      results.out,
      "roof: the gate/up bytes, then the down bytes of a call's experts, each expert once, "
      "in two stream launches%s\n",
      results.session->on_cpu()      ? ""
      : engine.dependent_launch != 0 ? ", under dependent launch"
                                     : "; this engine has no dependent launch");
  std::fprintf(results.out,
               "host: to enqueue a call on an idle stream; launch: to enqueue one small kernel\n");
  std::fflush(results.out);
}

void print_sweep(const SweepResults& results) {
  if (!results.rows.empty()) print_layers(results);
  print_stages(results);
  print_variants(results);
  print_repeats(results);
  for (const std::string& note : results.notes)
    std::fprintf(results.out, "note: %s\n", note.c_str());
}

}  // namespace memra::bench
