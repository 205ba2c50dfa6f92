#pragma once

// Activations into the shared memory of a ring kernel's block, by its consumer warps.

#include "q8_lanes.cuh"
#include "rows_ring.cuh"

namespace memra::cuda {

#if __CUDA_ARCH__ >= 900

inline constexpr int kOperandThreads = kConsumerWarps * 32;

// Rows first, ... of q [rows, in] and d [rows, in / 32] into places 0, .... A thread has the loads of
// several rows in flight together.
template <class Memory>
__device__ __forceinline__ void load_operands(const Memory& m, const int8_t* q, const float* d,
                                              int64_t in, int64_t first, int count) {
  constexpr int kBatch = 4;
  const int columns = m.shape.pieces * kPieceColumns;
  const int groups = columns / static_cast<int>(numerics::kGroupValues);
  const int own_columns = static_cast<int>(in);
  const int own_groups = own_columns / static_cast<int>(numerics::kGroupValues);
  const int thread = static_cast<int>(threadIdx.x);
  for (int row = 0; row < count; row += kBatch) {
    const int8_t* row_q = q + (first + row) * in;
    const float* row_d = d + (first + row) * own_groups;
    for (int i = thread; 16 * i < columns || i < groups; i += kOperandThreads) {
      uint4 x[kBatch];
      float v[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        x[j] = uint4{};
        v[j] = -0.0f;
        if (row + j < count && 16 * i < own_columns) {
          x[j] = *reinterpret_cast<const uint4*>(row_q + j * own_columns + 16 * i);
        }
        if (row + j < count && i < own_groups) v[j] = row_d[j * own_groups + i];
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const uint32_t place = m.operand(row + j);
        if (row + j < count && 16 * i < columns) store_shared(place + 16 * i, x[j]);
        if (row + j < count && i < groups) store_shared(place + columns + 4 * i, v[j]);
      }
    }
  }
  named_sync(kConsumerBarrier, kOperandThreads);
}

#endif

}  // namespace memra::cuda
