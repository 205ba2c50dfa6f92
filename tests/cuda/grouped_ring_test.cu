// The protocol of the grouped products' ring as a model: a producer and a warp that wait for each
// other as grouped_ring.cuh has them wait. No GPU is needed.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "grouped_shared.cuh"

namespace memra::cuda {
namespace {

struct Op {
  enum Kind { kPublish, kFill, kOpen, kTake, kEmpty, kFinish } kind;
  int index;  // of a tile or a block, counted over all tiles
};

// The list's end is one more tile, published and opened but never multiplied.
std::vector<Op> producer(int tiles, int blocks, int run) {
  std::vector<Op> ops{{Op::kPublish, 0}};
  for (int tile = 0; tile < tiles; ++tile) {
    ops.push_back({Op::kPublish, tile + 1});
    if (tile % run != 0) continue;
    for (int block = 0; block < blocks; ++block)
      ops.push_back({Op::kFill, tile / run * blocks + block});
  }
  return ops;
}

class Warp {
 public:
  Warp(int tiles, int blocks, int ahead, int run) : tiles_(tiles), blocks_(blocks) {
    open();
    for (int i = 0; i < ahead; ++i)
      copy();
    for (int tile = 0; tile < tiles; ++tile) {
      const bool frees = tile % run == run - 1 || tile == tiles - 1;
      ops.push_back({Op::kOpen, tile});
      for (int block = 0; block < blocks; ++block) {
        copy();
        const int all = tile / run * blocks + block;
        ops.push_back({Op::kTake, all});
        if (frees && block > 0) ops.push_back({Op::kEmpty, all - 1});
      }
      if (frees) ops.push_back({Op::kEmpty, tile / run * blocks + blocks - 1});
      ops.push_back({Op::kFinish, tile});
    }
  }
  std::vector<Op> ops;

 private:
  void open() {
    ops.push_back({Op::kOpen, next_});
    left_ = next_ < tiles_ ? blocks_ : 0;
  }
  void copy() {
    if (left_ == 0 || --left_ != 0) return;
    ++next_;
    open();
  }
  int tiles_, blocks_, next_ = 0, left_ = 0;
};

template <class Shared>
void expect_no_deadlock(int run) {
  for (int blocks = 1; blocks <= 32; ++blocks) {
    if (run > 1 && blocks > Shared::kZBlocks) break;
    for (int tiles = 1; tiles <= 20; ++tiles) {
      const std::vector<Op> makes = producer(tiles, blocks, run);
      const std::vector<Op> takes = Warp(tiles, blocks, Shared::kBlocks - 1, run).ops;
      int published = 0, filled = 0, emptied = 0, finished = 0;
      size_t made = 0, taken = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (; made < makes.size(); ++made, moved = true) {
          const Op& op = makes[made];
          if (op.kind == Op::kPublish) {
            if (op.index - finished >= Shared::kTileQueue) break;
            published = op.index + 1;
          } else {
            if (op.index - emptied >= Shared::kZBlocks) break;
            filled = op.index + 1;
          }
        }
        for (; taken < takes.size(); ++taken, moved = true) {
          const Op& op = takes[taken];
          if (op.kind == Op::kOpen && published <= op.index) break;
          if (op.kind == Op::kTake && filled <= op.index) break;
          if (op.kind == Op::kEmpty) emptied = op.index + 1;
          if (op.kind == Op::kFinish) finished = op.index + 1;
        }
      }
      ASSERT_EQ(made, makes.size())
          << "the producer waits for ever: " << blocks << " blocks, " << tiles << " tiles";
      ASSERT_EQ(taken, takes.size())
          << "the warp waits for ever: " << blocks << " blocks, " << tiles << " tiles";
    }
  }
}

TEST(GroupedRing, NobodyWaitsForEver) {
  for (int run = 1; run <= 4; ++run) {
    expect_no_deadlock<WideGateUp>(run);
    expect_no_deadlock<WidePlane>(run);
    expect_no_deadlock<NarrowGateUp>(run);
    expect_no_deadlock<NarrowPlane>(run);
  }
}

TEST(GroupedRing, FitsABlock) {
  constexpr int kMost = 227 * 1024;  // of a block on sm_90
  // Of all blocks on an SM, each of which costs 1 KiB more.
  constexpr int kAll = 228 * 1024 / 2 - 1024;
  static_assert(NarrowGateUp::kResident == 2 && NarrowPlane::kResident == 2);
  EXPECT_LE(WideGateUp::kBytes, kMost);
  EXPECT_LE(WidePlane::kBytes, kMost);
  EXPECT_LE(NarrowGateUp::kBytes, kAll);
  EXPECT_LE(NarrowPlane::kBytes, kAll);
}

}  // namespace
}  // namespace memra::cuda
