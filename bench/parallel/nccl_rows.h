// The device's part in sending rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "parallel/transport.h"

namespace memra::bench::parallel {

// to[i] = from[index[i]], rows of row_bytes, a multiple of 16.
cudaError_t gather_rows(const void* from, const int32_t* index, int64_t rows, size_t row_bytes,
                        void* to, cudaStream_t stream);

// y[row] = the sum over the row's places in rising order, in f32.
cudaError_t sum_rows(const RowExchange& rows, const void* from, void* y, cudaStream_t stream);

}  // namespace memra::bench::parallel
