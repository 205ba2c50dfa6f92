#pragma once

// Gate and up in the ring: what the producer and the finisher do.
//
// A unit is 8 outputs of each pair of one run: 8 rows of gate (block 0) and the same rows of up
// (block 1), read and decoded once for all pairs that share them.

#include <cstdint>

#include "exchange.cuh"
#include "numerics/lane_major.h"
#include "numerics/q8.h"
#include "rows_params.cuh"
#include "rows_ring_consume.cuh"
#include "rows_ring_plan.cuh"

namespace memra::cuda {

#if __CUDA_ARCH__ >= 900

// resident: activations of all tokens have their places.
template <RowsArm kArm, Format kFormat, int kRun>
__device__ __forceinline__ void produce_gate_up(const GateUpParams& p, const Runs<kRun>* runs,
                                                Producer<kRun>& to, const UnitRange& range,
                                                bool resident) {
  const int lane = to.lane;
  const uint32_t row_blocks = static_cast<uint32_t>(p.rows / kRowBlock);
  const int top_k = static_cast<int>(p.top_k);
  int run = static_cast<int>(range.begin / row_blocks);
  uint32_t row_block = range.begin - run * row_blocks;
  int count = 1, pair = 0;
  PairPlane gate{}, up{};
  const uint8_t* slab = nullptr;  // of the block that this lane copies
  bool live = false;
  bool fresh = true;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    if (fresh) {
      fresh = false;
      if constexpr (is_dual(kRun)) {
        pair = p.order != nullptr ? p.order[run] : run;
      } else {
        const int first = runs->first[run];
        count = runs->first[run + 1] - first;
        pair = runs->order[first + min(lane, count - 1)];
      }
      gate = pair_plane(p, kGate, pair);
      up = pair_plane(p, kUp, pair);
      // All lanes have slabs, or none has.
      live = gate.slab != nullptr && up.slab != nullptr;
      slab = !live ? nullptr : lane % 2 == 0 ? gate.slab : up.slab;
    }
    Unit<kRun>& unit = to.next_unit();
    if (lane == 0) {
      unit.live = live ? 3 : 0;
      unit.row_block = static_cast<int>(row_block);
    }
    if constexpr (is_dual(kRun)) {
      if (lane == 0) {
        const int token = pair / top_k;
        unit.segment = Segment::of(kGateUpPhase, 0, resident ? 0 : token);
        unit.token = token;
        unit.slot = pair - token * top_k;
        unit.operand[0] = unit.operand[1] = resident ? token : 0;
        unit.scale[0] = gate.scale, unit.scale[1] = up.scale;
      }
    } else {
      if (lane == 0) {
        unit.segment = Segment::of(kGateUpPhase, 0, run);
        unit.count = count;
      }
      if (lane < count) {
        unit.pair[lane] = pair;
        unit.scale[0][lane] = gate.scale, unit.scale[1][lane] = up.scale;
      }
    }
    to.template fill<kArm, kFormat>(p.rows, p.in, slab, row_block, live ? 3 : 0);
    if (++row_block == row_blocks) row_block = 0, ++run, fresh = true;
  }
}

// Where a group of quantised outputs goes, packet by packet; or no packets.
struct Outbox {
  Packet* packets = nullptr;
  uint32_t tag = 0;
};

// The group of 32 outputs that `act` holds, rule 5, to down's blocks. All +0 where the pair has no
// weights, because down waits for every pair.
__device__ __forceinline__ void send_outputs(const Outbox& to, int64_t group_of_all, bool live,
                                             const float (&act)[32], uint32_t (&group)[9],
                                             int lane) {
  const float x = live ? act[lane] : 0.0f;
  const uint32_t amax_bits = __reduce_max_sync(~0u, numerics::magnitude_bits(x));
  const numerics::Q8Scale scale = numerics::q8_scale(amax_bits);
  reinterpret_cast<int8_t*>(group)[numerics::lane_major_position(lane)] = numerics::q8(x, scale);
  if (lane == 0) group[8] = __float_as_uint(scale.d);
  __syncwarp();
  if (lane < kGroupPackets) {
    const uint32_t* data = group + 3 * lane;
    store_packet(to.packets + group_of_all * kGroupPackets + lane, data[0], data[1], data[2],
                 to.tag);
  }
}

// The group of 32 outputs that `act` holds, rule 5.
template <int kRun>
__device__ __forceinline__ void quantize_outputs(const GateUpParams& p, int64_t group, int count,
                                                 const int32_t* pairs, const float (&act)[kRun][32],
                                                 int lane) {
  for (int j = 0; j < count; ++j) {
    const float x = act[j][lane];
    const uint32_t amax_bits = __reduce_max_sync(~0u, numerics::magnitude_bits(x));
    const numerics::Q8Scale scale = numerics::q8_scale(amax_bits);
    const int64_t row = pairs[j];
    p.out_q[row * p.rows + group * numerics::kGroupValues + numerics::lane_major_position(lane)] =
        numerics::q8(x, scale);
    if (lane == 0) p.out_d[row * (p.rows / numerics::kGroupValues) + group] = scale.d;
  }
}

// Over units index, ... up to `end`.
template <RowsArm kArm, int kRun>
__device__ __forceinline__ void finish_gate_up(const GateUpParams& p, const Outbox& outbox,
                                               RingControl<kRun>& c, const RingMemory<kRun>& m,
                                               uint32_t& index, uint32_t end, int lane) {
  const int t = lane % 4, r = lane / 4;
  const Unit<kRun>& unit = c.finishing;
  const auto pair_of = [&](int j) -> int64_t {
    if constexpr (is_dual(kRun)) {
      return unit.token * p.top_k + unit.slot;
    } else {
      return unit.pair[j];
    }
  };
  const auto scale_of = [&](int plane, int j) {
    if constexpr (is_dual(kRun)) {
      return unit.scale[plane];
    } else {
      return unit.scale[plane][j];
    }
  };
  while (index != end) {
    const int slot = take_unit(c, m, index, lane);
    const int64_t row = static_cast<int64_t>(unit.row_block) * kRowBlock + r;
    const auto put = [&](int j, float gate, float up) {
      if constexpr (kArm == RowsArm::kLoadOnly) {
        if (probe_escape(gate) && probe_escape(up)) p.out[row] = gate;
      } else {
        const int64_t pair = pair_of(j);
        const float out = gate_up_output(p, pair, row, scale_of(0, j), scale_of(1, j), gate, up);
        if (p.out_q != nullptr) {
          c.act[j][unit.row_block % int{kGroupUnits} * kRowBlock + r] = numerics::canon(out);
        } else {
          p.out[pair * p.rows + row] = out;
        }
      }
    };
    if (unit.live == 0) {
      barrier_arrive(m.dots_empty(slot));
      // Outputs of a pair without weights are +0; quantised ones are never read.
      if (p.out_q == nullptr && t == 0) {
        if constexpr (is_dual(kRun)) {
          p.out[pair_of(0) * p.rows + row] = 0.0f;
        } else {
          for (int j = 0; j < unit.count; ++j)
            p.out[pair_of(j) * p.rows + row] = 0.0f;
        }
      }
    } else if constexpr (is_dual(kRun)) {
      const float dot = take_dual_dots<kArm>(m, slot, lane);
      const float up = __shfl_xor_sync(~0u, dot, 2);
      if (t == 0) put(0, dot, up);
    } else if (kRun > kNarrowRun && unit.count > kNarrowRun) {
      if constexpr (kRun > kNarrowRun) {
        float2 mine[kRun / 4];
#pragma unroll
        for (int q = 0; q < kRun / 4; ++q)
          mine[q] = wide_dots<kArm>(m, slot, q, lane);
        barrier_arrive(m.dots_empty(slot));
#pragma unroll
        for (int q = 0; q < kRun / 4; ++q)
          if (4 * q + t < unit.count) put(4 * q + t, mine[q].x, mine[q].y);
      }
    } else {
      // Of every two sums that both lanes of a pair get, each takes one to the end.
      const float2 a = shared_dots<kArm>(m, slot, 0, lane);
      const float2 b = shared_dots<kArm>(m, slot, 1, lane);
      barrier_arrive(m.dots_empty(slot));
      const float2 mine = t % 2 == 0 ? a : b;
      const int j = 2 * (t % 2) + t / 2;
      if (j < unit.count) put(j, mine.x, mine.y);
    }
    if (kArm != RowsArm::kLoadOnly && p.out_q != nullptr &&
        unit.row_block % int{kGroupUnits} == kGroupUnits - 1) {
      __syncwarp();
      const int64_t group = unit.row_block / int{kGroupUnits};
      if constexpr (is_dual(kRun)) {
        send_outputs(outbox, pair_of(0) * (p.rows / numerics::kGroupValues) + group, unit.live != 0,
                     c.act[0], c.group, lane);
      } else if (unit.live != 0) {
        quantize_outputs<kRun>(p, group, unit.count, unit.pair, c.act, lane);
      }
    }
  }
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace memra::cuda
