// The suite's own checks see what they are there to see: one flipped bit anywhere is a failure.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/stages.h"

namespace memra::test {
namespace {

using reference::MoeProblem;
using reference::ProblemSpec;

class SelfCheck : public BackendTest {
 protected:
  std::shared_ptr<const Solved> solved_ = solve(ProblemSpec{});
};

// The least significant change of a bank, a scale, an activation or a router weight shows in y.
TEST_P(SelfCheck, OneFlippedInputBitIsSeen) {
  const auto expect_seen = [&](const char* what, const MoeProblem& problem) {
    for (const Formats& formats : {v1(), v2()}) {
      const auto changed = solve(what, problem);
      const DeviceProblem device(engine(), changed->in(formats));
      device.run({});
      EXPECT_TRUE(device.check({}, changed->result)) << what;
      EXPECT_FALSE(device.check({}, solved_->result)) << what << ", " << formats.name;
    }
  };
  // Expert 1 serves token 0.
  MoeProblem base = solved_->problem;
  base.ids[0] = 1;
  solved_ = solve("base", base);
  for (const reference::Plane plane : {reference::kGate, reference::kUp, reference::kDown}) {
    MoeProblem problem = base;
    reference::Slab& slab = problem.banks[plane].slabs[1];
    reference::set_code(slab, 5, 37,
                        static_cast<std::uint8_t>(reference::get_code(slab, 5, 37) ^ 4));
    expect_seen("code", problem);
    problem = base;
    reference::Slab& other = problem.banks[plane].slabs[1];
    reference::set_scale(other, 5, 37,
                         static_cast<std::uint8_t>(reference::get_scale(other, 5, 37) ^ 4));
    expect_seen("scale", problem);
    problem = base;
    problem.banks[plane].scales[1] *= 1.0f + 0x1p-20f;
    expect_seen("expert scale", problem);
  }
  MoeProblem problem = base;
  problem.weights[0] *= 1.0f + 0x1p-20f;
  expect_seen("router weight", problem);
  problem = base;
  reference::store(problem.x, problem.x_dtype, 70,
                   reference::load(problem.x, problem.x_dtype, 70) + 0.25f);
  expect_seen("activation", problem);
}

TEST_P(SelfCheck, StrayWritesAreSeen) {
  ProblemSpec spec;
  spec.y_padding = 8;
  const auto solved = solve(spec);
  DeviceProblem device(engine(), solved->problem);
  const auto write = [&](std::uint8_t* where) {
    require(memra_memset(engine().get(), where, 0x5A, 1, engine().stream()));
    engine().synchronize();
  };
  device.run({});
  ASSERT_TRUE(device.check({}, solved->result));
  auto* y = static_cast<std::uint8_t*>(device.args({}).y);
  write(y + spec.hidden * 4 + 3);  // between two rows
  EXPECT_FALSE(device.check({}, solved->result));
  device.run({});
  // The last row, which a call with fewer tokens has to leave alone.
  EXPECT_FALSE(device.check({MEMRA_ROWS_AUTO, false, 0, 2}, solved->result));
  ASSERT_TRUE(device.inputs_intact());
  auto* slab = const_cast<std::uint8_t*>(device.slab(reference::kDown, 2));
  write(slab + 7);
  EXPECT_FALSE(device.inputs_intact());
  device.replace_slabs(solved->problem);
  EXPECT_TRUE(device.inputs_intact());

  const Buffer buffer(engine(), 100);
  for (const std::int64_t outside : {-64, -1, 100, 163}) {
    ASSERT_TRUE(buffer.guards_intact());
    const Bytes before = Buffer::guard_bytes();
    auto* place = buffer.data() + outside;
    write(place);
    EXPECT_FALSE(buffer.guards_intact()) << outside;
    const std::int64_t index = outside < 0 ? outside + 64 : outside - 100;
    require(memra_memcpy(engine().get(), place, &before[static_cast<std::size_t>(index)], 1,
                         engine().stream()));
    engine().synchronize();
  }
}

TEST_P(SelfCheck, WrongStagesAreSeen) {
  const DeviceProblem device(engine(), solved_->problem);
  const DeviceStages stages(device, *solved_);
  // Fed with each other's data, or not run at all.
  EXPECT_FALSE(stages.check_x_q());
  EXPECT_FALSE(stages.check_act());
  EXPECT_FALSE(stages.check_act_q());
  EXPECT_FALSE(stages.check_y());
  stages.feed_gate_up();
  EXPECT_TRUE(stages.check_x_q());
  stages.feed_quantize_act();
  EXPECT_TRUE(stages.check_act());
}

TEST_P(SelfCheck, VacuousProblemsAreSeen) {
  MoeProblem problem = solved_->problem;
  for (reference::Slab& slab : problem.banks[reference::kGate].slabs)
    slab = reference::Slab(reference::Format::kV1, slab.rows, slab.cols);
  EXPECT_FALSE(is_informative(*solve("zero gate", problem)));
  problem = solved_->problem;
  problem.activation = {reference::Activation::kSwigluPreclamp, 0.01f, 0.0f};
  EXPECT_FALSE(is_informative(*solve("saturated", problem)));
  problem = solved_->problem;
  reference::Random random(1);
  reference::fill_row(problem, 0, reference::RowKind::kOneNan, random);
  EXPECT_FALSE(is_informative(*solve("NaN", problem)));
  EXPECT_TRUE(is_informative(*solved_));
}

MEMRA_ON_BOTH_BACKENDS(SelfCheck);

}  // namespace
}  // namespace memra::test
