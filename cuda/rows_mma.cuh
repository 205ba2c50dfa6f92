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

// Two permutes look up a code's doubled value, and their sum is it: a positive code gives m + 1 by
// the first table and -1, the sign of the byte, by the second one through its flipped sign; a
// negative one gives 0, again a sign, and -m; zeros give 0 twice. So both may meet the same
// activations in one accumulator.
inline constexpr uint32_t kUpper0 = 0x04030200u, kUpper1 = 0x0D090705u;
inline constexpr uint32_t kLower0 = 0xFDFEFF00u, kLower1 = 0xF4F8FAFCu;

// One byte of a permute.
constexpr int permuted(uint32_t low, uint32_t high, uint32_t selector) {
  const uint32_t word = (selector & 4) != 0 ? high : low;
  const auto byte = static_cast<int8_t>(word >> (selector & 3) * 8);
  return (selector & 8) == 0 ? byte : byte < 0 ? -1 : 0;
}
constexpr bool tables_give_codes() {
  for (uint32_t code = 0; code < 16; ++code) {
    const int sum = permuted(kUpper0, kUpper1, code) + permuted(kLower0, kLower1, code ^ 8);
    if (sum != numerics::e2m1_doubled(code)) return false;
  }
  return true;
}
static_assert(tables_give_codes());

// Constants that would otherwise be moved into a register anew for nearly every use.
struct MmaConstants {
  uint32_t upper, lower;  // kUpper0 and kLower0; the others fit as immediates
  uint32_t high;          // the multiplier that takes the upper half of a word down
  int32_t magic[4];

  static __device__ __forceinline__ MmaConstants make() {
    MmaConstants k{opaque(kUpper0), opaque(kLower0), opaque(0x0100u), {}};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      k.magic[i] = static_cast<int32_t>(opaque(kMagicBits));
    return k;
  }
};

// One word of codes through both tables; low and high are the parts of k that the instruction
// wants.
struct Looked {
  uint32_t upper_low, upper_high, lower_low, lower_high;

  static __device__ __forceinline__ Looked of(const MmaConstants& k, uint32_t codes) {
    const uint32_t flipped = codes ^ kSignBits;
    // A shift by 16 on the multiplier's pipe: permutes and logic fill the other one.
    const uint32_t codes_high = __dp2a_lo(codes, k.high, 0u);
    const uint32_t flipped_high = __dp2a_lo(flipped, k.high, 0u);
    return {byte_permute(k.upper, kUpper1, codes), byte_permute(k.upper, kUpper1, codes_high),
            byte_permute(k.lower, kLower1, flipped), byte_permute(k.lower, kLower1, flipped_high)};
  }
};

// acc += a word of both blocks times what the lane holds of B.
__device__ __forceinline__ void multiply_word(const Looked& w0, const Looked& w1, uint32_t x0,
                                              uint32_t x1, int32_t (&acc)[4]) {
  mma_m16n8k32(acc, w0.upper_low, w1.upper_low, w0.upper_high, w1.upper_high, x0, x1, acc);
  mma_m16n8k32(acc, w0.lower_low, w1.lower_low, w0.lower_high, w1.lower_high, x0, x1, acc);
}

// The integer in an accumulator that started at kMagic read as an integer, exact.
__device__ __forceinline__ float integer_of(int32_t acc) {
  return numerics::sub(__int_as_float(acc), kMagic);
}

// Half h of the groups of a tile, both blocks.
struct HalfTile {
  Looked w[2][2];  // [word][block]

  static __device__ __forceinline__ HalfTile of(const MmaConstants& k, const uint4 (&codes)[2],
                                                int h) {
    HalfTile r;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      r.w[0][b] = Looked::of(k, h == 0 ? codes[b].x : codes[b].z);
      r.w[1][b] = Looked::of(k, h == 0 ? codes[b].y : codes[b].w);
    }
    return r;
  }

  // The integers of rule 2 as floats: columns 2t and 2t + 1 of block 0, then of block 1.
  __device__ __forceinline__ void multiply(const MmaConstants& k, const uint4& x,
                                           float (&sums)[4]) const {
    int32_t acc[4] = {k.magic[0], k.magic[1], k.magic[2], k.magic[3]};
    multiply_word(w[0][0], w[0][1], x.x, x.y, acc);
    multiply_word(w[1][0], w[1][1], x.z, x.w, acc);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[i] = integer_of(acc[i]);
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
    const Looked words[2] = {Looked::of(k, word(0)), Looked::of(k, word(1))};
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
      int32_t sums[4] = {k.magic[0], k.magic[1], k.magic[2], k.magic[3]};
      multiply_word(words[0], words[1], x.x, x.y, sums);
      const float d_of_group = d_of(q, g);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float low = integer_of(sums[2 * b]), high = integer_of(sums[2 * b + 1]);
        const float partial =
            numerics::second_half(s[b][1], high, numerics::first_half(s[b][0], low));
        acc[2 * q + b][g] = numerics::row_step(acc[2 * q + b][g], d_of_group, partial);
      }
    }
  }
}

}  // namespace memra::cuda
