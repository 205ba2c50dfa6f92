// The grouped path against f64, on a sample of rows and tokens.
#pragma once

#include "accuracy.h"
#include "grouped_calls.h"
#include "grouped_planes.h"

namespace memra::bench {

struct GroupedAccuracy {
  Accuracy planes[kPlanes];  // the products as stage calls
  Accuracy layer;            // bf16 in, f32 out

  // What memra.h promises of the grouped path.
  static constexpr double kPlaneLimit = 5e-4;
  static constexpr double kLayerLimit = 1e-3;
  bool within_limits() const;
};

GroupedAccuracy measure_accuracy(const GroupedCalls& calls, const GroupedPlanes& planes);

}  // namespace memra::bench
