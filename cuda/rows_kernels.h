#pragma once

// The kernels of the rows path as data: dispatch looks them up, loading and the tests' sweeps
// iterate over them.

#include <cstdint>
#include <span>

#include "rows.h"

namespace memra::cuda {

enum class Format;
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

// Persistent blocks fed by bulk copies, sm_90 and later; V2 with lane-major activations, V1 with
// natural ones, V1 where rows are multiples of 16 bytes. The layer: from ids, with
// the activations quantised on the way, in one cooperative launch.
inline constexpr int64_t kMaxRingUnits = int64_t{1} << 31;  // row blocks of all pairs
Status ring_load(const Device& device);
bool gate_up_ring_fits(const Device& device, Format format, int64_t hidden_size);
Status gate_up_ring(const Device& device, RowsArm arm, Format format, const GateUpParams& params,
                    const Launch& launch);
bool down_ring_fits(const Device& device, Format format, int64_t intermediate_size, int64_t top_k);
Status down_ring(const Device& device, RowsArm arm, Format format, const DownParams& params,
                 const Launch& launch);
bool layer_ring_fits(const Device& device, int64_t hidden_size, int64_t intermediate_size,
                     int64_t tokens, int64_t top_k, int64_t n_local);
Status layer_ring(const Device& device, const GateUpParams& gate_up, const DownParams& down,
                  Exchange* exchange, const Launch& launch, bool* taken);

// Reads n_slabs slabs whose addresses begin at `ptrs`; NULL ones are left out.
Status stream_load(const Device& device);
Status stream_slabs(const Device& device, const void* const* ptrs, int64_t n_slabs,
                    uint64_t slab_bytes, bool prefetch, void* escape, const Launch& launch);

}  // namespace memra::cuda
