#include "sweep_options.h"

#include <algorithm>

#include "cli.h"
#include "console.h"
#include "layer_fixture.h"

namespace memra::bench {
namespace {

constexpr const char* kTool = "moe-rows-sweep";

constexpr const char* kDescription =
    "Measures whole calls of memra_moe_rows (bf16 in and out) against their roof: what it takes "
    "on\n"
    "the same device, in the same run, to read the weights of the call's experts once.";

constexpr const char* kFooter =
    "Exit status: 0 all well; 1 outputs are degenerate or differ, or a fault; 2 usage.";

// Intermediate sizes that fit no tile well, and a hidden size that does not either.
struct Width {
  int64_t hidden_size;
  int64_t intermediate_size;
};
constexpr Width kWidths[] = {{4096, 640},  {4096, 768},  {4096, 1408},
                             {4096, 1536}, {4096, 2880}, {2880, 2880}};

std::vector<int64_t> usual_tokens(const SweepOptions& options, bool on_cpu) {
  if (options.widths) return {1};
  if (on_cpu || options.models || options.model != nullptr) return {1, 4};
  return {1, 2, 4, 8, 16, 32, 64};
}

SweepCase make_case(const SweepOptions& options, bool on_cpu, Shape shape,
                    const Activation& activation) {
  if (options.top_k_given) shape.top_k = options.shape.top_k;
  shape.n_experts = options.experts_given ? options.shape.n_experts : usual_experts(shape, on_cpu);
  SweepCase result;
  result.name = format("%lld->%lld", static_cast<long long>(shape.hidden_size),
                       static_cast<long long>(shape.intermediate_size));
  result.tokens = options.tokens.empty() ? usual_tokens(options, on_cpu) : options.tokens;
  shape.tokens = *std::max_element(result.tokens.begin(), result.tokens.end());
  result.shape = shape;
  result.activation = activation;
  result.stages = options.widths;
  return result;
}

}  // namespace

std::vector<SweepCase> sweep_cases(const SweepOptions& options, bool on_cpu) {
  std::vector<SweepCase> cases;
  if (options.models || options.model != nullptr) {
    for (const ModelShape& model : model_shapes()) {
      if (options.model != nullptr && options.model != &model) continue;
      cases.push_back(make_case(options, on_cpu, model.shape(), model.activation_options()));
      cases.back().name = model.name;
      cases.back().model = model.name;
    }
  } else if (options.widths) {
    for (const Width& width : kWidths) {
      Shape shape = options.shape;
      shape.hidden_size = width.hidden_size;
      shape.intermediate_size = width.intermediate_size;
      cases.push_back(make_case(options, on_cpu, shape, {}));
    }
  } else {
    cases.push_back(make_case(options, on_cpu, options.shape, {}));
  }
  return cases;
}

ParseResult parse_sweep_options(int argc, char** argv, SweepOptions* options) {
  CLI::App app{kDescription, kTool};
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  const CLI::Validator sizes = range(1, MEMRA_MAX_DIMENSION);
  Shape& shape = options->shape;
  std::string model;
  app.add_option("--tokens", options->tokens,
                 "token counts, comma-separated (GPU 1,2,4,8,16,32,64; CPU and models 1,4; "
                 "--widths 1)")
      ->delimiter(',')
      ->check(range(1, MEMRA_ROWS_MAX_TOKENS));
  auto* hidden = app.add_option("--hidden", shape.hidden_size, "hidden_size (4096)")->check(sizes);
  auto* intermediate =
      app.add_option("--intermediate", shape.intermediate_size, "intermediate_size (2048)")
          ->check(sizes);
  auto* experts = app.add_option("--experts", shape.n_experts,
                                 "n_experts (64, or the model's; on the CPU 16 at most)")
                      ->check(range(1, MEMRA_MAX_DIMENSION));
  auto* top_k = app.add_option("--top-k", shape.top_k, "experts per token (8, or the model's)")
                    ->check(range(1, MEMRA_MAX_TOP_K));
  auto* one = app.add_option("--model", model, "a published model, see --list-models");
  auto* models = app.add_flag("--models", options->models, "all published models");
  auto* widths = app.add_flag("--widths", options->widths,
                              "awkward widths, and there each stage alone against the stream arm");
  for (CLI::Option* shapes : {one, models, widths}) {
    for (CLI::Option* other : {one, models, widths, hidden, intermediate}) {
      if (other != shapes) shapes->excludes(other);
    }
  }
  app.add_flag("--variants", options->variants,
               "also time every explicit variant, and compare AUTO with the fastest");
  app.add_option("--iters", options->iters, "samples per figure (GPU 9, CPU 7)")
      ->check(range(1, 1 << 30));
  add_engine_options(&app, &options->engine);
  add_json_option(&app, &options->json_path);
  if (const ParseResult result = parse_or_list(&app, kTool, argc, argv);
      result != ParseResult::kRun) {
    return result;
  }
  options->experts_given = experts->count() > 0;
  options->top_k_given = top_k->count() > 0;
  if (!model.empty()) {
    options->model = find_model(model);
    if (options->model == nullptr) {
      return usage_error(kTool, "--model: no model '" + model + "'; see --list-models");
    }
  }
  for (const SweepCase& sweep_case : sweep_cases(*options, false)) {
    const std::string text = objection(sweep_case.shape);
    if (!text.empty()) return usage_error(kTool, text);
  }
  return ParseResult::kRun;
}

}  // namespace memra::bench
