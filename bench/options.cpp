#include "options.h"

#include <map>

#include "cli.h"
#include "models.h"

namespace memra::bench {
namespace {

const std::map<std::string, memra_activation> kActivations = {
    {"swiglu", MEMRA_SWIGLU},
    {"preclamp", MEMRA_SWIGLU_PRECLAMP},
    {"postclamp", MEMRA_SWIGLU_POSTCLAMP},
    {"oai", MEMRA_SWIGLU_OAI},
};

constexpr const char* kTool = "moe-rows-ceiling";

constexpr const char* kDescription =
    "Measures how close memra's rows kernels (NVFP4 MoE layers, few tokens) come to what the\n"
    "memory allows, and tells whether loads or arithmetic hold them back. Before any timing it\n"
    "checks that all variants return the same bits.";

constexpr const char* kFooter =
    "Exit status: 0 all well; 1 outputs differ, the check was vacuous, or a fault; 2 usage.";

// What was given on the command line wins over what a model says.
struct Given {
  const CLI::Option* hidden;
  const CLI::Option* intermediate;
  const CLI::Option* experts;
  const CLI::Option* top_k;
  const CLI::Option* activation;
  const CLI::Option* limit;
  const CLI::Option* alpha;
};

void apply_model(const ModelShape& model, const Given& given, Options* options) {
  const auto absent = [](const CLI::Option* option) { return option->count() == 0; };
  if (absent(given.hidden)) options->shape.hidden_size = model.hidden_size;
  if (absent(given.intermediate)) options->shape.intermediate_size = model.intermediate_size;
  if (absent(given.experts)) options->shape.n_experts = model.n_experts;
  if (absent(given.top_k)) options->shape.top_k = model.top_k;
  if (absent(given.activation)) options->activation.kind = model.activation;
  if (absent(given.limit) && model.limit > 0) options->activation.limit = model.limit;
  if (absent(given.alpha) && model.alpha > 0) options->activation.alpha = model.alpha;
}

}  // namespace

ParseResult parse_options(int argc, char** argv, Options* options) {
  CLI::App app{kDescription, kTool};
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  const CLI::Validator positive = range(1, 1 << 30);
  const CLI::Validator sizes = range(1, MEMRA_MAX_DIMENSION);

  app.add_option("iters", options->iters, "samples per figure (GPU 7, CPU 5)")->check(positive);
  app.add_option("reps", options->reps, "launches per sample (GPU 100, CPU 3)")->check(positive);
  app.add_option("copies", options->copies,
                 "slab sets that launches rotate over (GPU 4, CPU 2); more are taken where they "
                 "would not fill the caches")
      ->check(range(1, 4096));

  Given given = {};
  Shape& shape = options->shape;
  given.hidden = app.add_option("--hidden", shape.hidden_size, "hidden_size (4096)")->check(sizes);
  given.intermediate =
      app.add_option("--intermediate", shape.intermediate_size, "intermediate_size (2048)")
          ->check(sizes);
  given.experts =
      app.add_option("--experts", shape.n_experts, "n_experts (64)")->check(range(1, 1 << 20));
  given.top_k = app.add_option("--top-k", shape.top_k, "experts per token (8)")
                    ->check(range(1, MEMRA_MAX_TOP_K));
  app.add_option("--tokens", shape.tokens, "tokens of a launch (1)")
      ->check(range(1, MEMRA_ROWS_MAX_TOKENS));
  given.activation =
      app.add_option("--activation", options->activation.kind,
                     "swiglu, preclamp, postclamp or oai (preclamp)")
          ->transform(CLI::CheckedTransformer(kActivations, CLI::ignore_case).description(""));
  given.limit = app.add_option("--limit", options->activation.limit, "clamp limit (7)")
                    ->check(positive_number());
  given.alpha = app.add_option("--alpha", options->activation.alpha, "alpha of oai (1.702)")
                    ->check(positive_number());
  app.add_option("--model", options->model, "dimensions of a published model, see --list-models");
  auto* gguf =
      app.add_option("--gguf", options->gguf_path,
                     "take NVFP4 expert weights of this GGUF file instead of synthetic ones");
  auto* layer = app.add_option("--layer", options->gguf_layer, "layer (block) of the GGUF file");
  layer->needs(gguf);
  gguf->needs(layer);
  for (const CLI::Option* option : {given.hidden, given.intermediate, given.experts}) {
    gguf->excludes(const_cast<CLI::Option*>(option));
  }
  add_engine_options(&app, &options->engine);
  app.add_option("--arms", options->arms,
                 "comma-separated parts of arm names, such as gate_up.v2,stream; the served arms "
                 "always run");
  app.add_flag("--inputs-stable", options->inputs_stable,
               "tell the kernels that ids, tables and slabs are stable, so that they may prefetch");
  add_json_option(&app, &options->json_path);
  if (const ParseResult result = parse_or_list(&app, kTool, argc, argv);
      result != ParseResult::kRun) {
    return result;
  }
  options->top_k_given = given.top_k->count() > 0;
  options->activation_given = given.activation->count() > 0 || given.limit->count() > 0;
  if (!options->model.empty()) {
    if (!options->gguf_path.empty()) return usage_error(kTool, "--model excludes --gguf");
    const ModelShape* model = find_model(options->model);
    if (model == nullptr) {
      return usage_error(kTool, "--model: no model '" + options->model + "'; see --list-models");
    }
    options->model = model->name;
    apply_model(*model, given, options);
  }
  Shape checked = shape;
  // A file's own number of experts is not known yet.
  if (!options->gguf_path.empty()) checked.n_experts = checked.top_k;
  const std::string text = objection(checked);
  if (!text.empty()) return usage_error(kTool, text);
  return ParseResult::kRun;
}

}  // namespace memra::bench
