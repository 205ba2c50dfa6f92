// moe-rows-ceiling: how far memra's rows kernels are from the roof, and why.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "json_parts.h"
#include "report.h"

namespace memra::bench {
namespace {

// Sets smaller than this in all would be read from a GPU's L2.
constexpr double kMinRotatingBytes = 300e6;
constexpr int64_t kMaxCopies = 4096;

// A first run should take a minute at most on two cores.
void resolve_defaults(bool on_cpu, Options* options) {
  if (options->iters == 0) options->iters = on_cpu ? 5 : 7;
  if (options->reps == 0) options->reps = on_cpu ? 3 : 100;
}

int64_t copies_for(const Options& options, bool on_cpu, double launch_bytes, uint64_t l2_bytes) {
  constexpr double kMinCpuBytes = 128e6;
  if (on_cpu && options.copies > 0) return options.copies;
  const double min_bytes =
      on_cpu ? kMinCpuBytes : std::max(kMinRotatingBytes, 4.0 * static_cast<double>(l2_bytes));
  const int64_t asked = options.copies > 0 ? options.copies : (on_cpu ? 2 : 4);
  const auto needed = static_cast<int64_t>(std::ceil(min_bytes / launch_bytes));
  return std::clamp(needed, asked, std::max(asked, kMaxCopies));
}

Copies choose_copies(const Options& options, const Session& session) {
  const Shape& shape = options.shape;
  const auto experts = static_cast<double>(DataSet::count_unique_experts(shape));
  const auto bytes = [&](Plane plane) { return static_cast<double>(slab_bytes(shape, plane)); };
  const uint64_t l2 = session.properties().l2_bytes;
  return {copies_for(options, session.on_cpu(), experts * (bytes(kGate) + bytes(kUp)), l2),
          copies_for(options, session.on_cpu(), experts * bytes(kDown), l2)};
}

int run(Options options, const std::vector<Arm>& arms) {
  require_writable(options.json_path);
  const std::unique_ptr<WeightSource> weights = options.gguf_path.empty()
                                                    ? make_synthetic_weights(options.shape)
                                                    : open_gguf_weights(&options);
  const Session session(options.engine);
  resolve_defaults(session.on_cpu(), &options);

  Progress progress;
  const DataSet data(session, options.shape, *weights, choose_copies(options, session), &progress);
  const Launcher launcher(session, data, options.inputs_stable);
  progress.clear();

  Results results;
  if (options.json_path == "-") results.out = stderr;
  results.options = &options;
  results.session = &session;
  results.data = &data;
  results.weights = weights->description();
  print_setup(results);

  results.identity = check_identity(session, data, launcher, arms, options.activation, &progress);
  progress.clear();
  print_identity(results);
  std::fflush(results.out);
  if (results.identity.any_differs() || results.identity.any_vacuous()) results.status = kFailed;

  results.timings = time_arms(session, data, launcher, arms, options.activation, options.iters,
                              options.reps, &progress);
  progress.clear();
  print_timings(results);
  if (!options.json_path.empty()) write_json(results);
  return results.status;
}

}  // namespace
}  // namespace memra::bench

int main(int argc, char** argv) {
  using namespace memra::bench;
  Options options;
  std::vector<Arm> arms;
  const auto parse = [&] {
    const ParseResult result = parse_options(argc, argv, &options);
    if (result != ParseResult::kRun) return result;
    try {
      arms = select_arms(options.arms);
    } catch (const Failure& error) {
      std::fprintf(stderr, "moe-rows-ceiling: %s\n", error.what());
      return ParseResult::kUsageError;
    }
    return ParseResult::kRun;
  };
  return run_tool("moe-rows-ceiling", parse, [&] { return run(options, arms); });
}
