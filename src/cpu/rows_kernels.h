#pragma once

// The arithmetic of the rows path for one instruction set: functions over runs of rows, without
// threads or tables. Each set of kernels is compiled in a file of its own, with its own flags, and
// all of them give the same bits.

#include <cstdint>

#include "cpu/grouped_kernels.h"
#include "memra.h"
#include "numerics/platform.h"

namespace memra::cpu {

// Rows [row_begin, row_begin + row_count) of a slab [rows, in]; multiples of 8.
struct SlabRows {
  const std::uint8_t* slab;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t row_begin;
  std::int64_t row_count;
};

// One row of activations (rule 1), and where its dots go.
struct DotsRow {
  const std::int8_t* q;
  const float* d;
  float* dots;
};

// Rows of activations that share one decoding of the weights, at most.
inline constexpr std::int64_t kMaxTogether = 4;

// x[i].dots[r] = dot of row row_begin + r with x[i] (rules 2 and 3), for 1 to kMaxTogether x.
using DotsFunction = void (*)(const SlabRows& rows, const DotsRow* x, std::int64_t count);

struct DotsFunctions {
  DotsFunction v1;
  DotsFunction v2;
  DotsFunction v2_lane_major;  // q in the order of lane_major_position() below

  DotsFunction pick(memra_format format, std::uint32_t variant) const {
    if (format == MEMRA_NVFP4) return v1;
    return (variant & MEMRA_ROWS_LANE_MAJOR) != 0 ? v2_lane_major : v2;
  }
};

// Rules 4 and 7 over a run of rows: dots to activated values.
struct GateUpRun {
  memra_activation activation;
  float limit, alpha;
  float gate_scale, up_scale;
  const float* gate_dots;
  const float* up_dots;
  const float* gate_bias;  // of the first row, or null
  const float* up_bias;
  float* out;
  std::int64_t count;  // a multiple of 8
};

// Rule 6 over a run of rows: one slot's share of y.
struct SlotRun {
  float scale;
  float topk_weight;  // with bias alone
  const float* dots;
  const float* bias;  // of the first row, or null
  float* y;
  std::int64_t count;
};

// Rule 1 over a run of columns, a multiple of 32.
struct QuantizeRun {
  const void* x;  // the first element
  memra_dtype x_dtype;
  bool lane_major;
  std::int8_t* q;
  float* d;
  std::int64_t columns;
};

struct RowsKernels {
  const char* simd;  // as engine properties say it
  // Names of the kernels, for plans.
  const char* name_v1;
  const char* name_v2;
  const char* name_v2_lane_major;
  const char* name_mixed;  // gate and up of two formats

  DotsFunctions dots;
  DotsFunctions dots_load_only;  // the same reads; dots are some function of the bytes
  DotsFunctions dots_math_only;  // the same instructions on a small block in cache
  void (*finish_gate_up)(const GateUpRun& run);
  void (*add_slot)(const SlotRun& run);
  void (*quantize)(const QuantizeRun& run);
  void (*read)(const void* begin, std::uint64_t bytes);  // a plain read, 16-byte alignment

  GroupedKernels grouped;
};

// The CPU's lane-major order: a group's activations that meet the low nibbles of its 16 code bytes,
// in byte order, then those that meet the high ones.
MEMRA_HD constexpr std::int32_t lane_major_position(std::int32_t column) {
  const std::int32_t half = column / 16, high = column % 16 / 8;
  return high * 16 + half * 8 + column % 8;
}

extern const RowsKernels kPortableKernels;
#if defined(MEMRA_CPU_X86)
extern const RowsKernels kAvx2Kernels;
extern const RowsKernels kAvxVnniKernels;
extern const RowsKernels kAvx512VnniKernels;
#elif defined(MEMRA_CPU_ARM64)
extern const RowsKernels kNeonKernels;
#endif

}  // namespace memra::cpu
