#include "shape.h"

#include <cfloat>

namespace memra::bench {

const char* activation_name(memra_activation kind) {
  switch (kind) {
    case MEMRA_SWIGLU:
      return "swiglu";
    case MEMRA_SWIGLU_PRECLAMP:
      return "preclamp";
    case MEMRA_SWIGLU_POSTCLAMP:
      return "postclamp";
    case MEMRA_SWIGLU_OAI:
      return "oai";
    default:
      return "unknown";
  }
}

Activation with_clamp(const Activation& activation) {
  Activation result = activation;
  if (!is_clamped(result.kind)) result.kind = MEMRA_SWIGLU_PRECLAMP;
  return result;
}

Activation without_clamp(const Activation& activation) {
  Activation result = activation;
  result.limit = FLT_MAX;
  return result;
}

}  // namespace memra::bench
