#include "grouped_bars.h"
#include "grouped_report.h"
#include "json_parts.h"

namespace memra::bench {
namespace {

using nlohmann::json;

std::string key(Regime regime) {
  return std::string(regime_name(regime)) + "_us";
}

json to_json(const Accuracy& accuracy) {
  json worst = json::array();
  for (const WorstColumns& columns : accuracy.worst) {
    worst.push_back({{"modulus", columns.modulus},
                     {"column", columns.column},
                     {"relative_l2", columns.relative_l2}});
  }
  return {{"relative_l2", accuracy.relative_l2}, {"outputs", accuracy.outputs}, {"worst", worst}};
}

json to_json(const Shape& shape) {
  return {{"hidden_size", shape.hidden_size},
          {"intermediate_size", shape.intermediate_size},
          {"n_experts", shape.n_experts},
          {"top_k", shape.top_k}};
}

json to_json(const GroupedTiming& timing) {
  json result = {{"arm", timing.name}, {"flops", timing.flops}, {"bytes", timing.bytes}};
  for (const Regime regime : kRegimes) {
    if (timing.of(regime).median > 0) result[key(regime)] = to_json(timing.of(regime));
  }
  return result;
}

json to_json(const GroupedRow& row) {
  json result = {{"case", row.case_name},
                 {"shape", to_json(row.shape)},
                 {"skew", row.skew},
                 {"format", format_name(row.format)},
                 {"tokens", row.shape.tokens},
                 {"pairs", row.shape.n_pairs()},
                 {"active_experts", row.active},
                 {"pairs_per_expert",
                  {{"min", row.pairs_min}, {"median", row.pairs_median}, {"max", row.pairs_max}}},
                 {"gate_up_kernel", row.gate_up_kernel},
                 {"down_kernel", row.down_kernel}};
  result["arms"] = json::array();
  for (const GroupedTiming& timing : row.timings)
    result["arms"].push_back(to_json(timing));
  result["ratios"] = json::array();
  for (const GroupedRatio& ratio : grouped_ratios(row)) {
    json entry = {{"name", ratio.name}};
    for (const Regime regime : kRegimes) {
      if (ratio.of(regime) > 0) entry[regime_name(regime)] = ratio.of(regime);
    }
    result["ratios"].push_back(entry);
  }
  if (row.accuracy) {
    result["accuracy"] = {{"gate", to_json(row.accuracy->planes[kGate])},
                          {"up", to_json(row.accuracy->planes[kUp])},
                          {"down", to_json(row.accuracy->planes[kDown])},
                          {"layer", to_json(row.accuracy->layer)},
                          {"within_limits", row.accuracy->within_limits()}};
  }
  return result;
}

json to_json(const Valley& valley) {
  json result = {{"case", valley.case_name},
                 {"shape", to_json(valley.shape)},
                 {"skew", valley.skew},
                 {"format", format_name(valley.format)},
                 {"grouped_min_tokens", valley.grouped_min_tokens},
                 {"verdict", valley_verdict(valley)}};
  if (const PathCrossing crossing = find_crossing(valley.points); crossing.is_timed()) {
    result["crossing"] = {{"last_rows", crossing.last_rows},
                          {"first_grouped", crossing.first_grouped},
                          {"text", crossing_text(valley)}};
  }
  result["points"] = json::array();
  for (const ValleyPoint& point : valley.points) {
    json entry = {{"tokens", point.tokens},
                  {"path", point.grouped ? "grouped" : "rows"},
                  {"us", to_json(point.us)},
                  {"fall", point.fall},
                  {"marked", valley.is_marked(point)}};
    if (point.rows_us) entry["rows_us"] = to_json(*point.rows_us);
    if (point.grouped_us) entry["grouped_us"] = to_json(*point.grouped_us);
    result["points"].push_back(entry);
  }
  return result;
}

json to_json(const Bar& bar) {
  json result = {{"name", bar.name},         {"regime", bar.regime},    {"unit", bar.unit},
                 {"at_least", bar.at_least}, {"bar", bar.bar},          {"aim", bar.aim},
                 {"met", bar.is_met()},      {"verdict", bar.verdict()}};
  if (bar.measured) result["measured"] = *bar.measured;
  return result;
}

}  // namespace

void write_grouped_json(const GroupedResults& results) {
  const RegimeSettings& settings = results.settings;
  json document = {{"library", library_json()},
                   {"device", device_json(*results.session)},
                   {"dense", results.dense},
                   {"sampling",
                    {{"banks", results.options->banks},
                     {"rounds", settings.rounds},
                     {"samples", settings.samples},
                     {"burst_warmups", settings.burst_warmups},
                     {"pause_ms", settings.pause_ms},
                     {"warm_ms", settings.warm_ms}}},
                   {"notes", results.notes}};
  document["rows"] = json::array();
  for (const GroupedRow& row : results.rows)
    document["rows"].push_back(to_json(row));
  document["valleys"] = json::array();
  for (const Valley& valley : results.valleys)
    document["valleys"].push_back(to_json(valley));
  if (results.options->bars) {
    document["bars"] = json::array();
    for (const Bar& bar : judge_bars(results.rows, results.valleys))
      document["bars"].push_back(to_json(bar));
  }
  write_document(document, results.options->json_path);
}

}  // namespace memra::bench
