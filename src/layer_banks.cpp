#include "layer_banks.h"

#include <cmath>
#include <cstring>

#include "check.h"
#include "numerics/nvfp4_layout.h"
#include "structs.h"

namespace memra {

namespace {

Status check_base(memra_bank* bank, const char* name, uint64_t slab, uint64_t alignment,
                  int64_t n_local_experts) {
  MEMRA_TRY(check_pointer(bank->base, alignment, {name, "base"}));
  const uint64_t packed = (slab + alignment - 1) / alignment * alignment;
  MEMRA_TRY(take_stride(&bank->expert_stride, packed, slab, alignment, {name, "expert_stride"}));
  const Area area{.begin = bank->base,
                  .count = static_cast<uint64_t>(n_local_experts),
                  .stride = bank->expert_stride,
                  .item_bytes = slab};
  return check_area(area, {name, "base"}, {name, "expert_stride"});
}

Status check_ptrs(const memra_bank& bank, const char* name, uint64_t alignment,
                  int64_t n_local_experts) {
  const Name argument{name, "ptrs"};
  if (bank.base != nullptr) {
    return invalid(argument) << " is " << bank.ptrs << ": give base or ptrs, not both";
  }
  if (bank.expert_stride != 0) {
    return invalid({name, "expert_stride"})
           << " is " << bank.expert_stride << ": must be 0 where ptrs are given";
  }
  MEMRA_TRY(check_optional_pointer(bank.ptrs, alignof(void*), argument));
  for (int64_t e = 0; e < n_local_experts; ++e) {
    if (reinterpret_cast<uintptr_t>(bank.ptrs[e]) % alignment != 0) {
      return invalid(argument) << "[" << e << "] is " << bank.ptrs[e] << ": must be aligned to "
                               << alignment << " bytes";
    }
  }
  return MEMRA_OK;
}

Status check_scales(const memra_bank& bank, const char* name, int64_t n_local_experts) {
  const Name argument{name, "expert_scales"};
  MEMRA_TRY(check_optional_pointer(bank.expert_scales, alignof(float), argument));
  if (bank.expert_scales == nullptr) return MEMRA_OK;
  for (int64_t e = 0; e < n_local_experts; ++e) {
    if (!std::isfinite(bank.expert_scales[e])) {
      return invalid(argument) << "[" << e << "] is " << bank.expert_scales[e]
                               << ": must be finite";
    }
  }
  return MEMRA_OK;
}

}  // namespace

Status read_bank(const memra_bank* caller, const char* name, int64_t rows, int64_t columns,
                 int64_t n_local_experts, Bank* result) {
  memra_bank& bank = result->bank;
  MEMRA_TRY(read_struct(caller, name, &bank));
  MEMRA_TRY(check_format(bank.format, {name, "format"}));
  result->rows = rows;
  result->columns = columns;
  const auto slab = static_cast<uint64_t>(numerics::slab_bytes(rows, columns));
  const auto alignment = static_cast<uint64_t>(slab_alignment(bank.format));
  if (bank.ptrs != nullptr) {
    MEMRA_TRY(check_ptrs(bank, name, alignment, n_local_experts));
  } else if (bank.base != nullptr) {
    MEMRA_TRY(check_base(&bank, name, slab, alignment, n_local_experts));
  } else if (bank.expert_stride != 0) {
    return invalid({name, "expert_stride"})
           << " is " << bank.expert_stride << ": must be 0 where base is NULL";
  }
  MEMRA_TRY(check_scales(bank, name, n_local_experts));
  return check_optional_pointer(bank.bias, alignof(float), {name, "bias"});
}

HostTables make_tables(const Bank (&banks)[kPlanes], int64_t n_local_experts) {
  const auto n = static_cast<std::size_t>(n_local_experts);
  HostTables tables;
  for (const Bank& bank : banks)
    tables.has_bias |= bank.bank.bias != nullptr;
  tables.bias = kPlanes * n * sizeof(void*);
  tables.scales = tables.bias + (tables.has_bias ? kPlanes * n * sizeof(float*) : 0);
  tables.bytes.resize(tables.scales + kPlanes * n * sizeof(float));

  std::byte* const begin = tables.bytes.data();
  const auto store = [&](std::size_t table, std::size_t index, auto value) {
    std::memcpy(begin + table + index * sizeof(value), &value, sizeof(value));
  };
  for (std::size_t plane = 0; plane < kPlanes; ++plane) {
    const memra_bank& bank = banks[plane].bank;
    const auto rows = static_cast<std::size_t>(banks[plane].rows);
    for (std::size_t e = 0; e < n; ++e) {
      const std::size_t index = plane * n + e;
      const void* slab = nullptr;
      if (bank.ptrs != nullptr) slab = bank.ptrs[e];
      if (bank.base != nullptr) slab = static_cast<const char*>(bank.base) + e * bank.expert_stride;
      store(tables.ptrs, index, slab);
      store(tables.scales, index, bank.expert_scales != nullptr ? bank.expert_scales[e] : 1.0f);
      if (!tables.has_bias) continue;
      const float* bias = bank.bias != nullptr ? bank.bias + e * rows : nullptr;
      store(tables.bias, index, bias);
    }
  }
  return tables;
}

}  // namespace memra
