#pragma once

// Down in the ring: what the producer and the finisher do.
//
// For one token a unit is 8 rows of two slots, each with its own pair's activations; a block takes
// all slots of a row block in order, and the finisher adds them up in order. Where pairs share
// their weights a unit is 16 rows of one slab for all pairs of a run; the dots go to memory, and
// combine_slots() adds up what all blocks have put there.

#include <cstdint>

#include "exchange.cuh"
#include "rows_params.cuh"
#include "rows_ring_consume.cuh"
#include "rows_ring_plan.cuh"

namespace memra::cuda {

// What combine_slots() knows of a token's pairs.
struct SlotScales {
  float scale[MEMRA_MAX_TOP_K];
  bool live[MEMRA_MAX_TOP_K];
};

#if __CUDA_ARCH__ >= 900

template <RowsArm kArm, Format kFormat>
__device__ __forceinline__ void produce_down(const DownParams& p, const Runs<1>* /*runs*/,
                                             Producer<1>& to, const BlockPlan& plan) {
  const int lane = to.lane, block = lane % 2;
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const int top_k = static_cast<int>(p.top_k), cut = static_cast<int>(plan.cut);
  for (int round = 0; round < kRounds; ++round) {
    const UnitRange range = plan.down[round];
    const int first_slot = round == 0 ? 0 : cut, end_slot = round == 0 ? cut : top_k;
    uint32_t token = p.tokens == 1 ? 0 : range.begin / row_blocks;
    uint32_t row_block = range.begin - token * row_blocks;
    for (uint32_t i = range.begin; i < range.end; ++i) {
      for (int s = first_slot; s < end_slot; s += 2) {
        // Lanes of block 1 have nothing where the number of slots is odd.
        PairPlane plane{nullptr, 0.0f};
        if (s + block < top_k) plane = pair_plane(p, int64_t{token} * top_k + s + block);
        const uint32_t live = __ballot_sync(~0u, plane.slab != nullptr) & 3u;
        const float scale1 = __shfl_sync(~0u, plane.scale, 1);
        Unit<1>& unit = to.next_unit();
        if (lane == 0) {
          unit = {Segment::of(kDownPhase, round, static_cast<int>(token)),
                  live,
                  static_cast<int>(row_block),
                  static_cast<int>(token),
                  s,
                  {s, min(s + 1, top_k - 1)},
                  {plane.scale, scale1}};
        }
        to.template fill<kArm, kFormat>(p.rows, p.in, plane.slab, row_block, live);
      }
      if (++row_block == row_blocks) row_block = 0, ++token;
    }
  }
}

template <RowsArm kArm, Format kFormat, int kRun>
__device__ __forceinline__ void produce_down(const DownParams& p, const Runs<kRun>* runs,
                                             Producer<kRun>& to, const BlockPlan& plan) {
  const int lane = to.lane;
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const uint32_t steps = (row_blocks + 1) / 2;
  for (int round = 0; round < kRounds; ++round) {
    const UnitRange range = plan.down[round];
    for (uint32_t i = range.begin; i < range.end; ++i) {
      const uint32_t run = i / steps, row_block = 2 * (i - run * steps);
      const int first = runs->first[run], count = runs->first[run + 1] - first;
      const int pair = runs->order[first + min(lane, count - 1)];
      const PairPlane plane = pair_plane(p, pair);
      Unit<kRun>& unit = to.next_unit();
      if (lane == 0) {
        unit.segment = Segment::of(kDownPhase, round, static_cast<int>(run));
        unit.live = 3;
        unit.row_block = static_cast<int>(row_block);
        unit.count = count;
      }
      if (lane < count) unit.pair[lane] = pair;
      // Where rows end with a single block, it is read twice.
      to.template fill<kArm, kFormat>(p.rows, p.in, plane.slab,
                                      min(row_block + lane % 2, row_blocks - 1), 3);
    }
  }
}

// Over one round's units. held: sums over the first slots, kept from one round to the next.
template <RowsArm kArm>
__device__ __forceinline__ void finish_down(const DownParams& p, const BlockPlan& plan, int round,
                                            RingControl<1>& c, const RingMemory<1>& m,
                                            float (&held)[kMaxHeld][kRowBlock], uint32_t& index,
                                            int lane) {
  const Unit<1>& unit = c.finishing;
  const int top_k = static_cast<int>(p.top_k), cut = static_cast<int>(plan.cut);
  const int first_slot = round == 0 ? 0 : cut, end_slot = round == 0 ? cut : top_k;
  float y = 0.0f;
  const uint32_t size = plan.down[round].size();
  for (uint32_t i = 0; i < size; ++i) {
    for (int s = first_slot; s < end_slot; s += 2) {
      const int slot = take_unit(c, m, index, lane);
      const float own = take_dual_dots<kArm>(m, slot, lane);
      const float other = __shfl_xor_sync(~0u, own, 2);
      const int64_t row = static_cast<int64_t>(unit.row_block) * kRowBlock + lane / 4;
      const int64_t to = unit.token * p.y_stride + row;
      if constexpr (kArm == RowsArm::kLoadOnly) {
        if (probe_escape(own) && probe_escape(other)) store_y(p, to, 0.0f);
      } else if (lane % 4 == 0) {
        if (s == 0) {
          y = p.accumulate ? load_y(p, to) : 0.0f;
        } else if (s == first_slot) {
          y = held[i][lane / 4];
        }
        const int64_t pair = unit.token * p.top_k + s;
        if ((unit.live & 1) != 0) y = down_slot(p, pair, row, unit.scale[0], own, y);
        if ((unit.live & 2) != 0) y = down_slot(p, pair + 1, row, unit.scale[1], other, y);
        if (s + 2 >= end_slot) {
          if (end_slot == top_k) {
            store_y(p, to, y);
          } else {
            held[i][lane / 4] = y;
          }
        }
      }
    }
  }
}

template <RowsArm kArm, int kRun>
__device__ __forceinline__ void finish_down(const DownParams& p, uint32_t n_units,
                                            RingControl<kRun>& c, const RingMemory<kRun>& m,
                                            uint32_t& index, int lane) {
  const int t = lane % 4;
  const Unit<kRun>& unit = c.finishing;
  for (uint32_t i = 0; i < n_units; ++i) {
    const int slot = take_unit(c, m, index, lane);
    const auto put = [&](int j, int block, float dot) {
      const int64_t row = (static_cast<int64_t>(unit.row_block) + block) * kRowBlock + lane / 4;
      if (j < unit.count && row < p.rows) p.dots[unit.pair[j] * p.rows + row] = dot;
    };
    if (kRun > kNarrowRun && unit.count > kNarrowRun) {
      if constexpr (kRun > kNarrowRun) {
        float2 dots[kRun / 4];
#pragma unroll
        for (int q = 0; q < kRun / 4; ++q)
          dots[q] = wide_dots<kArm>(m, slot, q, lane);
        barrier_arrive(m.dots_empty(slot));
#pragma unroll
        for (int q = 0; q < kRun / 4; ++q)
          put(4 * q + t, 0, dots[q].x), put(4 * q + t, 1, dots[q].y);
      }
    } else {
      float2 dots[2];
#pragma unroll
      for (int n = 0; n < 2; ++n)
        dots[n] = shared_dots<kArm>(m, slot, n, lane);
      barrier_arrive(m.dots_empty(slot));
#pragma unroll
      for (int n = 0; n < 2; ++n)
        put(2 * n + t / 2, t % 2, t % 2 == 0 ? dots[n].x : dots[n].y);
    }
  }
}

// Rule 6 over dots that lie in memory, by the consumer warps of all blocks. ready: where the blocks
// say that theirs are there.
__device__ __forceinline__ void combine_slots(const DownParams& p, SlotScales& slots,
                                              const uint32_t* ready) {
  const int thread = static_cast<int>(threadIdx.x);
  const int top_k = static_cast<int>(p.top_k);
  const int64_t chunks = (p.rows + kConsumerThreads - 1) / kConsumerThreads;
  bool waited = false;
  for (int64_t i = blockIdx.x; i < p.tokens * chunks; i += gridDim.x) {
    const int64_t token = i / chunks;
    const int64_t row = (i - token * chunks) * kConsumerThreads + thread;
    named_sync(kConsumerBarrier, kConsumerThreads);  // the token before has been read
    for (int s = thread; s < top_k; s += kConsumerThreads) {
      const PairPlane plane = pair_plane(p, token * top_k + s);
      slots.scale[s] = plane.scale;
      slots.live[s] = plane.slab != nullptr;
    }
    if (!waited && thread == 0) grid_wait(ready);
    waited = true;
    named_sync(kConsumerBarrier, kConsumerThreads);
    if (row >= p.rows) continue;
    const int64_t to = token * p.y_stride + row;
    float y = p.accumulate ? load_y(p, to) : 0.0f;
#pragma unroll 4
    for (int s = 0; s < top_k; ++s) {
      const int64_t pair = token * top_k + s;
      if (slots.live[s])
        y = down_slot(p, pair, row, slots.scale[s], p.dots[pair * p.rows + row], y);
    }
    store_y(p, to, y);
  }
  if (!waited && thread == 0) grid_wait(ready);
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace memra::cuda
