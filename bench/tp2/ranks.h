// The engines of the two ranks, and where they run.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "session.h"
#include "tp2/options.h"

namespace memra::bench::tp2 {

inline constexpr int kRanks = 2;

struct Ranks {
  std::array<std::unique_ptr<Session>, kRanks> sessions;

  const Session& operator[](int rank) const { return *sessions[static_cast<size_t>(rank)]; }
  bool on_cpu() const { return sessions[0]->on_cpu(); }
  // Two ranks of one GPU: what overlaps there is the device's business.
  bool share_device() const;
  // "P2P", "staged", or "memory" where both ranks are on one device or on the CPU.
  std::string copy_path() const;
};

// CUDA devices 0 and 1 where there are two, else device 0 for both, or two CPU engines with half
// the threads each; or what the options say.
Ranks open_ranks(const Options& options);

// One line: which devices, and how copies go from one to the other.
std::string describe(const Ranks& ranks);

}  // namespace memra::bench::tp2
