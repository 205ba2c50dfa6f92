#include <cuda_bf16.h>

#include "parallel/nccl_rows.h"

namespace memra::bench::parallel {
namespace {

constexpr int kThreads = 256;

__global__ void gather_kernel(const uint4* from, const int32_t* index, size_t row_words,
                              uint4* to) {
  const uint4* row = from + static_cast<size_t>(index[blockIdx.x]) * row_words;
  for (size_t i = threadIdx.x; i < row_words; i += kThreads)
    to[blockIdx.x * row_words + i] = row[i];
}

template <typename Value>
__global__ void sum_kernel(const Value* from, const int32_t* offsets, const int32_t* places,
                           int64_t columns, Value* y) {
  const int32_t begin = offsets[blockIdx.x];
  const int32_t end = offsets[blockIdx.x + 1];
  for (int64_t column = threadIdx.x; column < columns; column += kThreads) {
    float sum = 0;
    for (int32_t i = begin; i < end; ++i)
      sum += static_cast<float>(from[places[i] * columns + column]);
    y[blockIdx.x * columns + column] = static_cast<Value>(sum);
  }
}

template <typename Value>
void launch_sum(const RowExchange& rows, const void* from, void* y, cudaStream_t stream) {
  sum_kernel<<<static_cast<unsigned>(rows.plan.n_own()), kThreads, 0, stream>>>(
      static_cast<const Value*>(from), rows.sum_offsets.as<const int32_t>(),
      rows.sum_places.as<const int32_t>(), rows.columns, static_cast<Value*>(y));
}

}  // namespace

cudaError_t gather_rows(const void* from, const int32_t* index, int64_t rows, size_t row_bytes,
                        void* to, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  gather_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      static_cast<const uint4*>(from), index, row_bytes / sizeof(uint4), static_cast<uint4*>(to));
  return cudaGetLastError();
}

cudaError_t sum_rows(const RowExchange& rows, const void* from, void* y, cudaStream_t stream) {
  if (rows.plan.n_own() == 0) return cudaSuccess;
  if (rows.dtype == MEMRA_F32) {
    launch_sum<float>(rows, from, y, stream);
  } else {
    launch_sum<__nv_bfloat16>(rows, from, y, stream);
  }
  return cudaGetLastError();
}

}  // namespace memra::bench::parallel
