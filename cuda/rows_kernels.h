#pragma once

// The kernels of the rows path as data: dispatch looks them up, loading and the tests' sweeps
// iterate over them.

#include <cstdint>
#include <span>

#include "rows.h"

namespace memra::cuda {

struct GateUpParams;
struct DownParams;

// key: the MEMRA_ROWS_* bits that choose machine code (ILP, DEDUP_ORDER, LANE_MAJOR).
struct GateUpKernel {
  RowsArm arm;
  bool gate_v2;
  bool up_v2;
  uint32_t key;
  const char* name;
  void (*kernel)(GateUpParams);
};

struct DownKernel {
  RowsArm arm;
  bool v2;
  uint32_t key;
  const char* name;
  void (*kernel)(DownParams);
};

std::span<const GateUpKernel> gate_up_kernels();
std::span<const DownKernel> down_kernels();

// Gate and up as persistent blocks fed by bulk copies, sm_90 and later; V2, lane-major.
Status gate_up_ring_load(const Device& device);
bool gate_up_ring_fits(const Device& device, int64_t hidden_size);
// Whether it takes ids in place of tables over pairs.
bool gate_up_ring_routes(const Device& device, int64_t hidden_size, int64_t tokens, int64_t n_pairs,
                         int64_t n_local);
Status gate_up_ring(const Device& device, RowsArm arm, const GateUpParams& params,
                    const Launch& launch);

// Down likewise. With params.dots, pairs of one expert share its weights; combine() follows.
Status down_ring_load(const Device& device);
bool down_ring_fits(const Device& device, int64_t intermediate_size, int64_t top_k);
bool down_ring_shares(const Device& device, int64_t intermediate_size);
Status down_ring(const Device& device, RowsArm arm, const DownParams& params, const Launch& launch);
Status combine_load();
Status combine(const Device& device, const DownParams& params, const Launch& launch);

// Reads n_slabs slabs whose addresses begin at `ptrs`; NULL ones are left out.
Status stream_load(const Device& device);
Status stream_slabs(const Device& device, const void* const* ptrs, int64_t n_slabs,
                    uint64_t slab_bytes, bool prefetch, void* escape, const Launch& launch);

}  // namespace memra::cuda
