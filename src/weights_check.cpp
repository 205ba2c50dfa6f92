#include "weights_check.h"

#include <limits>

#include "layer.h"
#include "numerics/nvfp4_layout.h"

namespace memra {

using numerics::slab_bytes;

namespace {

Status take_range(int64_t begin, int64_t* count, int64_t size, int64_t multiple,
                  const char* begin_name, const char* count_name) {
  if (begin < 0 || begin >= size || begin % multiple != 0) {
    return invalid({"slice", begin_name}) << " is " << begin << ": must be a multiple of "
                                          << multiple << " from 0 to below " << size;
  }
  if (*count == 0) *count = size - begin;
  if (*count < 0 || *count > size - begin || *count % multiple != 0) {
    return invalid({"slice", count_name})
           << " is " << *count << ": must be a multiple of " << multiple << ", at most "
           << size - begin << ", or 0 for all from the begin on";
  }
  return MEMRA_OK;
}

}  // namespace

uint64_t packed_stride(memra_format format, int64_t rows, int64_t columns) {
  return as_bytes(numerics::round_up(slab_bytes(rows, columns), slab_alignment(format)));
}

Status check_matrices(int64_t rows, int64_t columns, int64_t n_experts, bool* work) {
  MEMRA_TRY(check_range(n_experts, 0, kMaxExperts, "n_experts"));
  MEMRA_TRY(check_range(rows, 0, MEMRA_MAX_DIMENSION, "rows"));
  *work = rows != 0 && n_experts != 0;
  if (!*work) return MEMRA_OK;
  MEMRA_TRY(check_dimension(rows, MEMRA_ROW_MULTIPLE, "rows"));
  return check_dimension(columns, MEMRA_COLUMN_MULTIPLE, "columns");
}

Status take_slice(memra_slice* slice, int64_t rows, int64_t columns) {
  MEMRA_TRY(take_range(slice->row_begin, &slice->row_count, rows, MEMRA_ROW_MULTIPLE, "row_begin",
                       "row_count"));
  return take_range(slice->column_begin, &slice->column_count, columns, MEMRA_COLUMN_MULTIPLE,
                    "column_begin", "column_count");
}

Status take_slabs(const void* slabs, uint64_t* stride, memra_format format, int64_t rows,
                  int64_t columns, int64_t n_experts, const char* name, const char* stride_name,
                  Area* area) {
  const uint64_t alignment = as_bytes(slab_alignment(format));
  const uint64_t slab = as_bytes(slab_bytes(rows, columns));
  MEMRA_TRY(check_pointer(slabs, alignment, name));
  MEMRA_TRY(
      take_stride(stride, packed_stride(format, rows, columns), slab, alignment, stride_name));
  *area = {.begin = slabs, .count = as_bytes(n_experts), .stride = *stride, .item_bytes = slab};
  return check_area(*area, name, stride_name);
}

Status take_floats(const FloatMatrices& matrices, int64_t* row_stride, int64_t* stride,
                   Area* area) {
  const int64_t bytes = dtype_bytes(matrices.dtype);
  const int64_t columns = matrices.columns;
  const int64_t multiple = matrices.rows_aligned ? 16 / bytes : 1;
  MEMRA_TRY(check_pointer(matrices.data, 16, matrices.name));
  MEMRA_TRY(take_elements(row_stride, columns, columns, multiple, matrices.row_stride_name));
  int64_t dense = 0;
  if (__builtin_mul_overflow(matrices.rows, *row_stride, &dense) ||
      dense > std::numeric_limits<int64_t>::max() / 16) {
    return invalid(matrices.row_stride_name) << " is " << *row_stride << ": " << matrices.rows
                                             << " rows reach beyond the address space";
  }
  const int64_t extent = dense - *row_stride + columns;
  MEMRA_TRY(take_elements(stride, dense, extent, multiple, matrices.stride_name));
  *area = {.begin = matrices.data,
           .count = as_bytes(matrices.n_experts),
           .stride = as_bytes(*stride * bytes),
           .item_bytes = as_bytes(extent * bytes)};
  return check_area(*area, matrices.name, matrices.stride_name);
}

}  // namespace memra
