// moe-tp2-repro: do two ranks of a tensor-parallel MoE layer overlap, and if not, why?
#include <algorithm>

#include "json_parts.h"
#include "tp2/report.h"

namespace memra::bench::tp2 {
namespace {

constexpr int64_t kGpuTokens = 4096;
constexpr int64_t kCpuTokens = 43;
constexpr int64_t kCopyRows = 32;

int status_of(const Results& results) {
  for (const DeterminismCase& check : results.determinism) {
    const bool unexpected = check.is_vacuous() && results.options->random_bank != 0;
    if (check.differing() > 0 || unexpected) return kFailed;
  }
  const auto valid = [](const Iteration& iteration) { return iteration.is_valid(); };
  return std::all_of(results.iterations.begin(), results.iterations.end(), valid) ? kOk : kFailed;
}

int run(Options options) {
  require_writable(options.json_path);
  require_writable(options.trace_path, "--trace");
  const Ranks ranks = open_ranks(options);
  Shape& shape = options.shape;
  if (shape.tokens == 0) shape.tokens = ranks.on_cpu() ? kCpuTokens : kGpuTokens;
  if (options.copy_rows == 0) options.copy_rows = kCopyRows;
  options.copy_rows = std::min(options.copy_rows, shape.tokens);

  Results results;
  if (options.json_path == "-") results.out = stderr;
  results.options = &options;
  results.ranks = &ranks;
  results.devices = describe(ranks);
  const Rank first(ranks[0], options, 0);
  const Rank second(ranks[1], options, 1);
  results.n_active = first.n_active();
  print_setup(results);

  const Scenario scenario(options, first, second);
  results.iterations = run_iterations(scenario);
  print_iterations(results);
  results.overlap = measure_overlap(scenario);
  results.peer_copy = measure_peer_copy(ranks);
  print_overlap(results);
  if (options.determinism != 0) results.determinism = check_determinism(scenario);
  print_determinism(results);
  if (!options.trace_path.empty()) {
    Trace trace(ranks);
    trace_iteration(scenario, &trace);
    trace.write(options.trace_path, results.devices);
    results.trace_error_us = trace.error_us();
  }
  print_trace(results);
  results.status = status_of(results);
  if (!options.json_path.empty()) write_json(results);
  return results.status;
}

}  // namespace
}  // namespace memra::bench::tp2

int main(int argc, char** argv) {
  using namespace memra::bench;
  tp2::Options options;
  return run_tool(
      tp2::kTool, [&] { return tp2::parse_options(argc, argv, &options); },
      [&] { return tp2::run(options); });
}
