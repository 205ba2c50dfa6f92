#include "cli.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>

#include "console.h"
#include "models.h"
#include "setup.h"

namespace memra::bench {
namespace {

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

const std::map<std::string, memra_backend> kBackends = {
    {"auto", MEMRA_BACKEND_AUTO},
    {"cuda", MEMRA_BACKEND_CUDA},
    {"cpu", MEMRA_BACKEND_CPU},
};

}  // namespace

void add_backend_option(CLI::App* app, memra_backend* backend) {
  app->add_option("--backend", *backend, "auto, cuda or cpu (auto)")
      ->transform(CLI::CheckedTransformer(kBackends, CLI::ignore_case).description(""));
}

CLI::Option* Variables::add(CLI::Option* option, const char* name) {
  variables_.emplace_back(option, name);
  return option->description(option->get_description() + ", " + name);
}

ParseResult Variables::read(const std::string& tool) const {
  for (const auto& [option, name] : variables_) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no other thread yet
    if (option->count() > 0 || value == nullptr) continue;
    try {
      option->add_result(std::string(value));
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      return usage_error(tool, std::string(name) + ": " + error.what());
    }
  }
  return ParseResult::kRun;
}

void add_engine_options(CLI::App* app, EngineChoice* engine) {
  add_backend_option(app, &engine->backend);
  app->add_option("--device", engine->device, "CUDA device (0)")->check(range(0, 1 << 20));
  app->add_option("--threads", engine->threads, "CPU threads (all)")->check(range(1, 1 << 30));
}

void add_json_option(CLI::App* app, std::string* path) {
  app->add_option("--json", *path,
                  "also write the results to this file ('-': stdout, and the text to stderr)");
}

void add_version(CLI::App* app, const std::string& tool) {
  app->set_version_flag("--version", [tool] { return tool_and_version(tool); });
}

CLI::Validator range(int64_t low, int64_t high) {
  return CLI::Range(low, high).description("");
}

CLI::Validator positive_number() {
  const auto check = [](const std::string& text) {
    float value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && value > 0;
    return good ? std::string() : text + " is not a positive number";
  };
  return CLI::Validator(check, "");
}

std::string objection(const Shape& shape) {
  for (const auto& [name, value] : {std::pair("--hidden", shape.hidden_size),
                                    std::pair("--intermediate", shape.intermediate_size)}) {
    if (value % MEMRA_COLUMN_MULTIPLE != 0) {
      return format("%s %lld is no multiple of %d", name, static_cast<long long>(value),
                    MEMRA_COLUMN_MULTIPLE);
    }
  }
  if (shape.top_k > shape.n_experts) {
    return format("--top-k %lld is more than --experts %lld", static_cast<long long>(shape.top_k),
                  static_cast<long long>(shape.n_experts));
  }
  return "";
}

ParseResult usage_error(const std::string& tool, const std::string& text) {
  std::fprintf(stderr, "%s: %s\nRun with --help for more information.\n", tool.c_str(),
               text.c_str());
  return ParseResult::kUsageError;
}

int run_tool(const char* tool, const std::function<ParseResult()>& parse,
             const std::function<int()>& run) {
  try {
    switch (parse()) {
      case ParseResult::kExit:
        return kOk;
      case ParseResult::kUsageError:
        return kUsage;
      case ParseResult::kRun:
        break;
    }
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", tool, error.what());
    return kFailed;
  }
}

ParseResult parse(CLI::App* app, int argc, char** argv) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app->exit(error) == 0 ? ParseResult::kExit : ParseResult::kUsageError;
  }
  return ParseResult::kRun;
}

ParseResult parse_or_list(CLI::App* app, const std::string& tool, int argc, char** argv) {
  bool list = false;
  app->add_flag("--list-models", list, "print the models that --model knows");
  add_version(app, tool);
  const ParseResult result = parse(app, argc, argv);
  if (result != ParseResult::kRun || !list) return result;
  list_models();
  return ParseResult::kExit;
}

}  // namespace memra::bench
