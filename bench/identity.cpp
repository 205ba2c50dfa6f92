#include "identity.h"

#include <algorithm>
#include <string>

namespace memra::bench {
namespace {

using Bits = std::vector<uint32_t>;

constexpr int kNanByte = 0xFF;

uint64_t count_differing(const Bits& a, const Bits& b) {
  uint64_t differing = 0;
  for (size_t i = 0; i < a.size(); ++i)
    differing += a[i] != b[i] ? 1U : 0U;
  return differing;
}

// The outputs of each arm of a stage, in the order of `arms`.
class Runner {
 public:
  Runner(const Session& session, const DataSet& data, const Launcher& launcher)
      : session_(session), data_(data), launcher_(launcher) {}

  Bits run(const Arm& arm, const Activation& activation) const {
    const Memory& output = arm.stage == Stage::kGateUp ? data_.gate_up_out() : data_.y();
    session_.fill(output, kNanByte);
    launcher_.launch(arm, 0, activation);
    return session_.download<uint32_t>(output);
  }

 private:
  const Session& session_;
  const DataSet& data_;
  const Launcher& launcher_;
};

}  // namespace

bool IdentityRow::is_vacuous() const {
  return clamped.is_degenerate() || unclamped.is_degenerate() || 2 * saturated > clamped.outputs;
}

bool Identity::any_differs() const {
  return std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.differing() > 0; });
}

bool Identity::any_vacuous() const {
  return rows.empty() ||
         std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.is_vacuous(); });
}

Identity check_identity(const Session& session, const DataSet& data, const Launcher& launcher,
                        const std::vector<Arm>& arms, const Activation& activation,
                        Progress* progress) {
  const Runner runner(session, data, launcher);
  const Activation clamps[2] = {with_clamp(activation), without_clamp(activation)};
  Identity identity;
  for (const Arm& arm : arms) {
    if (!arm.has_output()) continue;
    IdentityRow row;
    row.arm = arm.name;
    row.stage = arm.stage;
    identity.rows.push_back(row);
  }
  Bits outputs[2];
  for (int c = 0; c < 2; ++c) {
    // Down takes what gate/up's baseline computes with this clamp; the last of these inputs is the
    // one that is timed.
    Bits gate_up, down;
    size_t row = 0;
    for (const Arm& arm : arms) {
      if (!arm.has_output()) continue;
      progress->show("identity: " + std::string(arm.name));
      Bits& baseline = arm.stage == Stage::kGateUp ? gate_up : down;
      const Bits output = runner.run(arm, clamps[c]);
      if (arm.is_baseline) baseline = output;
      if (arm.is_baseline && arm.stage == Stage::kGateUp) data.requantize();
      (c == 0 ? identity.rows[row].clamped : identity.rows[row].unclamped) =
          count_outputs(output, baseline);
      ++row;
    }
    outputs[c] = std::move(gate_up);
  }
  const uint64_t saturated = count_differing(outputs[0], outputs[1]);
  for (IdentityRow& row : identity.rows) {
    if (row.stage == Stage::kGateUp) row.saturated = saturated;
  }
  return identity;
}

}  // namespace memra::bench
