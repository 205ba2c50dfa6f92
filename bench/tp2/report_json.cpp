#include "json_parts.h"
#include "tp2/report.h"

namespace memra::bench::tp2 {
namespace {

using bench::to_json;
using nlohmann::json;

json to_json(const Iteration& iteration) {
  return {{"iteration", iteration.number},  {"valid", iteration.is_valid()},
          {"fault", iteration.fault},       {"warm", iteration.is_warm()},
          {"issue_us", iteration.issue_us}, {"join_us", iteration.join_us},
          {"span_us", iteration.span_us},   {"sum_us", iteration.sum_us()},
          {"max_us", iteration.max_us()}};
}

json to_json(const Together& together) {
  return {{"both_us", to_json(together.both_us)},
          {"overlap", to_json(together.overlap)},
          {"over_slower", to_json(together.over_slower)},
          {"shortest_overlap", together.shortest_overlap},
          {"class", classify(together)}};
}

json to_json(const OverlapResult& overlap, bool shared_device, const Options& options) {
  return {{"rank0_us", to_json(overlap.alone_us[0])},
          {"rank1_us", to_json(overlap.alone_us[1])},
          {"without_copies", to_json(overlap.without_copies)},
          {"with_copies", overlap.with_copies ? to_json(*overlap.with_copies) : json()},
          {"issue_us", to_json(overlap.issue_us)},
          {"overlap", to_json(overlap.judged().overlap)},
          {"shared_device", shared_device},
          {"class", classify(overlap.judged())},
          {"verdict", verdict(overlap, shared_device)},
          {"reading", reading(overlap, options)}};
}

json to_json(const OutputCounts& counts) {
  return {{"max_difference", counts.max_difference},
          {"differing", counts.differing},
          {"total", counts.outputs},
          {"non_zero", counts.non_zero},
          {"max", counts.max},
          {"nan", counts.nan},
          {"live", !counts.is_degenerate()}};
}

json to_json(const DeterminismCase& check) {
  json repetitions = json::array();
  for (const OutputCounts& counts : check.repetitions)
    repetitions.push_back(to_json(counts));
  return {{"name", check.name},
          {"repetitions", repetitions},
          {"differed", check.differing()},
          {"verdict", check.verdict()}};
}

json options_json(const Options& options) {
  return {{"iters", options.iters},
          {"tokens", options.shape.tokens},
          {"n_pairs", options.shape.n_pairs()},
          {"n_experts", options.shape.n_experts},
          {"top_k", options.shape.top_k},
          {"hidden_size", options.shape.hidden_size},
          {"intermediate_size", options.shape.intermediate_size},
          {"qt", options.format},
          {"randbank", options.random_bank},
          {"peercopy", options.peer_copy},
          {"copy_first", options.copy_first},
          {"copy_rows", options.copy_rows},
          {"root_busy", options.root_busy},
          {"layers", options.layers},
          {"fresh_alloc", options.fresh_alloc},
          {"determinism", options.determinism},
          {"determ_concurrent", options.determinism_concurrent}};
}

}  // namespace

void write_json(const Results& results) {
  const Options& options = *results.options;
  const Ranks& ranks = *results.ranks;
  json document = {{"library", library_json()},
                   {"ranks", {device_json(ranks[0]), device_json(ranks[1])}},
                   {"devices", results.devices},
                   {"copy_path", ranks.copy_path()},
                   {"options", options_json(options)},
                   {"n_active", results.n_active},
                   {"overlap", to_json(results.overlap, ranks.share_device(), options)},
                   {"peer_copy",
                    {{"bytes", results.peer_copy.bytes},
                     {"us", to_json(results.peer_copy.us)},
                     {"gb_per_s", results.peer_copy.gigabytes_per_second()}}},
                   {"status", results.status}};
  document["iterations"] = json::array();
  for (const Iteration& iteration : results.iterations)
    document["iterations"].push_back(to_json(iteration));
  const Iteration* best = best_warm(results.iterations);
  document["best_warm"] = best != nullptr ? to_json(*best) : json();
  document["determinism"] = json::array();
  for (const DeterminismCase& check : results.determinism)
    document["determinism"].push_back(to_json(check));
  document["trace"] = json();
  if (results.trace_error_us) {
    document["trace"] = {{"file", options.trace_path},
                         {"calibration_error_us", *results.trace_error_us}};
  }
  write_document(document, options.json_path);
}

}  // namespace memra::bench::tp2
