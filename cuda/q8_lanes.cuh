#pragma once

// Quantisation of activations by lanes, 8 columns each: four neighbours make a group of 32.

#include <cstdint>

#include "numerics/half.h"
#include "numerics/lane_major.h"
#include "numerics/q8.h"
#include "ptx.cuh"

namespace memra::cuda {

inline constexpr int kQ8LaneColumns = 8;
inline constexpr int kQ8LanesPerGroup = numerics::kGroup / kQ8LaneColumns;

constexpr bool interleaving_is_lane_major() {
  for (int position = 0; position < numerics::kGroup; ++position) {
    const int half = position / 16;
    const int byte = position % 16 / 2;
    const int high = position % 2;
    if (numerics::lane_major_column(position) != half * 16 + byte + high * 8) return false;
  }
  return true;
}
static_assert(interleaving_is_lane_major());

// Lane-major order: 8 bytes of the low values and 8 of the high values of a half, interleaved.
__device__ __forceinline__ uint2 interleave(uint32_t low, uint32_t high) {
  return make_uint2(byte_permute(low, high, 0x5140), byte_permute(low, high, 0x7362));
}

// A lane's columns as they lie in memory, zeros before load().
template <class Type>
struct Q8LaneLoad {
  using Storage = typename Type::Storage;
  static constexpr int kVectors = kQ8LaneColumns * sizeof(Storage) / 16;
  uint4 vectors[kVectors];

  __device__ __forceinline__ void load(const Storage* p) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      vectors[i] = reinterpret_cast<const uint4*>(p)[i];
  }
  __device__ __forceinline__ void widen(float (&x)[kQ8LaneColumns]) const {
    Storage values[kQ8LaneColumns];
    __builtin_memcpy(values, vectors, sizeof(values));
#pragma unroll
    for (int i = 0; i < kQ8LaneColumns; ++i)
      x[i] = Type::load(&values[i]);
  }
};

struct Q8Lane {
  uint2 q;
  float d;
};

// Rule 1. Every lane of the warp calls this; lane_of_row % 4 is the lane's place in its group.
__device__ __forceinline__ Q8Lane quantize_lane(const float (&x)[kQ8LaneColumns], bool lane_major,
                                                int lane_of_row) {
  uint32_t amax_bits = 0;
#pragma unroll
  for (int i = 0; i < kQ8LaneColumns; ++i)
    amax_bits = max(amax_bits, numerics::magnitude_bits(x[i]));
#pragma unroll
  for (int distance = 1; distance < kQ8LanesPerGroup; distance *= 2)
    amax_bits = max(amax_bits, __shfl_xor_sync(~0u, amax_bits, distance));
  const numerics::Q8Scale scale = numerics::q8_scale(amax_bits);
  uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kQ8LaneColumns; ++i) {
    words[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(numerics::q8(x[i], scale)))
                    << (i % 4 * 8);
  }
  uint2 q = make_uint2(words[0], words[1]);
  if (lane_major) {
    // The lanes of the low and of the high values of a half complete 8 positions each.
    const bool is_high = lane_of_row % 2 != 0;
    const uint32_t received = __shfl_xor_sync(~0u, is_high ? words[0] : words[1], 1);
    q = is_high ? interleave(received, words[1]) : interleave(words[0], received);
  }
  return {q, scale.d};
}

}  // namespace memra::cuda
