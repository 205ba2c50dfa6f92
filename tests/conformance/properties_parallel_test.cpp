// Tensor and expert parallelism: the ranks' partial sums add up to the whole.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "conformance/banks.h"
#include "conformance/device_problem.h"
#include "conformance/fixture.h"

namespace memra::test {
namespace {

using reference::Format;
using reference::MoeProblem;
using reference::ProblemSpec;

// Rounding in another order, and nothing else, may differ.
constexpr double kTolerance = 1e-6;

ProblemSpec spec_of(std::int64_t intermediate) {
  ProblemSpec spec;
  spec.hidden = 192;
  spec.intermediate = intermediate;
  spec.n_experts = 8;
  spec.top_k = 3;
  spec.tokens = 9;
  return spec;
}

void add(std::vector<float>& sum, const std::vector<float>& part) {
  if (sum.empty()) sum.assign(part.size(), 0.0f);
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += part[i];
}

std::vector<float> y_of(const DeviceProblem& device) {
  const Bytes bytes = device.y();
  const MoeProblem& problem = device.problem();
  return reference::widen(bytes, problem.y_dtype, problem.tokens, problem.hidden, problem.y_stride);
}

::testing::AssertionResult close_to(const Solved& whole, const std::vector<float>& sum) {
  const std::vector<double> expected(whole.result.y_f32.begin(), whole.result.y_f32.end());
  const reference::Closeness result = reference::closeness(expected, sum, whole.problem.hidden);
  if (result.relative_l2 < kTolerance && result.cosine > 1 - kTolerance) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << result.text();
}

// The rows of gate and up, and the columns of down, that rank of ranks holds, cut on the device
// from whole V1 banks.
class Cutter {
 public:
  Cutter(Engine& engine, const MoeProblem& whole) : engine_(engine), whole_(whole) {
    for (const reference::Bank& bank : whole.banks)
      banks_.emplace_back(engine, bank_bytes(bank.slabs, 0));
  }

  MoeProblem cut(std::int64_t rank, std::int64_t ranks) const {
    const std::int64_t width = whole_.intermediate / ranks;
    MoeProblem part = whole_;
    part.intermediate = width;
    for (const reference::Plane plane : {reference::kGate, reference::kUp, reference::kDown}) {
      const bool is_down = plane == reference::kDown;
      Part place;
      (is_down ? place.col : place.row) = rank * width;
      (is_down ? place.cols : place.rows) = width;
      cut_bank(plane, place, part.banks[plane]);
    }
    return part;
  }

 private:
  void cut_bank(reference::Plane plane, const Part& place, reference::Bank& bank) const {
    const Part p = place.resolved(bank.rows, bank.cols);
    const std::int64_t slab = reference::slab_bytes(p.rows, p.cols);
    const Buffer dst(engine_, slab * whole_.n_local);
    memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
    args.rows = bank.rows;
    args.columns = bank.cols;
    args.n_experts = whole_.n_local;
    args.slice = place.slice();
    args.src = banks_[static_cast<std::size_t>(plane)].data();
    args.dst = dst.data();
    require(memra_repack_v2(engine_.get(), &args, engine_.stream()));
    engine_.synchronize();
    bank.format = Format::kV2;
    bank.rows = p.rows;
    bank.cols = p.cols;
    for (std::int64_t e = 0; e < whole_.n_local; ++e) {
      reference::Slab part(Format::kV2, p.rows, p.cols);
      part.bytes = dst.download(e * slab, slab);
      bank.slabs[static_cast<std::size_t>(e)] = std::move(part);
    }
  }

  Engine& engine_;
  const MoeProblem& whole_;
  std::vector<Input> banks_;
};

class Parallel : public BackendTest {};

TEST_P(Parallel, TensorSlicesAddUpToTheWhole) {
  struct Cut {
    std::int64_t intermediate;
    std::int64_t ranks;
  };
  for (const Cut& cut : {Cut{640, 2}, Cut{640, 5}, Cut{640, 10}, Cut{1408, 2}}) {
    const auto whole = solve(spec_of(cut.intermediate));
    ASSERT_TRUE(is_informative(*whole));
    const Cutter cutter(engine(), whole->problem);
    std::vector<float> sum;
    std::vector<float> one;
    for (std::int64_t rank = 0; rank < cut.ranks; ++rank) {
      const auto part = solve("part", cutter.cut(rank, cut.ranks));
      const DeviceProblem device(engine(), part->problem);
      device.run({});
      EXPECT_TRUE(device.check({}, part->result)) << rank << " of " << cut.ranks;
      one = y_of(device);
      add(sum, one);
    }
    EXPECT_TRUE(close_to(*whole, sum)) << cut.intermediate << " in " << cut.ranks;
    EXPECT_FALSE(close_to(*whole, one)) << "one rank alone is no whole";
  }
}

TEST_P(Parallel, AccumulatingOverSlicesIsTheSameSum) {
  const auto whole = solve(spec_of(640));
  const Cutter cutter(engine(), whole->problem);
  Bytes y = bytes_of(std::vector<float>(whole->result.y_f32.size(), 0.0f));
  for (std::int64_t rank = 0; rank < 5; ++rank) {
    MoeProblem part = cutter.cut(rank, 5);
    part.accumulate = true;
    part.y_initial = y;
    const DeviceProblem device(engine(), part);
    device.run({});
    y = device.y();
  }
  std::vector<float> sum(whole->result.y_f32.size());
  std::memcpy(sum.data(), y.data(), y.size());
  EXPECT_TRUE(close_to(*whole, sum));
}

TEST_P(Parallel, ExpertRanksAddUpToTheWhole) {
  const auto whole = solve(spec_of(128));
  for (const std::int64_t ranks : {2, 4, 8}) {
    std::vector<float> sum;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      MoeProblem part = whole->problem;
      part.n_local = part.n_experts / ranks;
      part.local_offset = rank * part.n_local;
      for (reference::Bank& bank : part.banks) {
        const auto begin = static_cast<std::ptrdiff_t>(part.local_offset);
        const auto end = static_cast<std::ptrdiff_t>(part.local_offset + part.n_local);
        bank.slabs = {bank.slabs.begin() + begin, bank.slabs.begin() + end};
        bank.scales = {bank.scales.begin() + begin, bank.scales.begin() + end};
      }
      const auto solved = solve("rank", std::move(part));
      const DeviceProblem device(engine(), solved->problem);
      device.run({});
      EXPECT_TRUE(device.check({}, solved->result)) << rank << " of " << ranks;
      add(sum, y_of(device));
    }
    EXPECT_TRUE(close_to(*whole, sum)) << ranks << " ranks";
  }
}

MEMRA_ON_BOTH_BACKENDS(Parallel);

}  // namespace
}  // namespace memra::test
