#pragma once

// A layer: checked shapes, and its banks as local-indexed device tables.

#include <cstdint>
#include <memory>

#include "backend.h"
#include "engine.h"
#include "memra.h"
#include "rows_variants.h"
#include "rows_workspace.h"
#include "status.h"

namespace memra {

enum Plane { kGate = 0, kUp = 1, kDown = 2 };
inline constexpr int kPlanes = 3;

// Experts are indices into tables that are built on the host.
inline constexpr int64_t kMaxExperts = MEMRA_MAX_DIMENSION;

// The experts of a rank, [offset, offset + n_local_experts) of n_experts; 0 local ones become all
// from the offset on.
Status take_local_experts(int64_t n_experts, int64_t offset, int64_t* n_local_experts);

// Device tables, entry plane * n_local_experts + e.
struct LayerTables {
  const void* const* ptrs = nullptr;  // NULL where a bank has no slabs
  const float* scales = nullptr;
  const float* const* bias = nullptr;  // NULL where no bank has a bias
};

}  // namespace memra

struct memra_moe_layer {
  explicit memra_moe_layer(std::shared_ptr<const memra::EngineState> engine_state)
      : state(std::move(engine_state)) {}
  ~memra_moe_layer() {
    if (memory != nullptr) state->backend->free(memory);
  }
  memra_moe_layer(const memra_moe_layer&) = delete;
  memra_moe_layer& operator=(const memra_moe_layer&) = delete;

  bool all_v2() const {
    return memra::all_v2(shape.gate_format, shape.up_format, shape.down_format);
  }
  int64_t rows_max_tokens() const {
    return max_tokens < MEMRA_ROWS_MAX_TOKENS ? max_tokens : MEMRA_ROWS_MAX_TOKENS;
  }
  // What a call by the rows path runs; variant is MEMRA_ROWS_AUTO or legal.
  memra::RowsChoice choose_rows(int64_t tokens, uint32_t variant) const;
  memra::RowsWorkspace rows_workspace(int64_t tokens) const {
    return {tokens, shape.top_k, shape.hidden_size, shape.intermediate_size};
  }

  bool has_grouped() const { return grouped.min_tokens > 0; }
  int64_t grouped_max_tokens() const {
    if (!has_grouped()) return 0;
    const int64_t fits = MEMRA_GROUPED_MAX_PAIRS / shape.top_k;
    return max_tokens < fits ? max_tokens : fits;
  }
  // The rule of memra_moe: rows below, grouped from there on. Never INT64_MAX + 1: no min_tokens is
  // above such a max_tokens.
  int64_t first_grouped_tokens() const {
    return grouped.min_tokens <= max_tokens ? grouped.min_tokens : max_tokens + 1;
  }
  memra::GroupedShape grouped_shape() const;
  // Bytes of a call by that path; tokens may be beyond its own limit.
  uint64_t workspace_bytes(memra_path path, int64_t tokens) const;

  std::shared_ptr<const memra::EngineState> state;
  memra::RowsShape shape;
  memra_activation activation = MEMRA_SWIGLU;
  float limit = 0.0f;
  float alpha = 0.0f;
  int64_t n_experts = 0;
  int64_t local_expert_offset = 0;
  int64_t n_local_experts = 0;
  int64_t max_tokens = 0;
  bool has_slabs = false;      // every bank has; else calls must bring expert_ptrs
  memra::GroupedPlan grouped;  // min_tokens of 0: the backend has no grouped path
  memra::LayerTables tables;
  void* memory = nullptr;  // of the tables
};
