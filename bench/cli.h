// What the command lines of the benchmarks have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parse_result.h"
#include "session.h"
#include "shape.h"

namespace memra::bench {

// --backend, --device and --threads.
void add_engine_options(CLI::App* app, EngineChoice* engine);
void add_backend_option(CLI::App* app, memra_backend* backend);

// Options that a variable of the environment gives where the command line does not.
class Variables {
 public:
  // Names the variable in the option's help, too.
  CLI::Option* add(CLI::Option* option, const char* name);
  // After parse(): kUsageError where a value is wrong, which names the variable; else kRun.
  ParseResult read(const std::string& tool) const;

 private:
  std::vector<std::pair<CLI::Option*, const char*>> variables_;
};

// --json.
void add_json_option(CLI::App* app, std::string* path);

void add_version(CLI::App* app, const std::string& tool);

// The help names no ranges: a value outside is answered with its range.
CLI::Validator range(int64_t low, int64_t high);
CLI::Validator positive_number();

// "" where the dimensions can be run, else what is wrong, in the words of the options.
std::string objection(const Shape& shape);

// Prints the text as the tool's, and says where help is.
ParseResult usage_error(const std::string& tool, const std::string& text);

ParseResult parse(CLI::App* app, int argc, char** argv);
// The same with --version and --list-models; kExit where the models have been listed.
ParseResult parse_or_list(CLI::App* app, const std::string& tool, int argc, char** argv);

}  // namespace memra::bench
