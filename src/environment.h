#pragma once

// The environment variables, as memra_engine_create finds them.

#include <cstdint>
#include <string>

#include "memra.h"
#include "status.h"

namespace memra {

inline constexpr int32_t kMaxCpuThreads = 4096;

struct Environment {
  memra_backend backend = MEMRA_BACKEND_AUTO;
  int32_t cpu_threads = 0;
  std::string cpu_simd;  // one of cpu_simd_paths(), or "": the best
  int32_t log_level = MEMRA_LOG_OFF;
  uint32_t rows_preferred = 0;  // MEMRA_ROWS_* bits whose variable is 1
  uint32_t rows_excluded = 0;   // ... is 0
};

// For memra_engine_create alone: nothing else may call getenv.
Status read_environment(Environment* environment);

}  // namespace memra
