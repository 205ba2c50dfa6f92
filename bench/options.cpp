#include "options.h"

#include <CLI/CLI.hpp>
#include <map>

#include "console.h"
#include "models.h"

namespace memra::bench {
namespace {

const std::map<std::string, memra_activation> kActivations = {
    {"swiglu", MEMRA_SWIGLU},
    {"preclamp", MEMRA_SWIGLU_PRECLAMP},
    {"postclamp", MEMRA_SWIGLU_POSTCLAMP},
    {"oai", MEMRA_SWIGLU_OAI},
};

const std::map<std::string, memra_backend> kBackends = {
    {"auto", MEMRA_BACKEND_AUTO},
    {"cuda", MEMRA_BACKEND_CUDA},
    {"cpu", MEMRA_BACKEND_CPU},
};

constexpr const char* kDescription =
    "Measures how close memra's rows kernels (NVFP4 MoE layers, few tokens) come to what the\n"
    "memory allows, and tells whether loads or arithmetic hold them back. Before any timing it\n"
    "checks that all variants return the same bits.";

constexpr const char* kFooter =
    "Exit status: 0 all well; 1 outputs differ, the check was vacuous, or a fault; 2 usage.";

void list_models() {
  Table table(
      {"model", "hidden", "intermediate", "experts", "top_k", "activation", "limit", "source"});
  std::string notes;
  for (const ModelShape& model : model_shapes()) {
    table.add({std::string(model.name), std::to_string(model.hidden_size),
               std::to_string(model.intermediate_size), std::to_string(model.n_experts),
               std::to_string(model.top_k), activation_name(model.activation),
               model.limit > 0 ? format("%g", model.limit) : "-", std::string(model.source)});
    if (!model.note.empty()) {
      notes += std::string(model.name) + ": " + std::string(model.note) + "\n";
    }
  }
  table.print(stdout);
  std::fputs(notes.c_str(), stdout);
}

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

CLI::Validator positive_number() {
  const auto check = [](const std::string& text) {
    float value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && value > 0;
    return good ? std::string() : text + " is not a positive number";
  };
  return CLI::Validator(check, "");
}

// The help names no ranges: a value outside is answered with its range.
CLI::Validator range(int64_t low, int64_t high) {
  return CLI::Range(low, high).description("");
}

ParseResult usage_error(const std::string& text) {
  std::fprintf(stderr, "moe-rows-ceiling: %s\nRun with --help for more information.\n",
               text.c_str());
  return ParseResult::kUsageError;
}

}  // namespace

const char* activation_name(memra_activation kind) {
  for (const auto& [name, value] : kActivations) {
    if (value == kind) return name.c_str();
  }
  return "unknown";
}

ParseResult parse_options(int argc, char** argv, Options* options) {
  CLI::App app{kDescription, "moe-rows-ceiling"};
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
  app.add_option("--backend", options->backend, "auto, cuda or cpu (auto)")
      ->transform(CLI::CheckedTransformer(kBackends, CLI::ignore_case).description(""));
  app.add_option("--device", options->device, "CUDA device (0)")->check(range(0, 1 << 20));
  app.add_option("--threads", options->threads, "CPU threads (all)")->check(positive);
  app.add_option("--arms", options->arms,
                 "comma-separated parts of arm names, such as gate_up.v2,stream; the served arms "
                 "always run");
  app.add_flag("--inputs-stable", options->inputs_stable,
               "tell the kernels that ids, tables and slabs are stable, so that they may prefetch");
  app.add_option("--json", options->json_path,
                 "also write the results to this file ('-': stdout, and the text to stderr)");
  bool list = false;
  app.add_flag("--list-models", list, "print the models that --model knows");
  app.set_version_flag("--version", [] {
    const uint32_t v = memra_version();
    return format("moe-rows-ceiling, memra %u.%u.%u", v / 10000, v / 100 % 100, v % 100);
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ParseResult::kExit : ParseResult::kUsageError;
  }
  if (list) {
    list_models();
    return ParseResult::kExit;
  }
  options->top_k_given = given.top_k->count() > 0;
  options->activation_given = given.activation->count() > 0 || given.limit->count() > 0;
  if (!options->model.empty()) {
    if (!options->gguf_path.empty()) return usage_error("--model excludes --gguf");
    const ModelShape* model = find_model(options->model);
    if (model == nullptr) {
      return usage_error("--model: no model '" + options->model + "'; see --list-models");
    }
    options->model = model->name;
    apply_model(*model, given, options);
  }
  for (const auto& [name, value] : {std::pair("--hidden", shape.hidden_size),
                                    std::pair("--intermediate", shape.intermediate_size)}) {
    if (value % MEMRA_COLUMN_MULTIPLE != 0) {
      return usage_error(format("%s %lld is no multiple of %d", name, static_cast<long long>(value),
                                MEMRA_COLUMN_MULTIPLE));
    }
  }
  if (options->gguf_path.empty() && shape.top_k > shape.n_experts) {
    return usage_error(format("--top-k %lld is more than --experts %lld",
                              static_cast<long long>(shape.top_k),
                              static_cast<long long>(shape.n_experts)));
  }
  return ParseResult::kRun;
}

}  // namespace memra::bench
