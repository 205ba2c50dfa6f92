// Faults of arguments on both backends: what is refused names the argument, enqueues nothing and
// writes nothing, and what sits just inside the border works.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "conformance/device_problem.h"
#include "conformance/fixture.h"

namespace memra::test {
namespace {

using reference::ProblemSpec;

class FaultsArguments : public BackendTest {
 protected:
  ProblemSpec spec() const {
    ProblemSpec spec;
    spec.tokens = 5;
    return spec;
  }
  // The call fails, and y, the counter of bad ids and the workspace are as they were.
  void expect_refused(const DeviceProblem& device, const memra_moe_args& args, memra_status status,
                      std::initializer_list<const char*> words) {
    device.reset();
    EXPECT_TRUE(
        fails_with(memra_moe_rows(device.layer(), &args, engine().stream()), status, words));
    engine().synchronize();
    EXPECT_TRUE(device.untouched());
  }
};

TEST_P(FaultsArguments, WorkspaceOneByteShortIsRefusedAndTheExactSizeWorks) {
  const auto solved = solve(spec());
  for (const Formats& formats : all_formats()) {
    const DeviceProblem device(engine(), solved->in(formats));
    for (const std::uint32_t variant : device.variants()) {
      memra_moe_args args = device.args({variant});
      --args.workspace_bytes;
      expect_refused(device, args, MEMRA_ERROR_WORKSPACE_TOO_SMALL, {"workspace_bytes"});
      device.run({variant});
      EXPECT_TRUE(device.check({variant}, solved->result));
    }
  }
  const DeviceProblem device(engine(), solved->problem);
  std::uint64_t before = 0;
  for (std::int64_t tokens = 0; tokens <= 5; ++tokens) {
    std::uint64_t bytes = 0;
    ASSERT_TRUE(ok(memra_moe_workspace_size(device.layer(), tokens, &bytes)));
    EXPECT_GE(bytes, before);
    before = bytes;
  }
}

// Each pointer off by 2, 4 and 8 bytes: an error that names it, or the right bits.
TEST_P(FaultsArguments, PointersOffByTwoFourEight) {
  struct Pointer {
    std::size_t offset;
    std::ptrdiff_t alignment;
    const char* name;
  };
  const Pointer pointers[] = {
      {offsetof(memra_moe_args, x), 16, "x"},
      {offsetof(memra_moe_args, y), 16, "y"},
      {offsetof(memra_moe_args, topk_ids), 4, "topk_ids"},
      {offsetof(memra_moe_args, topk_weights), 4, "topk_weights"},
      {offsetof(memra_moe_args, expert_ptrs), 8, "expert_ptrs"},
      {offsetof(memra_moe_args, expert_scales), 4, "expert_scales"},
      {offsetof(memra_moe_args, invalid_ids), 8, "invalid_ids"},
      {offsetof(memra_moe_args, workspace), MEMRA_WORKSPACE_ALIGNMENT, "workspace"}};
  const auto solved = solve(spec());
  const DeviceProblem device(engine(), solved->problem, {Slabs::kTables, 4});
  for (const Pointer& pointer : pointers) {
    for (const std::ptrdiff_t shift : {2, 4, 8}) {
      if (shift % pointer.alignment == 0) continue;
      memra_moe_args args = device.args({});
      auto*& field = *reinterpret_cast<std::uint8_t**>(reinterpret_cast<std::uint8_t*>(&args) +
                                                       pointer.offset);
      field += shift;
      expect_refused(device, args, MEMRA_ERROR_INVALID_ARGUMENT, {pointer.name});
    }
  }
  // V1 slabs at every multiple of 4, in every variant.
  for (const std::int64_t skew : {4, 8, 12}) {
    const DeviceProblem shifted(engine(), solved->problem, {Slabs::kPacked, skew});
    for (const std::uint32_t variant : shifted.variants()) {
      shifted.run({variant});
      EXPECT_TRUE(shifted.check({variant}, solved->result)) << skew << variant_name(variant);
    }
  }
}

TEST_P(FaultsArguments, ImpossibleVariantsAndUnknownValuesAreRefused) {
  const DeviceProblem device(engine(), solve(spec())->problem);
  for (const std::uint32_t variant :
       {MEMRA_ROWS_PLAIN | MEMRA_ROWS_ILP, MEMRA_ROWS_ORD | MEMRA_ROWS_DEDUP_ORDER,
        MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_ILP, MEMRA_ROWS_LANE_MAJOR | 0, 64 | 0}) {
    memra_moe_args args = device.args({});
    args.variant = variant;
    expect_refused(device, args, MEMRA_ERROR_INVALID_ARGUMENT, {"variant"});
  }
  memra_moe_args args = device.args({});
  args.x_dtype = 3;
  expect_refused(device, args, MEMRA_ERROR_INVALID_ARGUMENT, {"x_dtype", "3"});
  args = device.args({});
  args.y_stride = 127;
  expect_refused(device, args, MEMRA_ERROR_INVALID_ARGUMENT, {"y_stride", "127"});
  args = device.args({});
  args.flags = 4;
  expect_refused(device, args, MEMRA_ERROR_INVALID_ARGUMENT, {"flags"});
  args = device.args({});
  args.tokens = -1;
  expect_refused(device, args, MEMRA_ERROR_INVALID_ARGUMENT, {"tokens", "-1"});
  args = device.args({});
  args.y = const_cast<void*>(args.x);
  expect_refused(device, args, MEMRA_ERROR_INVALID_ARGUMENT, {"y"});
}

MEMRA_ON_BOTH_BACKENDS(FaultsArguments);

}  // namespace
}  // namespace memra::test
