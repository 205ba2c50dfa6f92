// Enqueues one launch of an arm through memra.h.
#pragma once

#include "arms.h"
#include "dataset.h"
#include "session.h"
#include "shape.h"

namespace memra::bench {

class Launcher {
 public:
  Launcher(const Session& session, const DataSet& data, bool inputs_stable)
      : session_(session), data_(data), inputs_stable_(inputs_stable) {}

  // Over slab set `copy` of the arm's stage.
  void launch(const Arm& arm, int64_t copy, const Activation& activation) const;

 private:
  uint32_t flags(const Arm& arm) const;
  const void* const* ptrs(const Arm& arm, int64_t copy) const;
  void probe(const Arm& arm, const memra_rows_gate_up_args* gate_up,
             const memra_rows_down_args* down) const;

  const Session& session_;
  const DataSet& data_;
  bool inputs_stable_;
};

}  // namespace memra::bench
