// Do all arms of a stage return the same bits, and is that worth anything?
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "arms.h"
#include "dataset.h"
#include "launcher.h"
#include "output_counts.h"

namespace memra::bench {

struct IdentityRow {
  std::string_view arm;
  Stage stage = Stage::kGateUp;
  OutputCounts clamped;
  OutputCounts unclamped;
  // Outputs that the clamp changes: they do not depend on (all of) the dot products. Gate/up only:
  // in down's sums every output would count.
  uint64_t saturated = 0;

  // Equal bits prove nothing where most outputs are zero or saturated, or any is NaN.
  bool is_vacuous() const;
  uint64_t differing() const { return clamped.differing + unclamped.differing; }
};

struct Identity {
  std::vector<IdentityRow> rows;

  bool any_differs() const;
  bool any_vacuous() const;
};

// Runs every arm that has outputs over slab set 0, on outputs filled with NaN before each run.
Identity check_identity(const Session& session, const DataSet& data, const Launcher& launcher,
                        const std::vector<Arm>& arms, const Activation& activation,
                        Progress* progress);

}  // namespace memra::bench
