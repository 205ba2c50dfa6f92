#pragma once

// Activations into the shared memory of a ring kernel's block, by its consumer warps.

#include "q8_lanes.cuh"
#include "rows_params.cuh"
#include "rows_ring.cuh"

namespace memra::cuda {

#if __CUDA_ARCH__ >= 900

inline constexpr int kOperandThreads = kConsumerWarps * 32;

// Rows row_of(0), ... of q [., in] and d [., in / 32] into the first `count` places. A thread has
// the loads of several rows in flight together.
template <class Memory, class RowOf>
__device__ __forceinline__ void copy_operands(const Memory& m, const int8_t* q, const float* d,
                                              int64_t in, int count, RowOf row_of) {
  constexpr int kBatch = 4;
  const int columns = m.shape.pieces * kPieceColumns;
  const int groups = columns / static_cast<int>(numerics::kGroupValues);
  const int own_columns = static_cast<int>(in);
  const int own_groups = own_columns / static_cast<int>(numerics::kGroupValues);
  const int thread = thread_index_here();
  for (int first = 0; first < count; first += kBatch) {
    for (int i = thread; 16 * i < columns || i < groups; i += kOperandThreads) {
      uint4 x[kBatch];
      float v[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        x[j] = uint4{};
        v[j] = -0.0f;
        if (first + j >= count) continue;
        const int64_t row = row_of(first + j);
        if (16 * i < own_columns) x[j] = *reinterpret_cast<const uint4*>(q + row * in + 16 * i);
        if (i < own_groups) v[j] = d[row * own_groups + i];
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const uint32_t place = m.operand(first + j);
        if (first + j < count && 16 * i < columns) store_shared(place + 16 * i, x[j]);
        if (first + j < count && i < groups) store_shared(place + columns + 4 * i, v[j]);
      }
    }
  }
}

// The same from activations that are not quantised yet. The loop is short, because every block runs
// it out of a cold instruction cache, and one load ahead.
template <class Type, class Memory, class RowOf>
__device__ __forceinline__ void quantize_operands(const Memory& m, const ActivationSource& source,
                                                  int64_t in, int count, RowOf row_of) {
  const int columns = m.shape.pieces * kPieceColumns;
  const int thread = thread_index_here();
  const auto load = [&](int row, int column) {
    Q8LaneLoad<Type> x{};
    if (row < count && column < in) {
      x.load(static_cast<const typename Type::Storage*>(source.x) + row_of(row) * source.stride +
             column);
    }
    return x;
  };
  // Warps are whole: `columns` is a multiple of 32 lanes' worth.
  int row = 0, column = thread * kQ8LaneColumns;
  const auto settle = [&] {
    while (row < count && column >= columns)
      column = thread * kQ8LaneColumns, ++row;
  };
  settle();
  Q8LaneLoad<Type> next = load(row, column);
#pragma unroll 1
  while (row < count) {
    const Q8LaneLoad<Type> now = next;
    const int at = column;
    const uint32_t place = m.operand(row);
    column += kOperandThreads * kQ8LaneColumns;
    settle();
    next = load(row, column);
    float x[kQ8LaneColumns];
    now.widen(x);
    const int lane_of_row = at / kQ8LaneColumns;
    const Q8Lane lane = quantize_lane(x, true, lane_of_row);
    store_shared(place + at, lane.q);
    if (lane_of_row % kQ8LanesPerGroup == 0) {
      store_shared(place + columns + lane_of_row / kQ8LanesPerGroup * 4, at < in ? lane.d : -0.0f);
    }
  }
}

template <class Memory, class RowOf>
__device__ __forceinline__ void load_operands(const Memory& m, const ActivationSource& source,
                                              const int8_t* q, const float* d, int64_t in,
                                              int count, RowOf row_of) {
  if (source.x == nullptr) {
    copy_operands(m, q, d, in, count, row_of);
  } else if (source.dtype == MEMRA_BF16) {
    quantize_operands<numerics::Bf16>(m, source, in, count, row_of);
  } else if (source.dtype == MEMRA_F16) {
    quantize_operands<numerics::F16>(m, source, in, count, row_of);
  } else {
    quantize_operands<numerics::F32>(m, source, in, count, row_of);
  }
  named_sync(kConsumerBarrier, kOperandThreads);
}

#endif

}  // namespace memra::cuda
