#include "check.h"

#include <cmath>
#include <limits>

#include "numerics/nvfp4_layout.h"

namespace memra {

static_assert(MEMRA_COLUMN_MULTIPLE == numerics::kColMultiple);
static_assert(MEMRA_ROW_MULTIPLE == numerics::kRowMultiple);
static_assert(MEMRA_MAX_DIMENSION <= numerics::kMaxDim);

Status check_pointer(const void* pointer, uint64_t alignment, const Name& name) {
  if (pointer == nullptr) {
    return invalid(name) << " is NULL: must not be NULL";
  }
  return check_optional_pointer(pointer, alignment, name);
}

Status check_optional_pointer(const void* pointer, uint64_t alignment, const Name& name) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    return invalid(name) << " is " << pointer << ": must be aligned to " << alignment << " bytes";
  }
  return MEMRA_OK;
}

Status check_range(int64_t value, int64_t lowest, int64_t highest, const Name& name) {
  if (value >= lowest && value <= highest) return MEMRA_OK;
  Failure failure = invalid(name);
  failure << " is " << value << ": legal is " << lowest;
  if (highest == std::numeric_limits<int64_t>::max()) {
    failure << " and above";
  } else {
    failure << " to " << highest;
  }
  return failure;
}

Status check_dimension(int64_t value, int64_t multiple, const Name& name) {
  if (value > 0 && value <= MEMRA_MAX_DIMENSION && value % multiple == 0) return MEMRA_OK;
  Failure failure = invalid(name);
  failure << " is " << value << ": must be a multiple of " << multiple;
  if (value <= 0 || value > MEMRA_MAX_DIMENSION) {
    failure << ", legal is " << multiple << " to " << MEMRA_MAX_DIMENSION;
    return failure;
  }
  const int64_t below = value / multiple * multiple;
  failure << ", nearest legal " << (below != 0 ? below : multiple);
  if (below != 0 && below < MEMRA_MAX_DIMENSION) failure << " or " << below + multiple;
  return failure;
}

Status check_flags(uint32_t flags, uint32_t legal, const Name& name) {
  if ((flags & ~legal) != 0) {
    return invalid(name) << " is " << flags << ": legal bits are " << legal;
  }
  return MEMRA_OK;
}

Status check_reserved(int64_t value, const Name& name) {
  if (value != 0) return invalid(name) << " is " << value << ": must be 0";
  return MEMRA_OK;
}

Status check_format(memra_format format, const Name& name) {
  if (format != MEMRA_NVFP4 && format != MEMRA_NVFP4_V2) {
    return invalid(name) << " is " << format << ": legal is MEMRA_NVFP4 (" << MEMRA_NVFP4
                         << ") or MEMRA_NVFP4_V2 (" << MEMRA_NVFP4_V2 << ")";
  }
  return MEMRA_OK;
}

Status check_dtype(memra_dtype dtype, const Name& name) {
  if (dtype != MEMRA_F32 && dtype != MEMRA_F16 && dtype != MEMRA_BF16) {
    return invalid(name) << " is " << dtype
                         << ": legal is MEMRA_F32 (0), MEMRA_F16 (1) or MEMRA_BF16 (2)";
  }
  return MEMRA_OK;
}

Status check_toggle(memra_toggle toggle, const Name& name) {
  if (toggle != MEMRA_DEFAULT && toggle != MEMRA_ON && toggle != MEMRA_OFF) {
    return invalid(name) << " is " << toggle
                         << ": legal is MEMRA_DEFAULT (0), MEMRA_ON (1) or MEMRA_OFF (2)";
  }
  return MEMRA_OK;
}

Status check_activation(memra_activation activation, float limit, float alpha) {
  if (activation < MEMRA_SWIGLU || activation > MEMRA_SWIGLU_OAI) {
    return invalid("activation") << " is " << activation << ": legal is MEMRA_SWIGLU (0) to "
                                 << "MEMRA_SWIGLU_OAI (3)";
  }
  if (activation != MEMRA_SWIGLU && !(limit > 0.0f)) {
    return invalid("limit") << " is " << limit << ": must be above 0 for a clamped activation";
  }
  if (activation == MEMRA_SWIGLU_OAI && !std::isfinite(alpha)) {
    return invalid("alpha") << " is " << alpha << ": must be finite";
  }
  return MEMRA_OK;
}

int64_t dtype_bytes(memra_dtype dtype) {
  return dtype == MEMRA_F32 ? 4 : 2;
}

int64_t slab_alignment(memra_format format) {
  return format == MEMRA_NVFP4_V2 ? numerics::kV2SlabAlignment : numerics::kV1SlabAlignment;
}

Status take_elements(int64_t* stride, int64_t dense, int64_t smallest, int64_t multiple,
                     const Name& name) {
  if (*stride == 0) *stride = dense;
  // The bound keeps the bytes inside int64.
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max() / 16;
  if (*stride >= smallest && *stride <= kHighest && *stride % multiple == 0) return MEMRA_OK;
  Failure failure = invalid(name);
  failure << " is " << *stride << ": legal is 0, or at least " << smallest << " elements";
  if (multiple > 1) failure << " and a multiple of " << multiple << " (16 bytes)";
  return failure;
}

Status take_row_stride(int64_t* stride, int64_t columns, int64_t element_bytes, const Name& name) {
  return take_elements(stride, columns, columns, 16 / element_bytes, name);
}

Status take_stride(uint64_t* stride, uint64_t packed, uint64_t smallest, uint64_t multiple,
                   const Name& name) {
  if (*stride == 0) *stride = packed;
  if (*stride < smallest || *stride % multiple != 0) {
    return invalid(name) << " is " << *stride << ": legal is 0, or at least " << smallest
                         << " and a multiple of " << multiple;
  }
  return MEMRA_OK;
}

namespace {

// Bytes from the first item's begin to the last one's end; false where they overflow.
bool area_bytes(const Area& area, uint64_t* bytes) {
  if (area.count == 0) {
    *bytes = 0;
    return true;
  }
  return !__builtin_mul_overflow(area.count - 1, area.stride, bytes) &&
         !__builtin_add_overflow(*bytes, area.item_bytes, bytes);
}

}  // namespace

Area rows_area(const void* begin, int64_t rows, int64_t stride, int64_t columns, int64_t bytes) {
  return {.begin = begin,
          .count = static_cast<uint64_t>(rows),
          .stride = static_cast<uint64_t>(stride * bytes),
          .item_bytes = static_cast<uint64_t>(columns * bytes)};
}

Area block_area(const void* begin, int64_t elements, int64_t element_bytes) {
  return {.begin = begin, .item_bytes = static_cast<uint64_t>(elements * element_bytes)};
}

Status check_area(const Area& area, const Name& name, const Name& stride_name) {
  uint64_t bytes = 0;
  uint64_t end = 0;
  if (area_bytes(area, &bytes) && bytes <= uint64_t{std::numeric_limits<int64_t>::max()} &&
      !__builtin_add_overflow(reinterpret_cast<uintptr_t>(area.begin), bytes, &end)) {
    return MEMRA_OK;
  }
  Failure failure = invalid(name);
  failure << " is " << area.begin << " with " << area.count << " times " << area.item_bytes
          << " bytes";
  if (area.count > 1 && !stride_name.field.empty()) {
    failure << " and " << stride_name.field << " of " << area.stride << " bytes";
  }
  failure << ": reaches beyond the address space";
  return failure;
}

bool areas_overlap(const Area& a, const Area& b) {
  uint64_t a_bytes = 0;
  uint64_t b_bytes = 0;
  if (!area_bytes(a, &a_bytes) || !area_bytes(b, &b_bytes)) return true;
  const auto a_begin = reinterpret_cast<uintptr_t>(a.begin);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.begin);
  if (a_bytes == 0 || b_bytes == 0) return false;
  if (a_begin + a_bytes <= b_begin || b_begin + b_bytes <= a_begin) return false;
  if (a.stride != b.stride || a.count < 2 || b.count < 2) return true;
  // Interleaved: the items of one lie in the gaps of the other.
  const bool a_first = a_begin <= b_begin;
  const uint64_t shift = (a_first ? b_begin - a_begin : a_begin - b_begin) % a.stride;
  const uint64_t first = a_first ? a.item_bytes : b.item_bytes;
  const uint64_t second = a_first ? b.item_bytes : a.item_bytes;
  return shift < first || shift + second > a.stride;
}

Status check_apart(const Area& a, const Name& a_name, const Area& b, const Name& b_name) {
  if (!areas_overlap(a, b)) return MEMRA_OK;
  Failure failure = invalid(a_name);
  failure << " is " << a.begin << ": must not overlap " << b_name.field << " at " << b.begin;
  return failure;
}

Status check_workspace(const void* workspace, uint64_t bytes, uint64_t needed, int64_t tokens,
                       Area* area) {
  if (bytes < needed) {
    return fail(MEMRA_ERROR_WORKSPACE_TOO_SMALL)
           << "workspace_bytes is " << bytes << ": must be at least " << needed << " for " << tokens
           << " tokens";
  }
  MEMRA_TRY(check_pointer(workspace, MEMRA_WORKSPACE_ALIGNMENT, "workspace"));
  *area = {.begin = workspace, .item_bytes = needed};
  return check_area(*area, "workspace");
}

}  // namespace memra
