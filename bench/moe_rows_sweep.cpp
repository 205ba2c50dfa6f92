// moe-rows-sweep: how far whole layer calls are from the time that reading their weights takes.
#include <cstdio>

#include "json_parts.h"
#include "layer_fixture.h"
#include "sweep_report.h"

namespace memra::bench {
namespace {

constexpr double kMinSampleUs = 20e3;
// Of the device's memory; the rest is for what runs beside, and for workspaces.
constexpr double kMemoryShare = 0.9;

int run(const SweepOptions& options) {
  require_writable(options.json_path);
  const Session session(options.engine);
  Progress progress;
  SweepResults results;
  if (options.json_path == "-") results.out = stderr;
  results.options = &options;
  results.session = &session;
  results.sampling.iters = options.iters > 0 ? options.iters : session.on_cpu() ? 7 : 9;
  results.sampling.min_us = kMinSampleUs;
  print_sweep_setup(results);

  const auto memory = static_cast<double>(session.properties().memory_bytes);
  for (const SweepCase& sweep_case : sweep_cases(options, session.on_cpu())) {
    const double bytes = LayerFixture::bank_bytes(sweep_case.shape);
    if (memory > 0 && bytes > kMemoryShare * memory) {
      results.notes.push_back(format("%s left out: its banks take %.1f GB, the device has %.1f GB",
                                     sweep_case.name.c_str(), bytes / 1e9, memory / 1e9));
      continue;
    }
    try {
      for (SweepRow& row :
           run_case(session, sweep_case, results.sampling, options.variants, &progress)) {
        results.rows.push_back(std::move(row));
      }
    } catch (const Failure& error) {
      throw Failure(sweep_case.name + ": " + error.what());
    }
  }
  progress.clear();
  print_sweep(results);
  if (!options.json_path.empty()) write_sweep_json(results);
  return results.rows.empty() ? kFailed : kOk;
}

}  // namespace
}  // namespace memra::bench

int main(int argc, char** argv) {
  using namespace memra::bench;
  SweepOptions options;
  return run_tool(
      "moe-rows-sweep", [&] { return parse_sweep_options(argc, argv, &options); },
      [&] { return run(options); });
}
