// The protocol of the grouped products' rings as a model: a producer of tiles and activations, one
// of weights, and a warp that wait for each other as grouped_ring.cuh has them wait. No GPU is
// needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "grouped_shared.cuh"

namespace memra::cuda {
namespace {

// What is counted over all tiles: tiles, blocks of activations, blocks of weights.
enum Ring { kTiles, kActivations, kWeights, kRings };
struct Op {
  enum Kind { kFill, kTake, kEmpty } kind;
  Ring ring;
  int index;
};
using Agent = std::vector<Op>;

// The list's end is one more tile, published and taken but never emptied.
Agent producer(int tiles, int blocks, int run) {
  Agent ops{{Op::kFill, kTiles, 0}};
  for (int tile = 0; tile < tiles; ++tile) {
    ops.push_back({Op::kFill, kTiles, tile + 1});
    if (tile % run != 0) continue;
    for (int block = 0; block < blocks; ++block)
      ops.push_back({Op::kFill, kActivations, tile / run * blocks + block});
  }
  return ops;
}

Agent weight_producer(int tiles, int blocks) {
  Agent ops;
  for (int tile = 0; tile < tiles; ++tile) {
    ops.push_back({Op::kTake, kTiles, tile});
    for (int block = 0; block < blocks; ++block)
      ops.push_back({Op::kFill, kWeights, tile * blocks + block});
    ops.push_back({Op::kEmpty, kTiles, tile});
  }
  ops.push_back({Op::kTake, kTiles, tiles});
  return ops;
}

// direct: the weights of a tile are asked for in the last block of the tile before.
Agent warp(int tiles, int blocks, int run, bool direct = false) {
  Agent ops;
  for (int tile = 0; tile < tiles; ++tile) {
    const bool frees = tile % run == run - 1 || tile == tiles - 1;
    const int first = tile / run * blocks;
    ops.push_back({Op::kTake, kTiles, tile});
    for (int block = 0; block < blocks; ++block) {
      if (!direct) ops.push_back({Op::kTake, kWeights, tile * blocks + block});
      ops.push_back({Op::kTake, kActivations, first + block});
      if (!direct) ops.push_back({Op::kEmpty, kWeights, tile * blocks + block});
      if (direct && block == blocks - 1) ops.push_back({Op::kTake, kTiles, tile + 1});
      if (frees && block > 0) ops.push_back({Op::kEmpty, kActivations, first + block - 1});
    }
    if (frees) ops.push_back({Op::kEmpty, kActivations, first + blocks - 1});
    ops.push_back({Op::kEmpty, kTiles, tile});
  }
  ops.push_back({Op::kTake, kTiles, tiles});
  return ops;
}

// Runs each as far as it comes, in turn. False if all wait.
bool runs_through(const std::array<Agent, 3>& agents, const std::array<int, kRings>& places) {
  std::array<size_t, 3> done{};
  std::array<int, kRings> filled{};
  std::array<std::array<int, kRings>, 3> emptied{};
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t a = 0; a < agents.size(); ++a) {
      for (; done[a] < agents[a].size(); ++done[a], moved = true) {
        const Op& op = agents[a][done[a]];
        const bool by_both = op.ring == kTiles && !agents[1].empty();
        const int freed =
            by_both ? std::min(emptied[1][kTiles], emptied[2][kTiles]) : emptied[2][op.ring];
        if (op.kind == Op::kFill && op.index - freed >= places[op.ring]) break;
        if (op.kind == Op::kTake && filled[op.ring] <= op.index) break;
        if (op.kind == Op::kFill) filled[op.ring] = op.index + 1;
        if (op.kind == Op::kEmpty) emptied[a][op.ring] = op.index + 1;
      }
    }
  }
  for (size_t a = 0; a < agents.size(); ++a)
    if (done[a] != agents[a].size()) return false;
  return true;
}

template <class Shared>
void expect_no_deadlock(int run) {
  const std::array<int, kRings> places{Shared::kTileQueue, Shared::kZBlocks, Shared::kBlocks};
  for (int blocks = 1; blocks <= 32; ++blocks) {
    if (run > 1 && blocks > Shared::kZBlocks) break;
    for (int tiles = 1; tiles <= 20; ++tiles) {
      const Agent weights = Shared::kDirect ? Agent() : weight_producer(tiles, blocks);
      ASSERT_TRUE(runs_through(
          {producer(tiles, blocks, run), weights, warp(tiles, blocks, run, Shared::kDirect)},
          places))
          << blocks << " blocks, " << tiles << " tiles, runs of " << run;
    }
  }
}

TEST(GroupedRing, TheModelSeesAWaitForEver) {
  // Without room for the next tile the producer never comes to the activations of this one.
  EXPECT_FALSE(runs_through({producer(2, 1, 1), weight_producer(2, 1), warp(2, 1, 1)}, {1, 4, 4}));
  EXPECT_FALSE(runs_through({producer(2, 1, 1), {}, warp(2, 1, 1, true)}, {1, 4, 0}));
}

TEST(GroupedRing, NobodyWaitsForEver) {
  for (int run = 1; run <= 4; ++run) {
    expect_no_deadlock<WideGateUp>(run);
    expect_no_deadlock<WidePlane>(run);
    expect_no_deadlock<DirectGateUp>(run);
    expect_no_deadlock<DirectPlane>(run);
    expect_no_deadlock<NarrowGateUp>(run);
    expect_no_deadlock<NarrowPlane>(run);
    expect_no_deadlock<MixedGateUp>(run);
    expect_no_deadlock<WideRowsGateUp>(run);
    expect_no_deadlock<WideRowsPlane>(run);
    expect_no_deadlock<NarrowRowsGateUp>(run);
    expect_no_deadlock<NarrowRowsPlane>(run);
  }
}

TEST(GroupedRing, FitsABlock) {
  constexpr int kMost = 227 * 1024;  // of a block on sm_90
  // Of all blocks on an SM, each of which costs 1 KiB more.
  constexpr int kAll = 228 * 1024 / 2 - 1024;
  static_assert(NarrowGateUp::kResident == 2 && NarrowPlane::kResident == 2 &&
                NarrowRowsGateUp::kResident == 2 && NarrowRowsPlane::kResident == 2);
  EXPECT_LE(WideGateUp::kBytes, kMost);
  EXPECT_LE(WidePlane::kBytes, kMost);
  EXPECT_LE(DirectGateUp::kBytes, kMost);
  EXPECT_LE(DirectPlane::kBytes, kMost);
  EXPECT_LE(MixedGateUp::kBytes, kMost);
  EXPECT_LE(WideRowsGateUp::kBytes, kMost);
  EXPECT_LE(WideRowsPlane::kBytes, kMost);
  EXPECT_LE(NarrowGateUp::kBytes, kAll);
  EXPECT_LE(NarrowPlane::kBytes, kAll);
  EXPECT_LE(NarrowRowsGateUp::kBytes, kAll);
  EXPECT_LE(NarrowRowsPlane::kBytes, kAll);
}

}  // namespace
}  // namespace memra::cuda
