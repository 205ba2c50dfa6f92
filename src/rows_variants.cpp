#include "rows_variants.h"

namespace memra {

namespace {

constexpr uint32_t kKnown = MEMRA_ROWS_PLAIN | MEMRA_ROWS_ILP | MEMRA_ROWS_ORD |
                            MEMRA_ROWS_DEDUP_ORDER | MEMRA_ROWS_PACK | MEMRA_ROWS_LANE_MAJOR;

struct Conflict {
  uint32_t both;
  const char* reason;
};

constexpr Conflict kConflicts[] = {
    {kRowsOrdered, "MEMRA_ROWS_ORD and MEMRA_ROWS_DEDUP_ORDER exclude each other"},
    {MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_ILP,
     "MEMRA_ROWS_LANE_MAJOR and MEMRA_ROWS_ILP exclude each other"},
};

// Why a variant does not exist; NULL where it does. AUTO is none.
const char* objection(uint32_t variant, bool lane_major_possible) {
  if ((variant & ~kKnown) != 0) return "holds bits that are no MEMRA_ROWS_* value";
  if ((variant & MEMRA_ROWS_PLAIN) != 0 && variant != MEMRA_ROWS_PLAIN) {
    return "MEMRA_ROWS_PLAIN stands alone";
  }
  for (const Conflict& conflict : kConflicts) {
    if ((variant & conflict.both) == conflict.both) return conflict.reason;
  }
  if ((variant & MEMRA_ROWS_LANE_MAJOR) != 0 && !lane_major_possible) {
    return "MEMRA_ROWS_LANE_MAJOR needs MEMRA_NVFP4_V2 in every plane concerned";
  }
  return nullptr;
}

}  // namespace

Status check_variant(uint32_t variant, bool lane_major_possible, const char* name) {
  if (const char* reason = objection(variant, lane_major_possible)) {
    return fail(MEMRA_ERROR_INVALID_ARGUMENT)
           << name << " is " << variant << ": " << reason << "; legal is MEMRA_ROWS_AUTO (0), or "
           << "what memra_moe_layer_info lists";
  }
  return MEMRA_OK;
}

bool variant_exists(uint32_t variant, bool lane_major_possible) {
  return variant != MEMRA_ROWS_AUTO && objection(variant, lane_major_possible) == nullptr;
}

int list_variants(bool lane_major_possible, uint32_t* variants) {
  static_assert(kKnown < kMaxVariants);
  int count = 0;
  for (uint32_t variant = 1; variant <= kKnown; ++variant) {
    if (variant_exists(variant, lane_major_possible)) variants[count++] = variant;
  }
  return count;
}

bool RowsPolicy::default_fits(const RowsLimits& limits) const {
  return variant_exists(default_variant, limits.lane_major_possible) &&
         (limits.order_possible || (default_variant & kRowsOrdered) == 0);
}

uint32_t RowsPolicy::adjust(uint32_t choice, const RowsLimits& limits) const {
  constexpr uint32_t kPlain = MEMRA_ROWS_PLAIN;
  constexpr uint32_t kIlp = MEMRA_ROWS_ILP;
  constexpr uint32_t kLaneMajor = MEMRA_ROWS_LANE_MAJOR;
  uint32_t variant = choice & ~kPlain;
  // Where the activations are in natural order, ILP is what lane-major was chosen for.
  if ((variant & kLaneMajor) != 0 && !limits.lane_major_possible) {
    variant = (variant & ~kLaneMajor) | kIlp;
  }
  variant &= ~excluded;
  variant |= preferred & MEMRA_ROWS_PACK;
  if ((preferred & kIlp) != 0) variant = (variant & ~kLaneMajor) | kIlp;
  // With both preferred, the one that reads less.
  if ((preferred & MEMRA_ROWS_DEDUP_ORDER) != 0) {
    variant = (variant & ~kRowsOrdered) | MEMRA_ROWS_DEDUP_ORDER;
  } else if ((preferred & MEMRA_ROWS_ORD) != 0) {
    variant = (variant & ~kRowsOrdered) | MEMRA_ROWS_ORD;
  }
  if (!limits.order_possible) variant &= ~kRowsOrdered;
  return variant != 0 ? variant : kPlain;
}

}  // namespace memra
