#include "json_parts.h"
#include "reading.h"
#include "report.h"

namespace memra::bench {
namespace {

using nlohmann::json;

json to_json(const OutputCounts& counts) {
  return {{"outputs", counts.outputs},
          {"differing", counts.differing},
          {"non_zero", counts.non_zero},
          {"nan", counts.nan}};
}

json setup(const Results& results) {
  const Options& options = *results.options;
  const Shape& shape = options.shape;
  const DataSet& data = *results.data;
  return {
      {"library", library_json()},
      {"device", device_json(*results.session)},
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
  write_document(document, results.options->json_path);
}

}  // namespace memra::bench
