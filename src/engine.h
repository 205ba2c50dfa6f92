#pragma once

// What handles share. Each holds its engine's state, so the order of destruction does not matter.

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "backend.h"
#include "memra.h"
#include "rows_variants.h"
#include "status.h"

namespace memra {

struct Log {
  memra_log_callback callback = nullptr;
  void* user = nullptr;
  int32_t level = MEMRA_LOG_OFF;

  bool wants(int32_t line_level) const { return callback != nullptr && line_level <= level; }
  void write(int32_t line_level, const char* text) const {
    if (wants(line_level)) callback(line_level, text, user);
  }
};

struct EngineState {
  std::shared_ptr<Backend> backend;
  RowsPolicy rows;
  Log log;
  pid_t pid = 0;
  char fallback_reason[256] = {};
};

// Threads and CUDA contexts do not follow into a forked child.
bool is_forked(const EngineState& state);
Status check_not_forked(const EngineState& state);

// Two backends that copy or wait between each other.
Status check_same_backend(const Backend& backend, const char* name, const Backend& other,
                          const char* other_name);

}  // namespace memra

struct memra_engine {
  std::shared_ptr<const memra::EngineState> state;
};
