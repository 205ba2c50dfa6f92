#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reading.h"
#include "report.h"

namespace memra::bench {
namespace {

using nlohmann::json;

json to_json(const Summary& us) {
  return {{"median", us.median}, {"min", us.min}, {"max", us.max}};
}

json to_json(const OutputCounts& counts) {
  return {{"outputs", counts.outputs},
          {"differing", counts.differing},
          {"non_zero", counts.non_zero},
          {"nan", counts.nan}};
}

json setup(const Results& results) {
  const Options& options = *results.options;
  const Shape& shape = options.shape;
  const memra_engine_properties& engine = results.session->properties();
  memra_build_properties build = MEMRA_BUILD_PROPERTIES_INIT;
  check(memra_build_info(&build), "memra_build_info");
  const DataSet& data = *results.data;
  return {
      {"library",
       {{"version", build.version},
        {"cuda_version", build.cuda_version},
        {"cuda_archs", build.cuda_archs},
        {"compiler", build.compiler}}},
      {"device",
       {{"backend", results.session->on_cpu() ? "cpu" : "cuda"},
        {"name", engine.device_name},
        {"index", engine.device},
        {"compute_capability", engine.compute_capability},
        {"threads", engine.cpu_threads},
        {"simd", engine.simd},
        {"driver_version", engine.driver_version},
        {"dependent_launch", engine.dependent_launch != 0}}},
      {"shape",
       {{"model", options.model},
        {"hidden_size", shape.hidden_size},
        {"intermediate_size", shape.intermediate_size},
        {"n_experts", shape.n_experts},
        {"top_k", shape.top_k},
        {"tokens", shape.tokens},
        {"activation", activation_name(options.activation.kind)},
        {"limit", options.activation.limit},
        {"alpha", options.activation.alpha}}},
      {"weights",
       {{"source", results.weights},
        {"unique_experts", data.unique_experts()},
        {"invalid_scales", data.invalid_scales()},
        {"gate_up_sets", data.copies().gate_up},
        {"down_sets", data.copies().down},
        {"gate_up_bytes", data.launch_bytes(false)},
        {"down_bytes", data.launch_bytes(true)}}},
      {"sampling",
       {{"iters", options.iters},
        {"reps", options.reps},
        {"inputs_stable", options.inputs_stable}}},
  };
}

}  // namespace

void write_json(const Results& results) {
  json document = setup(results);
  document["status"] = results.status;
  document["identity"] = json::array();
  for (const IdentityRow& row : results.identity.rows) {
    document["identity"].push_back({{"arm", row.arm},
                                    {"clamped", to_json(row.clamped)},
                                    {"unclamped", to_json(row.unclamped)},
                                    {"saturated", row.saturated},
                                    {"vacuous", row.is_vacuous()}});
  }
  document["timings"] = json::array();
  for (const ArmTiming& timing : results.timings) {
    document["timings"].push_back({{"arm", timing.arm.name},
                                   {"stage", stage_name(timing.arm.stage)},
                                   {"bytes", timing.bytes},
                                   {"stream_us", to_json(timing.stream)},
                                   {"graph_us", to_json(timing.graph)}});
  }
  document["reading"] = json::array();
  for (const Reading& reading : read_timings(results.timings)) {
    document["reading"].push_back(
        {{"arm", reading.arm}, {"verdict", reading.verdict}, {"text", reading.text}});
  }
  // Paths and device names may hold any bytes: they must not make the dump fail.
  const std::string text = document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  const std::string& path = results.options->json_path;
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw Failure("--json: cannot write '" + path + "'");
}

}  // namespace memra::bench
