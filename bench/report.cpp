#include "report.h"

#include <cstdio>

#include "reading.h"
#include "setup.h"

namespace memra::bench {
namespace {

const Summary& summary(const ArmTiming& timing, Mode mode) {
  return mode == Mode::kGraph ? timing.graph : timing.stream;
}

std::string ratio(const ArmTiming& timing, const ArmTiming* to, Mode mode) {
  if (to == nullptr) return "-";
  return format("%.2f", summary(timing, mode).median / summary(*to, mode).median);
}

void print_mode(const Results& results, Stage stage, Mode mode) {
  const bool is_down = stage == Stage::kDown;
  std::fprintf(results.out, "\n%s, %s: %.1f MB of weights a launch\n", stage_name(stage),
               mode == Mode::kGraph ? "replayed as a graph" : "as a stream of launches",
               results.data->launch_bytes(is_down) / 1e6);
  const ArmTiming* baseline = find_baseline(results.timings, stage);
  const ArmTiming* stream = find_stream(results.timings, stage);
  Table table({"arm", "us", "min", "max", "spread %", "GB/s", "x served", "x stream"});
  for (const ArmTiming& timing : results.timings) {
    if (timing.arm.stage != stage) continue;
    const Summary& us = summary(timing, mode);
    // An arm without loads has no bandwidth.
    const bool loads = timing.arm.kind != Kind::kMathOnly;
    table.add({std::string(timing.arm.name), format("%.2f", us.median), format("%.2f", us.min),
               format("%.2f", us.max), format("%.1f", us.spread_percent()),
               loads ? format("%.1f", timing.bytes / us.median / 1e3) : "-",
               ratio(timing, baseline, mode), ratio(timing, stream, mode)});
  }
  table.print(results.out);
}

// "served 20.1 us, lane-major 19.0 us (0.95), ...", over the arms that return outputs.
void print_comparison(const Results& results, Stage stage) {
  const ArmTiming* baseline = find_baseline(results.timings, stage);
  if (baseline == nullptr) return;
  std::string line = std::string(stage_name(stage)) + ":";
  const char* separator = " ";
  for (const ArmTiming& timing : results.timings) {
    if (timing.arm.stage != stage || !timing.arm.has_output()) continue;
    const std::string_view name = timing.arm.name;
    line += format("%s%s %.2f us", separator, std::string(name.substr(name.find('.') + 1)).c_str(),
                   timing.graph.median);
    if (!timing.arm.is_baseline) {
      line += format(" (%.2f)", timing.graph.median / baseline->graph.median);
    }
    separator = ", ";
  }
  if (const ArmTiming* stream = find_stream(results.timings, stage)) {
    line += format("; stream %.2f us", stream->graph.median);
  }
  std::fprintf(results.out, "%s\n", line.c_str());
}

std::string count_cell(uint64_t count, uint64_t total) {
  return format("%llu (%.1f%%)", static_cast<unsigned long long>(count),
                total > 0 ? 100.0 * static_cast<double>(count) / static_cast<double>(total) : 0.0);
}

std::string number(uint64_t value) {
  return std::to_string(value);
}

}  // namespace

void print_setup(const Results& results) {
  const Options& options = *results.options;
  const Shape& shape = options.shape;
  const DataSet& data = *results.data;
  print_setup(results.out, "moe-rows-ceiling", *results.session);
  const std::string model = options.model.empty() ? "" : options.model + ": ";
  std::fprintf(results.out, "shape: %s%lld -> %lld, %lld experts, top_k %lld, %lld token%s; %s",
               model.c_str(), static_cast<long long>(shape.hidden_size),
               static_cast<long long>(shape.intermediate_size),
               static_cast<long long>(shape.n_experts), static_cast<long long>(shape.top_k),
               static_cast<long long>(shape.tokens), shape.tokens == 1 ? "" : "s",
               activation_name(options.activation.kind));
  if (is_clamped(options.activation.kind))
    std::fprintf(results.out, ", limit %g", options.activation.limit);
  std::fprintf(results.out, "\nweights: %s; a launch touches %lld experts, each counted once\n",
               results.weights.c_str(), static_cast<long long>(data.unique_experts()));
  for (const bool is_down : {false, true}) {
    const auto copies = data.copies().of(is_down);
    std::fprintf(results.out, "%s: %lld slab set%s of %.1f MB, %.0f MB in rotation\n",
                 stage_name(is_down ? Stage::kDown : Stage::kGateUp),
                 static_cast<long long>(copies), copies == 1 ? "" : "s",
                 data.launch_bytes(is_down) / 1e6,
                 static_cast<double>(copies) * data.launch_bytes(is_down) / 1e6);
  }
  std::fprintf(results.out, "samples: %d, at least %d launches each%s\n", options.iters,
               options.reps, options.inputs_stable ? "; inputs declared stable" : "");
  if (data.invalid_scales() > 0) {
    std::fprintf(results.out, "note: %llu scale codes of the weights are invalid and count as 0\n",
                 static_cast<unsigned long long>(data.invalid_scales()));
  }
}

void print_identity(const Results& results) {
  std::fprintf(results.out, "\nidentity: outputs whose bits differ from served\n");
  Table table({"arm", "outputs", "differ (clamp)", "differ (no clamp)", "non-zero", "saturated",
               "NaN", "verdict"});
  for (const IdentityRow& row : results.identity.rows) {
    const OutputCounts& with = row.clamped;
    const bool gate_up = row.stage == Stage::kGateUp;
    table.add({std::string(row.arm), number(with.outputs), number(with.differing),
               number(row.unclamped.differing), count_cell(with.non_zero, with.outputs),
               gate_up ? count_cell(row.saturated, with.outputs) : "-",
               number(with.nan + row.unclamped.nan),
               row.is_vacuous()      ? "VACUOUS"
               : row.differing() > 0 ? "DIFFERS"
                                     : "equal"});
  }
  table.print(results.out);
  if (results.identity.any_vacuous()) {
    std::fprintf(results.out,
                 "VACUOUS: equal bits of degenerate outputs prove nothing (any NaN, or half of the "
                 "outputs zero or saturated)\n");
  }
}

void print_timings(const Results& results) {
  for (const Stage stage : {Stage::kGateUp, Stage::kDown}) {
    for (const Mode mode : {Mode::kStream, Mode::kGraph})
      print_mode(results, stage, mode);
  }
  std::fprintf(results.out, "\nus per launch in the graph (ratio to served):\n");
  for (const Stage stage : {Stage::kGateUp, Stage::kDown})
    print_comparison(results, stage);
  std::fprintf(results.out, "\nreading:\n");
  for (const Reading& reading : read_timings(results.timings)) {
    std::fprintf(results.out, "%s: %s (%s)\n", std::string(reading.arm).c_str(),
                 reading.verdict.c_str(), reading.text.c_str());
  }
}

}  // namespace memra::bench
