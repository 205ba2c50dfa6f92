// How fast the library copies from one rank's memory to the other's.
#pragma once

#include "stats.h"
#include "tp2/ranks.h"

namespace memra::bench::tp2 {

struct PeerCopy {
  double bytes = 0;
  Summary us;

  double gigabytes_per_second() const { return bytes / us.median * 1e-3; }
};

// 64 MiB from rank 0 to rank 1, between events of rank 1's stream.
PeerCopy measure_peer_copy(const Ranks& ranks);

}  // namespace memra::bench::tp2
