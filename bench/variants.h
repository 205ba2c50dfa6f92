// Names of MEMRA_ROWS_* combinations.
#pragma once

#include <cstdint>
#include <string>

namespace memra::bench {

// "auto", "plain", "ord+lane_major", ...
std::string variant_name(uint32_t variant);

}  // namespace memra::bench
