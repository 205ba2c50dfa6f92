// What the command lines of the benchmarks have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "parse_result.h"
#include "session.h"
#include "shape.h"

namespace memra::bench {

// --backend, --device and --threads.
void add_engine_options(CLI::App* app, EngineChoice* engine);

// --list-models (into `list`, for list_models()) and --version.
void add_information(CLI::App* app, const std::string& tool, bool* list);
void list_models();

// The help names no ranges: a value outside is answered with its range.
CLI::Validator range(int64_t low, int64_t high);
CLI::Validator positive_number();

// "" where the dimensions can be run, else what is wrong, in the words of the options.
std::string objection(const Shape& shape);

// Prints the text as the tool's, and says where help is.
ParseResult usage_error(const std::string& tool, const std::string& text);

ParseResult parse(CLI::App* app, int argc, char** argv);

}  // namespace memra::bench
