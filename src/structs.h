#pragma once

// Structs that carry their size: read whatever the caller's version of the header knows, write no
// more than that.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memra.h"
#include "status.h"

namespace memra {

// A caller may leave out fields at a struct's end where zero is a meaning of theirs; up to here
// they are needed, and a smaller struct_size is a mistake. What a caller reads back may be cut
// anywhere.
template <typename T>
inline constexpr std::size_t kNeededBytes = sizeof(T);
template <>
inline constexpr std::size_t kNeededBytes<memra_build_properties> = 8;
template <>
inline constexpr std::size_t kNeededBytes<memra_engine_options> = 8;
template <>
inline constexpr std::size_t kNeededBytes<memra_engine_properties> = 8;
template <>
inline constexpr std::size_t kNeededBytes<memra_repack_args> = offsetof(memra_repack_args,
                                                                        workspace);
template <>
inline constexpr std::size_t kNeededBytes<memra_import_args> = offsetof(memra_import_args, report);
template <>
inline constexpr std::size_t kNeededBytes<memra_quantize_args> = offsetof(memra_quantize_args,
                                                                          report);
template <>
inline constexpr std::size_t kNeededBytes<memra_dequantize_args> = offsetof(memra_dequantize_args,
                                                                            dst_row_stride);
template <>
inline constexpr std::size_t kNeededBytes<memra_bank> = 8;
template <>
inline constexpr std::size_t kNeededBytes<memra_moe_layer_properties> = 8;
template <>
inline constexpr std::size_t kNeededBytes<memra_moe_args> = offsetof(memra_moe_args, variant);
template <>
inline constexpr std::size_t kNeededBytes<memra_rows_down_args> = offsetof(memra_rows_down_args,
                                                                           y_stride);
template <>
inline constexpr std::size_t kNeededBytes<memra_rows_probe_args> = offsetof(memra_rows_probe_args,
                                                                            down);

template <>
inline constexpr std::size_t kNeededBytes<memra_moe_topk_args> = offsetof(memra_moe_topk_args,
                                                                          scoring);
template <>
inline constexpr std::size_t kNeededBytes<memra_moe_gather_f16_args> =
    offsetof(memra_moe_gather_f16_args, index);
template <>
inline constexpr std::size_t kNeededBytes<memra_moe_grouped_gemm_args> =
    offsetof(memra_moe_grouped_gemm_args, scales);

// Larger structs are not looked at: a random struct_size must not make us read far.
inline constexpr std::size_t kLargestStruct = 4096;

struct StructKind {
  std::size_t size;
  std::size_t needed;
  std::size_t alignment;
};

template <typename T>
inline constexpr StructKind kStructKind{sizeof(T), kNeededBytes<T>, alignof(T)};

Status check_struct_size(uint32_t struct_size, const StructKind& kind, const char* name);
Status check_struct(const void* caller, const StructKind& kind, const char* name);
Status init_struct(void* caller, uint32_t struct_size, const StructKind& kind, const char* name);

// Copies what the caller has; fields that the caller does not know become zero.
template <typename T>
Status read_struct(const T* caller, const char* name, T* copy) {
  MEMRA_TRY(check_struct(caller, kStructKind<T>, name));
  *copy = T{};
  std::memcpy(copy, caller, std::min<std::size_t>(caller->struct_size, sizeof(T)));
  copy->struct_size = sizeof(T);
  return MEMRA_OK;
}

// Writes what the caller has room for, but not struct_size. The caller's struct has been checked.
template <typename T>
void write_struct(const T& source, T* caller) {
  constexpr std::size_t kBegin = sizeof(uint32_t);
  const std::size_t size = std::min<std::size_t>(caller->struct_size, sizeof(T));
  std::memcpy(reinterpret_cast<char*>(caller) + kBegin,
              reinterpret_cast<const char*>(&source) + kBegin, size - kBegin);
}

}  // namespace memra
