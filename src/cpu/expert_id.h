#pragma once

// From an id to an expert of this rank.

#include <atomic>
#include <cstdint>

#include "numerics/routing.h"

namespace memra::cpu {

struct LocalExperts {
  std::int64_t n_experts, offset, n_local;
  const void* const* ptrs;  // [3 * n_local], or null: every expert has its slabs

  // Local index of an id's expert, or n_local where its pair is skipped.
  std::int64_t index(std::int32_t id) const {
    if (!numerics::is_local_expert(id, n_experts, offset, n_local)) return n_local;
    const std::int64_t local = id - offset;
    for (std::int64_t plane = 0; ptrs != nullptr && plane < 3; ++plane) {
      if (ptrs[plane * n_local + local] == nullptr) return n_local;
    }
    return local;
  }
};

// Calls on several streams may count in one place.
inline void count_invalid(std::uint64_t invalid, std::uint64_t* counter) {
  if (invalid == 0 || counter == nullptr) return;
  std::atomic_ref(*counter).fetch_add(invalid, std::memory_order_relaxed);
}

}  // namespace memra::cpu
