#pragma once

// The vocabulary of argument checks. Each failure names the argument, its value and what is legal.

#include <cstdint>
#include <string_view>

#include "memra.h"
#include "status.h"

namespace memra {

// How messages call an argument: "field", or "scope.field".
struct Name {
  std::string_view scope;
  std::string_view field;

  Name(const char* only_field) : field(only_field) {}  // NOLINT: reads as a name
  Name(const char* in_scope, const char* in_field) : scope(in_scope), field(in_field) {}
};

// Begins "name is wrong" texts: return invalid("tokens") << " is " << ...
inline Failure invalid(const Name& name) {
  return Failure(MEMRA_ERROR_INVALID_ARGUMENT, name.scope, name.field);
}

// Pointers. The optional ones may be NULL.
Status check_pointer(const void* pointer, uint64_t alignment, const Name& name);
Status check_optional_pointer(const void* pointer, uint64_t alignment, const Name& name);
// Where a call puts its result.
template <typename T>
Status check_out(T* pointer, const Name& name) {
  return check_pointer(pointer, alignof(T), name);
}

// Numbers.
Status check_range(int64_t value, int64_t lowest, int64_t highest, const Name& name);
// A size of a matrix: above 0, at most MEMRA_MAX_DIMENSION, a multiple.
Status check_dimension(int64_t value, int64_t multiple, const Name& name);
Status check_flags(uint32_t flags, uint32_t legal, const Name& name);
Status check_reserved(int64_t value, const Name& name);

// Enumerations.
Status check_format(memra_format format, const Name& name);
Status check_dtype(memra_dtype dtype, const Name& name);
Status check_toggle(memra_toggle toggle, const Name& name);
// scope names the struct of limit and alpha in messages.
Status check_activation(memra_activation activation, float limit, float alpha);

int64_t dtype_bytes(memra_dtype dtype);
int64_t slab_alignment(memra_format format);

// Elements between rows or matrices: 0 becomes `dense`; else at least `smallest` and a multiple.
Status take_elements(int64_t* stride, int64_t dense, int64_t smallest, int64_t multiple,
                     const Name& name);
// Elements between rows of activations, which begin at multiples of 16 bytes.
Status take_row_stride(int64_t* stride, int64_t columns, int64_t element_bytes, const Name& name);
// Bytes between slabs: 0 becomes `packed`; else at least `smallest` and a multiple.
Status take_stride(uint64_t* stride, uint64_t packed, uint64_t smallest, uint64_t multiple,
                   const Name& name);

// `count` items of item_bytes, stride bytes apart.
struct Area {
  const void* begin = nullptr;
  uint64_t count = 1;
  uint64_t stride = 0;
  uint64_t item_bytes = 0;
};

// [rows, columns] elements of `bytes` bytes, `stride` elements from row to row.
Area rows_area(const void* begin, int64_t rows, int64_t stride, int64_t columns, int64_t bytes);
// Elements side by side.
Area block_area(const void* begin, int64_t elements, int64_t element_bytes);

// An area must end inside the address space, so that offsets into it fit 64 bits. Where it has a
// stride, the message names that argument too.
Status check_area(const Area& area, const Name& name, const Name& stride_name = "");
// Both areas have been checked. Items that interleave without a common byte do not overlap.
bool areas_overlap(const Area& a, const Area& b);
Status check_apart(const Area& a, const Name& a_name, const Area& b, const Name& b_name);

// A call's workspace; `area` is the part of it that the call uses.
Status check_workspace(const void* workspace, uint64_t bytes, uint64_t needed, int64_t tokens,
                       Area* area);

}  // namespace memra
