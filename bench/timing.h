// Times arms on the device, between two events of the stream they run in.
#pragma once

#include <string_view>
#include <vector>

#include "arms.h"
#include "dataset.h"
#include "launcher.h"
#include "stats.h"

namespace memra::bench {

// Microseconds per launch.
struct ArmTiming {
  Arm arm;
  Summary stream;    // launches enqueued one by one: may be bound by the host
  Summary graph;     // the same launches replayed as one graph
  double bytes = 0;  // weight bytes that a launch reads
};

// `iters` samples of `reps` launches each (at least one for each slab set), rotating over the sets.
std::vector<ArmTiming> time_arms(const Session& session, const DataSet& data,
                                 const Launcher& launcher, const std::vector<Arm>& arms,
                                 const Activation& activation, int iters, int reps,
                                 Progress* progress);

}  // namespace memra::bench
