#include "grouped_options.h"

#include <algorithm>
#include <map>
#include <span>

#include "cli.h"
#include "console.h"
#include "grouped_measure.h"

namespace memra::bench {
namespace {

constexpr const char* kTool = "moe-grouped-ceiling";

constexpr const char* kDescription =
    "Measures memra's grouped path (prefill of NVFP4 MoE layers: its products, its stages and the\n"
    "whole layer) beside dense f16 products of the same total size by cuBLAS, in short bursts and\n"
    "under sustained load, and its error against f64.";

constexpr const char* kFooter =
    "Exit status: 0 all well, whatever the speed; 1 an error beyond what memra.h promises, or a\n"
    "fault; 2 usage.";

// Where the sweep of memra_moe ends.
constexpr int64_t kValleyEnd = 4096;
constexpr int64_t kCpuValleyEnd = 64;

const std::vector<GroupedCase>& known_cases() {
  static const std::vector<GroupedCase> cases = {
      {"reference", {4096, 640, 288, 8, 0}, 1.35, {64, 576, 4096}},
      {"uniform-128", {4096, 1536, 128, 8, 0}, 1, {8192}},
      {"uniform-256", {7168, 2048, 256, 8, 0}, 1, {4096}},
      // For the CPU: the others would take minutes there.
      {"small", {1024, 256, 16, 4, 0}, 1.35, {16, 64}}};
  return cases;
}

const std::map<std::string, memra_format> kFormats = {{"v1", MEMRA_NVFP4}, {"v2", MEMRA_NVFP4_V2}};
const std::map<std::string, Regime> kRegimeNames = {{"burst", Regime::kBurst},
                                                    {"sustained", Regime::kSustained}};

bool has_dimensions(const GroupedOptions& options) {
  return options.model != nullptr || options.shape != Shape{0, 0, 0, 0, 0} || options.skew > 0;
}

// What was given, of the case's, or the model's dimensions.
GroupedCase with_dimensions(GroupedCase base, const GroupedOptions& options) {
  if (options.model != nullptr) base.shape = options.model->shape();
  const Shape& given = options.shape;
  const auto take = [](int64_t value, int64_t* field) {
    if (value > 0) *field = value;
  };
  take(given.hidden_size, &base.shape.hidden_size);
  take(given.intermediate_size, &base.shape.intermediate_size);
  take(given.n_experts, &base.shape.n_experts);
  take(given.top_k, &base.shape.top_k);
  if (options.skew > 0) base.skew = options.skew;
  base.name = options.model != nullptr
                  ? std::string(options.model->name)
                  : format("%lld->%lld", static_cast<long long>(base.shape.hidden_size),
                           static_cast<long long>(base.shape.intermediate_size));
  return base;
}

// Powers of two and one beside each.
std::vector<int64_t> valley_tokens(int64_t end) {
  std::vector<int64_t> tokens;
  for (int64_t power = 1; power <= end; power *= 2) {
    for (const int64_t count : {power - 1, power, power + 1}) {
      if (count >= 1 && count <= end && (tokens.empty() || count > tokens.back()))
        tokens.push_back(count);
    }
  }
  return tokens;
}

std::vector<GroupedCase> chosen_cases(const GroupedOptions& options, bool on_cpu) {
  const std::vector<GroupedCase>& known = known_cases();
  const GroupedCase& usual = on_cpu ? known.back() : known.front();
  if (has_dimensions(options)) return {with_dimensions(usual, options)};
  std::vector<GroupedCase> cases;
  for (const std::string& name : options.cases) {
    for (const GroupedCase& known_case : known) {
      if (known_case.name == name) cases.push_back(known_case);
    }
  }
  if (!cases.empty()) return cases;
  if (on_cpu || options.valley) return {usual};
  return {known.begin(), known.end() - 1};
}

CLI::Validator case_name() {
  const auto check = [](const std::string& text) {
    std::string names;
    for (const GroupedCase& known : known_cases()) {
      if (known.name == text) return std::string();
      names += " " + known.name;
    }
    return "no case '" + text + "'; the cases are" + names;
  };
  return CLI::Validator(check, "");
}

CLI::Validator arm_part() {
  const auto check = [](const std::string& text) {
    std::string names;
    for (const std::string_view name : grouped_arm_names()) {
      if (name.find(text) != std::string_view::npos) return std::string();
      names.append(" ").append(name);
    }
    return "no arm's name contains '" + text + "'; the arms are" + names;
  };
  return CLI::Validator(check, "");
}

template <typename Value>
void add_list(CLI::App* app, const std::string& name, std::vector<Value>* values,
              const std::map<std::string, Value>& names, const std::string& help) {
  const auto to_number = [&names](std::string& text) {
    if (const auto found = names.find(text); found != names.end()) {
      text = std::to_string(static_cast<int>(found->second));
      return std::string();
    }
    std::string error = "no '" + text + "'; there are";
    for (const auto& [known, value] : names)
      error += " " + known;
    return error;
  };
  app->add_option(name, *values, help)
      ->delimiter(',')
      ->transform(CLI::Validator(to_number, ""))
      ->type_name("TEXT");
}

void add_dimensions(CLI::App* app, GroupedOptions* options, std::string* model) {
  const CLI::Validator sizes = range(1, MEMRA_MAX_DIMENSION);
  Shape& shape = options->shape;
  auto* cases = app->add_option("--case", options->cases,
                                "reference, uniform-128, uniform-256, small; comma-separated "
                                "(GPU: the first three, CPU: small)");
  cases->delimiter(',')->check(case_name());
  CLI::Option* dimensions[] = {
      app->add_option("--model", *model, "a published model, see --list-models"),
      app->add_option("--hidden", shape.hidden_size, "hidden_size (of the first case)")
          ->check(sizes),
      app->add_option("--intermediate", shape.intermediate_size, "intermediate_size (likewise)")
          ->check(sizes),
      app->add_option("--experts", shape.n_experts, "n_experts (likewise)")->check(sizes),
      app->add_option("--top-k", shape.top_k, "experts per token (likewise)")
          ->check(range(1, MEMRA_MAX_TOP_K)),
      app->add_option("--skew", options->skew,
                      "expert = floor(u^skew * n_experts), u uniform (likewise)")
          ->check(positive_number())};
  for (CLI::Option* dimension : dimensions)
    dimension->excludes(cases);
}

}  // namespace

std::vector<GroupedCase> grouped_cases(const GroupedOptions& options, bool on_cpu) {
  std::vector<GroupedCase> cases = chosen_cases(options, on_cpu);
  for (GroupedCase& grouped_case : cases) {
    if (!options.tokens.empty()) grouped_case.tokens = options.tokens;
    if (options.valley) {
      const int64_t usual_end = on_cpu ? kCpuValleyEnd : kValleyEnd;
      grouped_case.tokens =
          valley_tokens(options.tokens.empty() ? usual_end : options.tokens.back());
    }
    grouped_case.shape.tokens =
        *std::max_element(grouped_case.tokens.begin(), grouped_case.tokens.end());
  }
  return cases;
}

std::vector<GroupedRun> grouped_runs(const GroupedOptions& options, bool on_cpu) {
  const std::vector<GroupedCase> cases = grouped_cases(options, on_cpu);
  std::vector<GroupedRun> runs;
  for (const memra_format weight_format : options.formats) {
    for (const GroupedCase& layer : cases) {
      runs.push_back({layer, weight_format, options.valley});
      if (!options.bars || weight_format == MEMRA_NVFP4_V2) continue;
      // Bars ask for V1 in the longest call of the first case alone.
      runs.back().layer.tokens = {layer.shape.tokens};
      break;
    }
  }
  if (options.bars) {
    GroupedOptions valley = options;
    valley.valley = true;
    runs.push_back({grouped_cases(valley, on_cpu).front(), options.formats.front(), true});
  }
  return runs;
}

RegimeSettings regime_settings(const GroupedOptions& options, bool on_cpu) {
  RegimeSettings settings;
  if (on_cpu) {
    settings.rounds = 1;
    settings.pause_ms = 0;
    settings.warm_ms = 20;
    settings.min_sample_us = 0;
  }
  if (options.rounds > 0) settings.rounds = options.rounds;
  if (options.pause_ms >= 0) settings.pause_ms = options.pause_ms;
  if (options.warm_ms >= 0) settings.warm_ms = options.warm_ms;
  return settings;
}

ParseResult parse_grouped_options(int argc, char** argv, GroupedOptions* options) {
  CLI::App app{kDescription, kTool};
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  std::string model;
  add_dimensions(&app, options, &model);
  app.add_option("--tokens", options->tokens,
                 "token counts, comma-separated (of the case); a valley ends with the most")
      ->delimiter(',')
      ->check(range(1, 1 << 20));
  add_list(&app, "--formats", &options->formats, kFormats, "v1, v2; comma-separated (both)");
  add_list(&app, "--regimes", &options->regimes, kRegimeNames,
           "burst, sustained; comma-separated (both)");
  app.add_option("--arms", options->arms,
                 "comma-separated parts of arm names, such as gate_up,layer (all)")
      ->delimiter(',')
      ->check(arm_part());
  auto* valley =
      app.add_flag("--valley", options->valley,
                   "time memra_moe over token counts instead, powers of two and one beside each");
  app.add_flag(
         "--bars", options->bars,
         "measure what the bars of an H200 need, a valley among it, and say how far from each")
      ->excludes(valley);
  app.add_flag("--both-paths", options->both_paths,
               "with --valley or --bars: time each path as well in the valley");
  app.add_flag("--skip-accuracy", options->skip_accuracy, "do not compare with f64");
  app.add_option("--banks", options->banks, "banks that launches rotate over (3)")
      ->check(range(1, 64));
  app.add_option("--rounds", options->rounds, "rounds of 5 samples a figure (GPU 3, CPU 1)")
      ->check(range(1, 1000));
  app.add_option("--pause-ms", options->pause_ms, "pause before a burst (GPU 300, CPU 0)")
      ->check(range(0, 60000));
  app.add_option("--warm-ms", options->warm_ms, "load before sustained samples (GPU 500, CPU 20)")
      ->check(range(0, 60000));
  add_engine_options(&app, &options->engine);
  add_json_option(&app, &options->json_path);
  if (const ParseResult result = parse_or_list(&app, kTool, argc, argv);
      result != ParseResult::kRun) {
    return result;
  }
  if (options->both_paths && !options->valley && !options->bars)
    return usage_error(kTool, "--both-paths needs --valley or --bars");
  std::vector<int64_t>& tokens = options->tokens;
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  if (!model.empty()) {
    options->model = find_model(model);
    if (options->model == nullptr) {
      return usage_error(kTool, "--model: no model '" + model + "'; see --list-models");
    }
  }
  for (const bool on_cpu : {false, true}) {
    for (const GroupedCase& grouped_case : grouped_cases(*options, on_cpu)) {
      const std::string text = objection(grouped_case.shape);
      if (!text.empty()) return usage_error(kTool, text);
    }
  }
  return ParseResult::kRun;
}

}  // namespace memra::bench
