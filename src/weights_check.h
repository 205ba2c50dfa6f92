#pragma once

// Checks that the conversions of weights share.

#include <cstdint>

#include "check.h"
#include "memra.h"
#include "status.h"

namespace memra {

inline uint64_t as_bytes(int64_t bytes) {
  return static_cast<uint64_t>(bytes);
}

// Bytes between packed slabs.
uint64_t packed_stride(memra_format format, int64_t rows, int64_t columns);

// Slabs and matrices are counted alike. *work: there is something to do.
Status check_matrices(int64_t rows, int64_t columns, int64_t n_experts, bool* work);

// Counts of zero become what they stand for.
Status take_slice(memra_slice* slice, int64_t rows, int64_t columns);

// Slabs of a format; a stride of zero becomes the packed one.
Status take_slabs(const void* slabs, uint64_t* stride, memra_format format, int64_t rows,
                  int64_t columns, int64_t n_experts, const char* name, const char* stride_name,
                  Area* area);

// Matrices of a float type; strides in elements, zeros become dense ones.
struct FloatMatrices {
  const void* data;
  memra_dtype dtype;
  int64_t rows, columns, n_experts;
  bool rows_aligned;  // every row begins at a multiple of 16 bytes
  const char* name;
  const char* row_stride_name;
  const char* stride_name;
};
Status take_floats(const FloatMatrices& matrices, int64_t* row_stride, int64_t* stride, Area* area);

}  // namespace memra
