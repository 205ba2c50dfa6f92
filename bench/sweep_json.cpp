#include "json_parts.h"
#include "sweep_report.h"
#include "variants.h"

namespace memra::bench {
namespace {

using nlohmann::json;

json to_json(const StageTiming& stage) {
  return {{"stage", stage_name(stage.stage)},
          {"variant", variant_name(stage.variant)},
          {"bytes", stage.bytes},
          {"stream_us", to_json(stage.stream)},
          {"stream_dependent_us", to_json(stage.stream_dependent)},
          {"plain_us", to_json(stage.plain)},
          {"stable_us", to_json(stage.stable)},
          {"ratio", stage.stream.median / stage.plain.median},
          {"stable_ratio", stage.stream_dependent.median / stage.stable.median}};
}

json to_json(const VariantSweep& sweep) {
  json all = json::array();
  for (const VariantTiming& timing : sweep.all)
    all.push_back({{"variant", variant_name(timing.variant)}, {"us", to_json(timing.us)}});
  return {{"all", all},
          {"fastest", variant_name(sweep.fastest)},
          {"fastest_us", to_json(sweep.fastest_us)},
          {"auto_us", to_json(sweep.auto_us)},
          {"auto_ratio", sweep.auto_ratio()}};
}

json to_json(const memra_rows_plan& plan) {
  return {{"tokens_min", plan.tokens_min},
          {"tokens_max", plan.tokens_max},
          {"gate_up_variant", variant_name(plan.gate_up_variant)},
          {"down_variant", variant_name(plan.down_variant)},
          {"gate_up_kernel", plan.gate_up_kernel},
          {"down_kernel", plan.down_kernel}};
}

json to_json(const SweepRow& row) {
  json result = {{"case", row.name},
                 {"model", row.model},
                 {"hidden_size", row.shape.hidden_size},
                 {"intermediate_size", row.shape.intermediate_size},
                 {"n_experts", row.shape.n_experts},
                 {"top_k", row.shape.top_k},
                 {"activation", activation_name(row.activation.kind)},
                 {"tokens", row.shape.tokens},
                 {"unique_experts", row.unique_experts},
                 {"gate_up_bytes", row.gate_up_bytes},
                 {"down_bytes", row.down_bytes},
                 {"bytes", row.bytes()},
                 {"calls_in_rotation", row.calls},
                 {"repeat_bytes", row.repeat_bytes},
                 {"roof_us", to_json(row.roof)},
                 {"layer_us", to_json(row.layer)},
                 {"stable_us", to_json(row.stable)},
                 {"host_us", to_json(row.host.call)},
                 {"host_launch_us", to_json(row.host.launch)},
                 {"ratio", row.ratio()},
                 {"stable_ratio", row.stable_ratio()}};
  result["plan"] = row.plan ? to_json(*row.plan) : json();
  if (!row.stages.empty()) {
    result["stages"] = json::array();
    for (const StageTiming& stage : row.stages)
      result["stages"].push_back(to_json(stage));
  }
  if (row.variants) result["variants"] = to_json(*row.variants);
  return result;
}

}  // namespace

void write_sweep_json(const SweepResults& results) {
  json document = {
      {"library", library_json()},
      {"device", device_json(*results.session)},
      {"sampling", {{"iters", results.sampling.iters}, {"min_sample_us", results.sampling.min_us}}},
      {"notes", results.notes}};
  document["rows"] = json::array();
  for (const SweepRow& row : results.rows)
    document["rows"].push_back(to_json(row));
  if (results.options->variants) document["variants_verdict"] = variants_verdict(results.rows);
  write_document(document, results.options->json_path);
}

}  // namespace memra::bench
