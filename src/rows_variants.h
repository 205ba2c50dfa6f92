#pragma once

// Which variants of the rows kernels exist, and how options and environment act on a backend's own
// choice. Only rules here; what is fast is the backend's business.

#include <cstdint>

#include "backend.h"
#include "status.h"

namespace memra {

inline constexpr uint32_t kRowsOrdered = MEMRA_ROWS_ORD | MEMRA_ROWS_DEDUP_ORDER;

// A variant that a caller names: known bits in a combination that exists. lane_major_possible:
// every plane concerned is MEMRA_NVFP4_V2.
Status check_variant(uint32_t variant, bool lane_major_possible, const char* name);

// The same without a text: whether an explicit variant exists.
bool variant_exists(uint32_t variant, bool lane_major_possible);

// The explicit variants in rising order, at most kMaxVariants of them; returns their number.
inline constexpr int kMaxVariants = 64;
int list_variants(bool lane_major_possible, uint32_t* variants);

// What the place of a call rules out for MEMRA_ROWS_AUTO.
struct RowsLimits {
  bool lane_major_possible = false;
  bool order_possible = true;
};

// An engine's defaults for calls that say MEMRA_ROWS_AUTO: the option's variant where it fits, else
// the backend's choice as the environment adjusts it.
struct RowsPolicy {
  uint32_t default_variant = MEMRA_ROWS_AUTO;  // engine option; AUTO: none
  uint32_t preferred = 0;                      // MEMRA_MOE_VROWS_* = 1
  uint32_t excluded = 0;                       // MEMRA_MOE_VROWS_* = 0

  bool default_fits(const RowsLimits& limits) const;
  uint32_t adjust(uint32_t choice, const RowsLimits& limits) const;
};

}  // namespace memra
