// How the ring kernel shares its units out among blocks. No GPU is needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "rows_ring_plan.cuh"

namespace memra::cuda {
namespace {

constexpr uint32_t kBlocks[] = {1, 2, 7, 132, 264, 300};

struct Shape {
  int64_t hidden, intermediate, top_k;
};
constexpr Shape kShapes[] = {{4096, 2048, 8}, {4096, 1280, 8}, {2048, 768, 8},  {2048, 512, 10},
                             {7168, 2048, 8}, {2880, 2880, 4}, {4096, 640, 8},  {64, 64, 1},
                             {1024, 32, 3},   {5120, 1536, 8}, {3072, 1536, 6}, {64, 8192, 2}};

GateUpParams gate_up_of(const Shape& shape, bool quantised) {
  static int8_t q;
  GateUpParams p{};
  p.in = shape.hidden;
  p.rows = shape.intermediate;
  p.out_q = quantised ? &q : nullptr;
  return p;
}

DownParams down_of(const Shape& shape, int64_t tokens) {
  DownParams p{};
  p.in = shape.intermediate;
  p.rows = shape.hidden;
  p.top_k = shape.top_k;
  p.tokens = tokens;
  return p;
}

std::vector<BlockPlan> blocks_of(const RingPlan& plan, uint32_t blocks) {
  std::vector<BlockPlan> all(blocks);
  for (uint32_t b = 0; b < blocks; ++b) {
    for (int part = 0; part < BlockPlan::kParts; ++part)
      all[b].make(plan, b, part);
  }
  return all;
}

// Every number from begin to end - 1 is in one range, and ranges follow one another.
void expect_cover(const std::vector<UnitRange>& ranges, uint32_t begin, uint32_t end) {
  uint32_t at = begin;
  for (const UnitRange& range : ranges) {
    ASSERT_LE(range.begin, range.end);
    if (range.size() == 0) continue;
    ASSERT_EQ(range.begin, at);
    at = range.end;
  }
  ASSERT_EQ(at, end);
}

std::vector<UnitRange> ranges_of(const std::vector<BlockPlan>& blocks,
                                 UnitRange (BlockPlan::*phase)[kRounds], int round) {
  std::vector<UnitRange> ranges;
  for (const BlockPlan& block : blocks)
    ranges.push_back((block.*phase)[round]);
  return ranges;
}

TEST(RingPlan, SharesCoverWhateverIsBeside) {
  for (const uint32_t blocks : kBlocks) {
    for (const uint32_t n : {0u, 1u, 63u, 512u, 5000u}) {
      for (const uint32_t busy : {0u, 1u, blocks / 2, blocks - 1, blocks}) {
        for (const float extra : {0.1f, 1.0f, 2.5f, 40.0f}) {
          const UnitShares shares = UnitShares::beside(5, n, blocks, busy, extra);
          std::vector<UnitRange> ranges;
          uint32_t largest = 0, slowest = 0;
          for (uint32_t b = 0; b < blocks; ++b) {
            ranges.push_back(shares.of_block(b));
            largest = std::max(largest, ranges.back().size());
            const float time = ranges.back().size() + (b < busy ? extra : 0.0f);
            slowest = std::max(slowest, static_cast<uint32_t>(time * 100));
          }
          expect_cover(ranges, 5, 5 + n);
          EXPECT_LE(largest, shares.largest());
          const uint32_t even = n / blocks + (n % blocks != 0);
          EXPECT_LE(slowest, static_cast<uint32_t>((even + (busy != 0 ? extra : 0.0f)) * 100));
        }
      }
    }
  }
}

TEST(RingPlan, OneTokenReadsEverythingOnceAndNothingTooEarly) {
  for (const Shape& shape : kShapes) {
    for (const uint32_t blocks : kBlocks) {
      SCOPED_TRACE(testing::Message() << shape.hidden << "->" << shape.intermediate << " top_k "
                                      << shape.top_k << ", " << blocks << " blocks");
      const auto pairs = static_cast<uint32_t>(shape.top_k);
      const auto of_pair = static_cast<uint32_t>(shape.intermediate / kRowBlock);
      const auto row_blocks = static_cast<uint32_t>(shape.hidden / kRowBlock);
      const RingPlan plan =
          RingPlan::of(gate_up_of(shape, true), down_of(shape, 1), true, true, true, pairs, blocks);
      const std::vector<BlockPlan> all = blocks_of(plan, blocks);
      uint32_t first_end = 0;
      for (const BlockPlan& block : all) {
        first_end = std::max(first_end, block.gate_up[0].end);
        for (const UnitRange& range : block.gate_up) {
          EXPECT_EQ(range.begin % kGroupUnits, 0u);
          EXPECT_EQ(range.end % kGroupUnits, 0u);
        }
      }
      expect_cover(ranges_of(all, &BlockPlan::gate_up, 0), 0, first_end);
      expect_cover(ranges_of(all, &BlockPlan::gate_up, 1), first_end, pairs * of_pair);
      // Down's first round has slots whose outputs the first round of gate and up makes.
      EXPECT_LE(plan.cut * of_pair, first_end);
      EXPECT_TRUE(plan.cut % 2 == 0 || plan.cut == pairs) << plan.cut;
      uint32_t units = 0;
      for (int round = 0; round < kRounds; ++round) {
        const bool any = round == 0 ? plan.cut > 0 : plan.cut < pairs;
        expect_cover(ranges_of(all, &BlockPlan::down, round), 0, any ? row_blocks : 0);
      }
      for (const BlockPlan& block : all) {
        units += block.n_down(true, pairs);
        if (plan.cut > 0 && plan.cut < pairs) {
          EXPECT_LE(block.down[0].size(), kMaxHeld);
          EXPECT_EQ(block.down[0].begin, block.down[1].begin);
        }
      }
      EXPECT_EQ(units, row_blocks * ((pairs + 1) / 2));
    }
  }
}

TEST(RingPlan, RunsAreReadOnceAndNoneTooEarly) {
  for (const Shape& shape : kShapes) {
    for (const uint32_t blocks : kBlocks) {
      for (const uint32_t runs : {0u, 1u, 2u, 15u, 43u, 512u}) {
        SCOPED_TRACE(testing::Message() << shape.hidden << "->" << shape.intermediate << ", "
                                        << runs << " runs, " << blocks << " blocks");
        const auto of_run = static_cast<uint32_t>(shape.intermediate / kRowBlock);
        const auto steps = static_cast<uint32_t>((shape.hidden / kRowBlock + 1) / 2);
        const RingPlan plan = RingPlan::of(gate_up_of(shape, true), down_of(shape, 64), true, true,
                                           false, runs, blocks);
        const std::vector<BlockPlan> all = blocks_of(plan, blocks);
        uint32_t first_end = 0;
        for (const BlockPlan& block : all)
          first_end = std::max(first_end, block.gate_up[0].end);
        expect_cover(ranges_of(all, &BlockPlan::gate_up, 0), 0, first_end);
        expect_cover(ranges_of(all, &BlockPlan::gate_up, 1), first_end, runs * of_run);
        EXPECT_LE(plan.cut * of_run, first_end);
        expect_cover(ranges_of(all, &BlockPlan::down, 0), 0, plan.cut * steps);
        expect_cover(ranges_of(all, &BlockPlan::down, 1), plan.cut * steps, runs * steps);
      }
    }
  }
}

TEST(RingPlan, AStageAloneHasOneRound) {
  const Shape shape{4096, 2048, 8};
  const RingPlan up = RingPlan::of(gate_up_of(shape, false), {}, true, false, true, 24, 264);
  EXPECT_EQ(up.grain, 1u);
  uint32_t units = 0;
  for (const BlockPlan& block : blocks_of(up, 264)) {
    units += block.n_gate_up();
    EXPECT_EQ(block.gate_up[1].size(), 0u);
    EXPECT_EQ(block.n_down(true, 0), 0u);
  }
  EXPECT_EQ(units, 24u * 2048 / kRowBlock);
  const RingPlan down = RingPlan::of({}, down_of(shape, 3), false, true, true, 0, 264);
  units = 0;
  for (const BlockPlan& block : blocks_of(down, 264)) {
    units += block.n_down(true, 8);
    EXPECT_EQ(block.n_gate_up(), 0u);
  }
  EXPECT_EQ(units, 3u * 4096 / kRowBlock * 4);
}

// What one token of published models leaves to the block that has most, over the mean: a layer ends
// with its last block.
TEST(RingPlan, NoBlockHasMuchMoreThanOthers) {
  for (const Shape& shape : kShapes) {
    if (shape.hidden < 2048) continue;
    constexpr uint32_t kAll = 264;
    const auto pairs = static_cast<uint32_t>(shape.top_k);
    const RingPlan plan =
        RingPlan::of(gate_up_of(shape, true), down_of(shape, 1), true, true, true, pairs, kAll);
    double most = 0, sum = 0;
    for (const BlockPlan& block : blocks_of(plan, kAll)) {
      const double bytes =
          2.0 * block.n_gate_up() * static_cast<double>(shape.hidden) +
          2.0 * block.n_down(true, pairs) * static_cast<double>(shape.intermediate);
      most = std::max(most, bytes);
      sum += bytes;
    }
    EXPECT_LE(most, 1.75 * sum / kAll) << shape.hidden << "->" << shape.intermediate;
  }
}

}  // namespace
}  // namespace memra::cuda
