#pragma once

// Activations into the shared memory of a ring kernel's block, by its consumer warps.

#include "exchange.cuh"
#include "q8_lanes.cuh"
#include "rows_params.cuh"
#include "rows_ring.cuh"

namespace memra::cuda {

#if __CUDA_ARCH__ >= 900

// natural: q's order in memory; in shared memory it is always lane-major.
// Rows row_of(0), ... of q [., in] and d [., in / 32] into the first `count` places from
// `operands` on. A thread has all its loads of a batch in flight together: a token's activations
// are one batch or two.
template <bool kNatural, class RowOf>
__device__ __forceinline__ void copy_operands(uint32_t operands, const int8_t* q, const float* d,
                                              int64_t in, int count, RowOf row_of) {
  constexpr int kGroups = 2;  // a thread's, in a batch
  constexpr uint32_t kGroupValues = numerics::kGroupValues;
  const uint32_t pieces = pieces_of(in);
  const uint32_t per_row = pieces * kPieceGroups, own = static_cast<uint32_t>(in) / kGroupValues;
  const uint32_t total = count * per_row;
#pragma unroll 1
  for (uint32_t first = thread_index_here(); first < total; first += kGroups * kConsumerThreads) {
    uint4 x[kGroups][2];
    float v[kGroups];
    uint32_t place[kGroups], group[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const uint32_t i = min(first + j * kConsumerThreads, total - 1);
      const uint32_t operand = i / kPieceGroups / pieces;
      group[j] = i - operand * per_row;
      place[j] = operands + operand * operand_bytes(static_cast<int>(pieces));
      x[j][0] = x[j][1] = uint4{};
      v[j] = -0.0f;
      if (group[j] >= own) continue;
      const int64_t at = row_of(static_cast<int>(operand)) * own + group[j];
      const uint4* from = reinterpret_cast<const uint4*>(q + at * kGroupValues);
      x[j][0] = from[0], x[j][1] = from[1];
      if constexpr (kNatural) {
#pragma unroll
        for (uint4& half : x[j]) {
          const uint2 low = interleave(half.x, half.z), high = interleave(half.y, half.w);
          half = {low.x, low.y, high.x, high.y};
        }
      }
      v[j] = d[at];
    }
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      store_shared(place[j] + group[j] * kGroupValues, x[j][0]);
      store_shared(place[j] + group[j] * kGroupValues + 16, x[j][1]);
      store_shared(place[j] + pieces * kPieceColumns + group[j] * 4, v[j]);
    }
  }
}

// The same from activations that are not quantised yet. The loop is short, because every block runs
// it out of a cold instruction cache, and one load ahead.
template <class Type, class RowOf>
__device__ __forceinline__ void quantize_operands(uint32_t operands, const ActivationSource& source,
                                                  int64_t in, int count, RowOf row_of) {
  const int pieces = pieces_of(in), columns = pieces * kPieceColumns;
  const int thread = thread_index_here();
  const auto load = [&](int row, int column) {
    Q8LaneLoad<Type> x{};
    if (row < count && column < in) {
      x.load(static_cast<const typename Type::Storage*>(source.x) + row_of(row) * source.stride +
             column);
    }
    return x;
  };
  // Warps are whole: `columns` is a multiple of 32 lanes' worth.
  int row = 0, column = thread * kQ8LaneColumns;
  const auto settle = [&] {
    while (row < count && column >= columns)
      column = thread * kQ8LaneColumns, ++row;
  };
  settle();
  Q8LaneLoad<Type> next = load(row, column);
#pragma unroll 1
  while (row < count) {
    const Q8LaneLoad<Type> now = next;
    const int at = column;
    const uint32_t place = operands + row * operand_bytes(pieces);
    column += kConsumerThreads * kQ8LaneColumns;
    settle();
    next = load(row, column);
    float x[kQ8LaneColumns];
    now.widen(x);
    const int lane_of_row = at / kQ8LaneColumns;
    const Q8Lane lane = quantize_lane(x, true, lane_of_row);
    store_shared(place + at, lane.q);
    if (lane_of_row % kQ8LanesPerGroup == 0) {
      store_shared(place + columns + lane_of_row / kQ8LanesPerGroup * 4, at < in ? lane.d : -0.0f);
    }
  }
}

template <bool kNatural, class RowOf>
__device__ __forceinline__ void load_operands(uint32_t operands, const ActivationSource& source,
                                              const int8_t* q, const float* d, int64_t in,
                                              int count, RowOf row_of) {
  if (source.x == nullptr) {
    copy_operands<kNatural>(operands, q, d, in, count, row_of);
  } else if (source.dtype == MEMRA_BF16) {
    quantize_operands<numerics::Bf16>(operands, source, in, count, row_of);
  } else if (source.dtype == MEMRA_F16) {
    quantize_operands<numerics::F16>(operands, source, in, count, row_of);
  } else {
    quantize_operands<numerics::F32>(operands, source, in, count, row_of);
  }
  named_sync(kConsumerBarrier, kConsumerThreads);
}

// Pairs first, ... end - 1 of what all blocks send (Exchange), into the places of those numbers, by
// the consumer warps; waits for what is still missing.
__device__ __forceinline__ void receive_operands(uint32_t operands, const Exchange& from,
                                                 int64_t in, int first, int end) {
  constexpr int kBatch = 3;
  const uint32_t pieces = pieces_of(in),
                 groups = static_cast<uint32_t>(in) / numerics::kGroupValues;
  const uint32_t of_pair = groups * kGroupPackets, all = end * of_pair;
  const uint32_t tag = load_tag(from);
#pragma unroll 1
  for (uint32_t at = first * of_pair + thread_index_here(); at < all;
       at += kBatch * kConsumerThreads) {
    Packet packets[kBatch];
    bool complete;
    do {
      complete = true;
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        packets[j] = load_packet(from.packets + min(at + j * kConsumerThreads, all - 1));
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        complete &= packets[j].tag == tag;
    } while (!complete);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const uint32_t i = min(at + j * kConsumerThreads, all - 1);
      const uint32_t pair = i / of_pair, group = (i - pair * of_pair) / kGroupPackets;
      const uint32_t part = i % kGroupPackets;  // of_pair is a multiple
      const uint32_t place = operands + pair * operand_bytes(static_cast<int>(pieces));
      const uint32_t x = place + group * numerics::kGroupValues + part * 12;
      store_shared(x, packets[j].data[0]);
      store_shared(x + 4, packets[j].data[1]);
      store_shared(part == kGroupPackets - 1 ? place + pieces * kPieceColumns + group * 4 : x + 8,
                   packets[j].data[2]);
    }
  }
  // What pads the last piece: x of 0 and d of -0.
  const uint32_t padding = pieces * kPieceGroups - groups;
  for (uint32_t i = thread_index_here(); i < (end - first) * padding; i += kConsumerThreads) {
    const uint32_t pair = first + i / padding, group = groups + i % padding;
    const uint32_t place = operands + pair * operand_bytes(static_cast<int>(pieces));
    store_shared(place + group * numerics::kGroupValues, uint4{});
    store_shared(place + group * numerics::kGroupValues + 16, uint4{});
    store_shared(place + pieces * kPieceColumns + group * 4, -0.0f);
  }
  named_sync(kConsumerBarrier, kConsumerThreads);
}

#endif

}  // namespace memra::cuda
