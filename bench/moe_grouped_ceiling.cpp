// moe-grouped-ceiling: how far memra's grouped path is from dense f16 products of the same size.
#include <cstdio>

#include "grouped_report.h"
#include "json_parts.h"

namespace memra::bench {
namespace {

// Of the device's memory; the rest is for activations, outputs and dense operands.
constexpr double kMemoryShare = 0.6;

void measure(const GroupedRun& run, const DenseBlas* blas, GroupedResults* results,
             Progress* progress) {
  const GroupedOptions& options = *results->options;
  const GroupedCase& grouped_case = run.layer;
  const Session& session = *results->session;
  const double bytes =
      static_cast<double>(options.banks) * LayerFixture::bank_bytes(grouped_case.shape);
  const auto memory = static_cast<double>(session.properties().memory_bytes);
  if (memory > 0 && bytes > kMemoryShare * memory) {
    results->notes.push_back(format("%s left out: its banks take %.1f GB, the device has %.1f GB",
                                    grouped_case.name.c_str(), bytes / 1e9, memory / 1e9));
    return;
  }
  progress->show(grouped_case.name + ": weights");
  Activation activation;
  activation.kind = MEMRA_SWIGLU;
  const GroupedBanks banks(session, grouped_case.shape, activation, run.format, options.banks);
  if (run.valley) {
    results->valleys.push_back(
        measure_valley(banks, grouped_case, results->settings, options.both_paths, progress));
    progress->clear();
    print_valley(results->out, results->valleys.back());
    return;
  }
  for (const int64_t tokens : grouped_case.tokens) {
    results->rows.push_back(measure_grouped(banks, grouped_case, tokens, blas, options, progress));
    progress->clear();
    print_grouped_row(results->out, results->rows.back());
  }
}

int run(const GroupedOptions& options) {
  require_writable(options.json_path);
  const Session session(options.engine);
  const std::unique_ptr<DenseBlas> blas = make_dense_blas(session);
  GroupedResults results;
  if (options.json_path == "-") results.out = stderr;
  results.options = &options;
  results.session = &session;
  results.settings = regime_settings(options, session.on_cpu());
  if (blas != nullptr) results.dense = blas->name();
  print_grouped_setup(results);

  Progress progress;
  for (const GroupedRun& run : grouped_runs(options, session.on_cpu())) {
    try {
      measure(run, blas.get(), &results, &progress);
    } catch (const Failure& error) {
      throw Failure(run.layer.name + ": " + error.what());
    }
  }
  progress.clear();
  print_grouped_summary(results);
  if (!options.json_path.empty()) write_grouped_json(results);
  const bool empty = results.rows.empty() && results.valleys.empty();
  return empty || !results.is_accurate() ? kFailed : kOk;
}

}  // namespace
}  // namespace memra::bench

int main(int argc, char** argv) {
  using namespace memra::bench;
  GroupedOptions options;
  return run_tool(
      "moe-grouped-ceiling", [&] { return parse_grouped_options(argc, argv, &options); },
      [&] { return run(options); });
}
