// What an id means to a rank.
#pragma once

#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

// Ids are data: one that names no expert at all is counted, not refused. -1 stands for no expert.
MEMRA_HD constexpr bool is_invalid_id(std::int32_t id, std::int64_t n_experts) {
  return id >= n_experts || id < -1;
}

// Whether it is an expert of this rank, whose index there is id - local_offset.
MEMRA_HD constexpr bool is_local_expert(std::int32_t id, std::int64_t n_experts,
                                        std::int64_t local_offset, std::int64_t n_local) {
  const std::int64_t expert = id - local_offset;
  return id < n_experts && expert >= 0 && expert < n_local;
}

}  // namespace memra::numerics
