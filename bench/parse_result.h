#pragma once

#include <functional>

namespace memra::bench {

// How the reading of a command line ended. On kExit (help, version, a list) and kUsageError
// everything has been printed.
enum class ParseResult { kRun, kExit, kUsageError };

// Exit statuses of the tools.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

// A tool's main: reads the command line, and runs where that says so. What is thrown is printed as
// the tool's own fault.
int run_tool(const char* tool, const std::function<ParseResult()>& parse,
             const std::function<int()>& run);

}  // namespace memra::bench
