#pragma once

// Which units a block of the ring kernel has, in which order.
//
// Down needs what all blocks make of gate and up, and telling all takes longer than the ring's
// bytes last. So the layer goes in rounds: gate and up of the first pairs, then of the others, then
// down of the first pairs, which have long been there, then of the others. Contiguous ranges within
// a round, so that a block hardly ever meets other activations.

#include <cstdint>

#include "rows_params.cuh"
#include "rows_ring.cuh"

namespace memra::cuda {

struct UnitRange {
  uint32_t begin, end;
  __host__ __device__ __forceinline__ uint32_t size() const { return end - begin; }
};

// A share of units first, ... for each block. Blocks from `busy` on differ by one at most; the ones
// before, which have more to do elsewhere, get `less` each.
struct UnitShares {
  uint32_t first, share, rest;
  uint32_t busy, less;

  static __host__ __device__ __forceinline__ UnitShares of(uint32_t first, uint32_t n,
                                                           uint32_t blocks) {
    return {first, n / blocks, n % blocks, 0, 0};
  }
  // Where each of the first `busy` blocks has extra work that takes as long as `extra` units.
  static __host__ __device__ __forceinline__ UnitShares beside(uint32_t first, uint32_t n,
                                                               uint32_t blocks, uint32_t busy,
                                                               float extra) {
    UnitShares best = of(first, n, blocks);
    if (busy == 0 || busy >= blocks) return best;
    float best_time = extra + static_cast<float>(best.largest());
    const float even = (static_cast<float>(n) - static_cast<float>(blocks - busy) * extra) /
                       static_cast<float>(blocks);
    for (uint32_t up = 0; up < 2; ++up) {
      const uint32_t less = (even > 0.0f ? static_cast<uint32_t>(even) : 0) + up;
      if (less * busy > n) break;
      const uint32_t left = n - less * busy, others = blocks - busy;
      const UnitShares shares{first, left / others, left % others, busy, less};
      const float busy_time = extra + static_cast<float>(less);
      const float other_time = static_cast<float>(shares.share + (shares.rest != 0 ? 1 : 0));
      const float time = busy_time > other_time ? busy_time : other_time;
      if (time < best_time) best = shares, best_time = time;
    }
    return best;
  }
  __host__ __device__ __forceinline__ uint32_t largest() const {
    const uint32_t others = share + (rest != 0 ? 1 : 0);
    return others > less ? others : less;
  }
  __host__ __device__ __forceinline__ UnitRange of_block(uint32_t block) const {
    if (block < busy) {
      const uint32_t begin = first + less * block;
      return {begin, begin + less};
    }
    const uint32_t other = block - busy;
    const uint32_t begin = first + less * busy + share * other + (other < rest ? other : rest);
    return {begin, begin + share + (other < rest ? 1 : 0)};
  }
};

// Row blocks of gate and up whose outputs make a group of 32 for down.
inline constexpr uint32_t kGroupUnits = numerics::kGroupValues / kRowBlock;

// Row blocks whose sum over the first slots a block keeps until the others' round.
inline constexpr uint32_t kMaxHeld = 16;

// For all blocks alike. Divisions are slow and a block's start is on everybody's way, so the host
// makes it where it knows the number of runs.
struct RingPlan {
  UnitShares gate_up[kRounds];  // of grains of run * row_blocks + row_block
  UnitShares down[kRounds];     // dual: token * row_blocks + row_block; else run * steps + step
  uint32_t grain;               // of gate and up, in row blocks
  uint32_t cut;                 // dual: slots of down's first round; else runs of it

  // n_runs: pairs where none share.
  __host__ __device__ static RingPlan of(const GateUpParams& g, const DownParams& d,
                                         bool has_gate_up, bool has_down, bool dual,
                                         uint32_t n_runs, uint32_t blocks) {
    RingPlan plan{};
    const bool whole = has_gate_up && has_down;
    plan.grain = g.out_q != nullptr ? kGroupUnits : 1;
    uint32_t ready = 0;  // runs of the first round
    uint32_t busy = 0;   // blocks with a grain of gate and up more than the others
    if (has_gate_up) {
      const uint32_t of_run = static_cast<uint32_t>(g.rows) / (kRowBlock * plan.grain);
      const uint32_t all = n_runs * of_run;
      uint32_t first = all;
      if (whole) {
        const uint32_t even = (all + 2 * blocks - 1) / (2 * blocks) * blocks;
        if (even < all) first = even;
      }
      ready = first / of_run;
      // Only where the others have something to do meanwhile.
      busy = first < all ? all % blocks : 0;
      plan.gate_up[0] = UnitShares::of(0, first, blocks);
      plan.gate_up[1] = UnitShares::of(first, all - first, blocks);
    }
    if (!has_down) return plan;
    const uint32_t row_blocks = static_cast<uint32_t>(d.rows) / kRowBlock;
    // Rows times columns of a grain, of one slot's row block.
    const float grain_size = static_cast<float>(2 * plan.grain * g.in);
    const float size = static_cast<float>(d.in);
    if (dual) {
      const UnitShares shares =
          UnitShares::beside(0, static_cast<uint32_t>(d.tokens) * row_blocks, blocks, busy,
                             grain_size / (size * static_cast<float>(d.top_k)));
      const uint32_t top_k = static_cast<uint32_t>(d.top_k);
      plan.cut = !whole ? 0 : ready >= top_k ? top_k : ready / 2 * 2;
      if (shares.largest() > kMaxHeld && plan.cut < top_k) plan.cut = 0;
      if (plan.cut > 0) plan.down[0] = shares;
      if (plan.cut < top_k) plan.down[1] = shares;
    } else {
      const uint32_t steps = (row_blocks + 1) / 2;
      plan.cut = whole ? ready : 0;
      plan.down[0] = UnitShares::of(0, plan.cut * steps, blocks);
      plan.down[1] = UnitShares::beside(plan.cut * steps, (n_runs - plan.cut) * steps, blocks, busy,
                                        grain_size / (2 * size));
    }
    return plan;
  }
};

// A block's own part of it.
struct BlockPlan {
  UnitRange gate_up[kRounds];  // in row blocks
  UnitRange down[kRounds];
  uint32_t cut;

  static constexpr int kParts = 2 * kRounds;

  // One of the four ranges: so many lanes make one each, while the rest of the block waits.
  __host__ __device__ __forceinline__ void make(const RingPlan& plan, uint32_t block, int part) {
    const int round = part % kRounds;
    if (part < kRounds) {
      const UnitRange range = plan.gate_up[round].of_block(block);
      gate_up[round] = {range.begin * plan.grain, range.end * plan.grain};
    } else {
      down[round] = plan.down[round].of_block(block);
    }
    if (part == 0) cut = plan.cut;
  }
  __host__ __device__ __forceinline__ uint32_t n_gate_up() const {
    return gate_up[0].size() + gate_up[1].size();
  }
  __host__ __device__ __forceinline__ uint32_t n_down(bool dual, uint32_t top_k) const {
    if (!dual) return down[0].size() + down[1].size();
    return down[0].size() * ((cut + 1) / 2) + down[1].size() * ((top_k - cut + 1) / 2);
  }
};

}  // namespace memra::cuda
