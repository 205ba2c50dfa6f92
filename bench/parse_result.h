#pragma once

namespace memra::bench {

// How the reading of a command line ended. On kExit (help, version, a list) and kUsageError
// everything has been printed.
enum class ParseResult { kRun, kExit, kUsageError };

}  // namespace memra::bench
