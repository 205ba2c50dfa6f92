#include "variants.h"

#include "memra.h"

namespace memra::bench {

std::string variant_name(uint32_t variant) {
  constexpr struct {
    uint32_t bit;
    const char* name;
  } kNames[] = {
      {MEMRA_ROWS_PLAIN, "plain"}, {MEMRA_ROWS_ILP, "ilp"},
      {MEMRA_ROWS_ORD, "ord"},     {MEMRA_ROWS_DEDUP_ORDER, "dedup_order"},
      {MEMRA_ROWS_PACK, "pack"},   {MEMRA_ROWS_LANE_MAJOR, "lane_major"},
  };
  if (variant == MEMRA_ROWS_AUTO) return "auto";
  std::string name;
  for (const auto& known : kNames) {
    if ((variant & known.bit) == 0) continue;
    variant &= ~known.bit;
    name += (name.empty() ? "" : "+") + std::string(known.name);
  }
  // A newer library may list what this program has no name for.
  if (variant != 0) name += (name.empty() ? "" : "+") + std::to_string(variant);
  return name;
}

}  // namespace memra::bench
