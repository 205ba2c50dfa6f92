// A layer split over ranks against the layer on one device: its sums and its times.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/layer.h"
#include "stats.h"

namespace memra::bench::parallel {

// The layer on rank 0's device alone.
struct OneDevice {
  Bytes y;          // on every rank
  Summary time_us;  // of a layer, of several back to back
};

// What the ranks' times say, in microseconds for a layer of several back to back; of each sample,
// that of the slowest rank.
struct SplitTimes {
  Summary compute_us;
  Summary communication_us;  // alone, on an idle device
  Summary together_us;
  Summary exposed_us;  // together without compute: communication that nothing hides
  Summary speed_up;    // one device / together
};

struct Agreement {
  double relative_l2 = 0;  // of a rank's sums from those of one device, the worst rank's
  double limit = 0;
  bool is_live = false;  // sums of zeros agree with anything

  bool is_good() const { return is_live && relative_l2 <= limit; }
};

struct Sampling {
  int iters = 0;
  int layers = 0;
};

OneDevice measure_one_device(Group& group, const LayerFixture* whole, const Session& session,
                             const Call& call, const Sampling& sampling);

SplitTimes measure_split(Group& group, const Session& session, ParallelLayer* layer,
                         const OneDevice& one, const Sampling& sampling);

Agreement compare(Group& group, const Session& session, ParallelLayer* layer, const Call& call,
                  const OneDevice& one);

}  // namespace memra::bench::parallel
