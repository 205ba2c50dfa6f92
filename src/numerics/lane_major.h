// The order of activations inside a group of 32 in which lane-major kernels read them.
//
// A 32-bit word of codes holds eight nibbles; taken in their order in the word, low nibble first,
// they are the values b, b + 8, b + 1, b + 9, ... of a half of 16, because a code byte holds values
// w and w + 8. Activations stored in that order meet the decoded bytes without any masking.
#pragma once

#include <cstdint>

#include "numerics/platform.h"

namespace memra::numerics {

// Column within the group of the activation at `position`, 0..31.
MEMRA_HD constexpr std::int32_t lane_major_column(std::int32_t position) {
  const std::int32_t half = position / 16, word = position % 16 / 8, nibble = position % 8;
  return half * 16 + word * 4 + nibble / 2 + nibble % 2 * 8;
}

// The inverse: where the activation of a column is stored.
MEMRA_HD constexpr std::int32_t lane_major_position(std::int32_t column) {
  const std::int32_t half = column / 16, byte = column % 8, high = column % 16 / 8;
  return half * 16 + byte / 4 * 8 + byte % 4 * 2 + high;
}

}  // namespace memra::numerics
