#include "parallel/report.h"

#include <algorithm>

#include "console.h"
#include "json_parts.h"
#include "setup.h"

namespace memra::bench::parallel {
namespace {

using nlohmann::json;

const char* path_name(memra_path path) {
  return path == MEMRA_PATH_ROWS ? "rows" : "grouped";
}

const char* dtype_name(memra_dtype dtype) {
  return dtype == MEMRA_F32 ? "f32" : "bf16";
}

std::string text_of(const RankDevice& rank) {
  if (rank.backend == MEMRA_BACKEND_CUDA)
    return format("CUDA device %d (%s)", rank.device, rank.name);
  return format("CPU, %d thread%s (%s)", rank.threads, rank.threads == 1 ? "" : "s", rank.name);
}

std::string microseconds(const Summary& summary) {
  return format("%.1f us (%.1f to %.1f)", summary.median, summary.min, summary.max);
}

json to_json(const Case& result) {
  const SplitTimes& times = result.times;
  using bench::to_json;
  return {{"scheme", scheme_name(result.scheme)},
          {"path", path_name(result.path)},
          {"tokens", result.tokens},
          {"micro_batches", result.micro_batches},
          {"n_pairs", result.n_pairs},
          {"relative_l2", result.agreement.relative_l2},
          {"limit", result.agreement.limit},
          {"live", result.agreement.is_live},
          {"agrees", result.agreement.is_good()},
          {"one_device_us", to_json(result.one_device_us)},
          {"compute_us", to_json(times.compute_us)},
          {"communication_us", to_json(times.communication_us)},
          {"together_us", to_json(times.together_us)},
          {"exposed_us", to_json(times.exposed_us)},
          {"exposed_of_layer", times.exposed_us.median / times.together_us.median},
          {"speed_up", to_json(times.speed_up)}};
}

json options_json(const Options& options) {
  return {{"iters", options.iters},
          {"n_experts", options.shape.n_experts},
          {"top_k", options.shape.top_k},
          {"hidden_size", options.shape.hidden_size},
          {"intermediate_size", options.shape.intermediate_size},
          {"dtype", dtype_name(options.dtype)},
          {"micro_batches", options.micro_batches},
          {"layers", options.layers}};
}

}  // namespace

bool Results::all_agree() const {
  return std::all_of(cases.begin(), cases.end(),
                     [](const Case& result) { return result.agreement.is_good(); });
}

void print_setup(const Results& results) {
  const Options& options = *results.options;
  const Shape& shape = options.shape;
  std::FILE* out = results.out;
  std::fprintf(out, "%s\n", tool_and_version(kTool).c_str());
  for (size_t r = 0; r < results.ranks.size(); ++r)
    std::fprintf(out, "rank %zu: %s\n", r, text_of(results.ranks[r]).c_str());
  std::fprintf(out, "transport: %s\n", results.transport.c_str());
  std::fprintf(out, "%lld experts, top_k %lld, hidden %lld, intermediate %lld, %s in and out\n",
               static_cast<long long>(shape.n_experts), static_cast<long long>(shape.top_k),
               static_cast<long long>(shape.hidden_size),
               static_cast<long long>(shape.intermediate_size), dtype_name(options.dtype));
  for (const std::string& note : results.notes)
    std::fprintf(out, "%s\n", note.c_str());
  std::fprintf(out,
               "times of a layer, of %d back to back: median of %d samples (least to most), "
               "slowest rank\n",
               options.layers, options.iters);
  std::fflush(out);  // what follows may take a while
}

void print_case(const Results& results, const Case& result) {
  const SplitTimes& times = result.times;
  std::string pairs;
  for (const int64_t n : result.n_pairs)
    pairs += format(" %lld", static_cast<long long>(n));
  std::fprintf(results.out, "\n%s, %s, t %lld, micro-batches %d, pairs of the ranks%s\n",
               scheme_name(result.scheme), path_name(result.path),
               static_cast<long long>(result.tokens), result.micro_batches, pairs.c_str());
  std::fprintf(results.out, "  sums: relative L2 %.2g from one device's, limit %.0e: %s\n",
               result.agreement.relative_l2, result.agreement.limit,
               result.agreement.is_good() ? "good"
               : result.agreement.is_live ? "WRONG"
                                          : "VACUOUS");
  std::fprintf(results.out, "  compute: %s\n", microseconds(times.compute_us).c_str());
  std::fprintf(results.out, "  communication alone: %s\n",
               microseconds(times.communication_us).c_str());
  std::fprintf(results.out, "  together: %s\n", microseconds(times.together_us).c_str());
  std::fprintf(results.out, "  exposed communication: %s, %.0f %% of the layer\n",
               microseconds(times.exposed_us).c_str(),
               100.0 * times.exposed_us.median / times.together_us.median);
  std::fprintf(results.out, "  one device: %s; speed-up %.2f (%.2f to %.2f)\n",
               microseconds(result.one_device_us).c_str(), times.speed_up.median,
               times.speed_up.min, times.speed_up.max);
}

void write_json(const Results& results) {
  const Options& options = *results.options;
  json document = {{"library", library_json()},
                   {"transport", results.transport},
                   {"options", options_json(options)},
                   {"notes", results.notes},
                   {"status", results.all_agree() ? kOk : kFailed}};
  document["ranks"] = json::array();
  for (const RankDevice& rank : results.ranks) {
    document["ranks"].push_back({{"backend", rank.backend == MEMRA_BACKEND_CUDA ? "cuda" : "cpu"},
                                 {"device", rank.device},
                                 {"threads", rank.threads},
                                 {"name", rank.name}});
  }
  document["cases"] = json::array();
  for (const Case& result : results.cases)
    document["cases"].push_back(to_json(result));
  write_document(document, options.json_path);
}

}  // namespace memra::bench::parallel
