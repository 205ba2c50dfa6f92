#pragma once

// Row dots on integer tensor cores: what a warp does with the tiles of two blocks of 8 rows.
//
// In m16n8k32 block 0 is rows 0 to 7 of A and block 1 is rows 8 to 15. Lane 4r + t owns group t of
// row r in a tile, as V2 lays it out, and gives word j of it (8 codes) as its part of k in step j:
// so one instruction multiplies four groups at once. Column n of B holds activations for group
// n % 4 and zeros for the other three, so column n of the result is the sum of that group alone,
// and steps 0, 1 and 2, 3 give the integers of rule 2. Eight columns are four groups of two
// operands.

#include <cuda_fp16.h>

#include <cstdint>

#include "numerics/dot.h"
#include "ptx.cuh"
#include "rows_dot.cuh"

namespace memra::cuda {

// Constants that would otherwise be moved into a register anew for nearly every use.
struct MmaConstants {
  uint32_t table;
  uint32_t high;  // the multiplier that takes the upper half of a word down
  int32_t magic[4];

  static __device__ __forceinline__ MmaConstants make() {
    MmaConstants k{opaque(kMagnitudes0), opaque(0x0100u), {}};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      k.magic[i] = static_cast<int32_t>(opaque(kMagicBits));
    return k;
  }
};

// Magnitudes of one word of codes, those of positive and those of negative codes; low and high are
// the parts of k that the instruction wants. (dot8 in rows_dot.cuh tells how the permute works.)
struct Magnitudes {
  uint32_t plus_low, plus_high, minus_low, minus_high;

  static __device__ __forceinline__ Magnitudes of(const MmaConstants& k, uint32_t codes) {
    const uint32_t flipped = codes ^ kSignBits;
    // A shift by 16 on the multiplier's pipe: permutes and logic fill the other one.
    const uint32_t codes_high = __dp2a_lo(codes, k.high, 0u);
    const uint32_t flipped_high = __dp2a_lo(flipped, k.high, 0u);
    return {byte_permute(k.table, kMagnitudes1, codes),
            byte_permute(k.table, kMagnitudes1, codes_high),
            byte_permute(k.table, kMagnitudes1, flipped),
            byte_permute(k.table, kMagnitudes1, flipped_high)};
  }
};

// Half h of the groups of a tile, both blocks.
struct HalfTile {
  Magnitudes m[2][2];  // [word][block]

  static __device__ __forceinline__ HalfTile of(const MmaConstants& k, const uint4 (&codes)[2],
                                                int h) {
    HalfTile r;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      r.m[0][b] = Magnitudes::of(k, h == 0 ? codes[b].x : codes[b].z);
      r.m[1][b] = Magnitudes::of(k, h == 0 ? codes[b].y : codes[b].w);
    }
    return r;
  }

  // The integers of rule 2 as floats, exact: columns 2t and 2t + 1 of block 0, then of block 1.
  // Accumulators start at kMagic read as an integer, so that they are floats already.
  __device__ __forceinline__ void multiply(const MmaConstants& k, const uint4& x,
                                           float (&sums)[4]) const {
    int32_t plus[2][4], minus[2][4];
    mma_m16n8k32(plus[0], m[0][0].plus_low, m[0][1].plus_low, m[0][0].plus_high, m[0][1].plus_high,
                 x.x, x.y, k.magic);
    mma_m16n8k32(minus[0], m[0][0].minus_low, m[0][1].minus_low, m[0][0].minus_high,
                 m[0][1].minus_high, x.x, x.y, k.magic);
    mma_m16n8k32(plus[1], m[1][0].plus_low, m[1][1].plus_low, m[1][0].plus_high, m[1][1].plus_high,
                 x.z, x.w, plus[0]);
    mma_m16n8k32(minus[1], m[1][0].minus_low, m[1][1].minus_low, m[1][0].minus_high,
                 m[1][1].minus_high, x.z, x.w, minus[0]);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[i] = numerics::sub(__int_as_float(plus[1][i]), __int_as_float(minus[1][i]));
  }
};

// Four scale bytes as floats. V2 holds valid codes only, and e4m3 has the same values.
__device__ __forceinline__ void scales_of(uint32_t bytes, float (&s)[4]) {
  const uint32_t low = f16_pair_of_e4m3(static_cast<uint16_t>(bytes));
  const uint32_t high = f16_pair_of_e4m3(static_cast<uint16_t>(bytes >> 16));
  const __half2 a = reinterpret_cast<const __half2&>(low);
  const __half2 b = reinterpret_cast<const __half2&>(high);
  s[0] = __low2float(a), s[1] = __high2float(a), s[2] = __low2float(b), s[3] = __high2float(b);
}

// One tile of two blocks as a lane holds it: the codes of its own group of each block, and the
// scale bytes of the two groups whose sums the instruction leaves with it.
template <int kScaleWords>
struct TilePair {
  uint4 codes[2];
  uint32_t scales[kScaleWords];
};

// Block 0 against the activations of operand 0, block 1 against those of operand 1: lanes t = 0, 1
// of a quad hold groups 2t, 2t + 1 of block 0, lanes 2, 3 groups 2t - 4, 2t - 3 of block 1.
// acc: the chains of those two groups. x: of the lane's column, halves 0 and 1. d: of its groups.
__device__ __forceinline__ void step_dual(const MmaConstants& k, const TilePair<1>& w,
                                          const uint4 (&x)[2], float2 d, bool second,
                                          float (&acc)[2]) {
  float s[4], partial[2];
  scales_of(w.scales[0], s);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sums[4];
    HalfTile::of(k, w.codes, h).multiply(k, x[h], sums);
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const float i = second ? sums[2 + g] : sums[g];
      partial[g] = h == 0 ? numerics::first_half(s[2 * g], i)
                          : numerics::second_half(s[2 * g + 1], i, partial[g]);
    }
  }
  acc[0] = numerics::row_step(acc[0], d.x, partial[0]);
  acc[1] = numerics::row_step(acc[1], d.y, partial[1]);
}

// Both blocks against the activations of kOperands operands, an even number: lane t holds groups
// 2 (t % 2), + 1 of both blocks for operand 2i + t / 2. x_of(i, h) and d_of(i) load.
template <int kOperands, int kRows, class XOf, class DOf>
__device__ __forceinline__ void step_shared(const MmaConstants& k, const TilePair<2>& w, XOf x_of,
                                            DOf d_of, float (&acc)[kRows][4]) {
  static_assert(kOperands / 2 <= kRows);
  float s[2][4], partial[kOperands / 2][4];
  scales_of(w.scales[0], s[0]);
  scales_of(w.scales[1], s[1]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const HalfTile half = HalfTile::of(k, w.codes, h);
#pragma unroll
    for (int i = 0; i < kOperands / 2; ++i) {
      float sums[4];
      half.multiply(k, x_of(i, h), sums);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float scale = s[c / 2][2 * (c % 2) + h];
        partial[i][c] = h == 0 ? numerics::first_half(scale, sums[c])
                               : numerics::second_half(scale, sums[c], partial[i][c]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOperands / 2; ++i) {
    const float2 d = d_of(i);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      acc[i][c] = numerics::row_step(acc[i][c], c % 2 == 0 ? d.x : d.y, partial[i][c]);
  }
}

// One tile of two blocks for many operands: lane 4r + t has word t of every group of row r, which
// is 8 codes of half t / 2, and the scale bytes of row r.
struct WideTilePair {
  uint4 codes[2];         // by group
  uint32_t scales[2][2];  // of groups 0, 1 and 2, 3
};

// Both blocks against 4 kQuads operands, a group at a time: column n of B holds operand n / 2 where
// the lane's word is of half n % 2, and zeros elsewhere, so lane t gets both integers of rule 2 for
// operand 4q + t. Twice the operands for each instruction of step_shared, but twice the scales.
// x_of(q, g) and d_of(q, g) load; acc[2q + block]: the chains of the tile's four groups.
template <int kQuads, class XOf, class DOf>
__device__ __forceinline__ void step_wide(const MmaConstants& k, const WideTilePair& w, XOf x_of,
                                          DOf d_of, float (&acc)[2 * kQuads][4]) {
#pragma unroll
  for (int g = 0; g < 4; ++g) {
    const auto word = [&](int b) {
      const uint4& codes = w.codes[b];
      return g == 0 ? codes.x : g == 1 ? codes.y : g == 2 ? codes.z : codes.w;
    };
    const Magnitudes m[2] = {Magnitudes::of(k, word(0)), Magnitudes::of(k, word(1))};
    float s[2][2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const uint32_t pair =
          f16_pair_of_e4m3(static_cast<uint16_t>(w.scales[b][g / 2] >> (g % 2 * 16)));
      const __half2 halves = reinterpret_cast<const __half2&>(pair);
      s[b][0] = __low2float(halves), s[b][1] = __high2float(halves);
    }
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const uint2 x = x_of(q, g);
      int32_t plus[4], minus[4];
      mma_m16n8k32(plus, m[0].plus_low, m[1].plus_low, m[0].plus_high, m[1].plus_high, x.x, x.y,
                   k.magic);
      mma_m16n8k32(minus, m[0].minus_low, m[1].minus_low, m[0].minus_high, m[1].minus_high, x.x,
                   x.y, k.magic);
      const float d_of_group = d_of(q, g);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float low = numerics::sub(__int_as_float(plus[2 * b]), __int_as_float(minus[2 * b]));
        const float high =
            numerics::sub(__int_as_float(plus[2 * b + 1]), __int_as_float(minus[2 * b + 1]));
        const float partial =
            numerics::second_half(s[b][1], high, numerics::first_half(s[b][0], low));
        acc[2 * q + b][g] = numerics::row_step(acc[2 * q + b][g], d_of_group, partial);
      }
    }
  }
}

}  // namespace memra::cuda
