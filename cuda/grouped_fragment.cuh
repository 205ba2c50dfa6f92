#pragma once

// The A operand of a tensor-core product, made of NVFP4 weights: which bytes of a slab a lane owns,
// and how they become f16.
//
// A warp holds 16 rows, lane 4 * g + t those with fragment numbers g and g + 8. In a block of 128
// columns a lane owns group t of both of its rows: 16 bytes, a word for two k16 steps each. Step by
// step that is another order of k than the matrix has; the activations are stored in the same one
// (grouped_layout.cuh). A block is taken in two slabs of 64 columns, half h of every group; a last
// block of 64 columns is one slab, in which lane t owns half t % 2 of group t / 2.
//
// Weights come out as w * scale * 2^-14: every product of a code and a scale is exact in f16 then,
// subnormals included.

#include <cstdint>
#include <type_traits>

#include "grouped_layout.cuh"
#include "grouped_tiles.cuh"
#include "numerics/platform.h"
#include "ptx.cuh"

namespace memra::cuda {

inline constexpr float kWeightUnit = 0x1p14f;  // undoes the 2^-14

MEMRA_HD constexpr int blocks_of(int64_t columns) {
  return static_cast<int>((columns + kBlockColumns - 1) / kBlockColumns);
}

// Which of a warp's 16 rows a fragment's g is; the other is `distance` further.
//
// Rows beside each other: their outputs are 8 bytes of f32 that one lane stores. Neighbouring g are
// in different strips, so that they meet different banks (WeightSet).
struct AdjacentRows {
  static constexpr int kDistance = 1;
  static MEMRA_HD constexpr int row(int g) { return 8 * (g & 1) + 2 * (g >> 1); }
};
// As activations of the next product lie: outputs r and r + 2 are beside each other, and those of
// fragment number g in chunk g of 16 bytes.
struct ActivationRows {
  static constexpr int kDistance = 2;
  static MEMRA_HD constexpr int row(int g) { return 8 * (g >> 1 & 1) + 4 * (g >> 2) + (g & 1); }
};

// A block of 128 columns of a set's rows in shared memory, of NVFP4_V2: the codes of every strip of
// 8 rows, row by row, 16 bytes to a thread of a quad, and behind all of them the scales, two bytes
// to a thread, one for each slab. Of 64 columns everything is half as much and as far apart in its
// strip. The copy engine swizzles codes: rows of neighbouring strips meet different banks.
struct WeightSet {
  static constexpr int kStripRows = 8, kStrips = kSetRows / kStripRows;
  static constexpr int kStripCodes = 512, kStripScales = 64;
  static constexpr int kCodes = kStrips * kStripCodes, kScales = kStrips * kStripScales;
  static constexpr int kBytes = kCodes + kScales;
  static constexpr int kAlignment = 1024;  // of the swizzle
  static_assert(kBytes % kAlignment == 0);
  static constexpr bool kHalfBlocks = true;

  static MEMRA_HD constexpr uint32_t codes(int row, int t, bool half) {
    const auto in_strip = static_cast<uint32_t>(row % kStripRows * 64 + t * 16) / (half ? 2 : 1);
    const uint32_t at = static_cast<uint32_t>(row / kStripRows * kStripCodes) + in_strip;
    return at ^ (at / 128 % 8 * 16);
  }
  static MEMRA_HD constexpr uint32_t scales(int row, int t, bool half) {
    const auto in_strip = static_cast<uint32_t>(row % kStripRows * 8 + t * 2);
    return static_cast<uint32_t>(kCodes + row / kStripRows * kStripScales) +
           in_strip / (half ? 2 : 1);
  }
};

// The same of NVFP4_V1: every row's bytes as they lie in memory, its two blocks of 64 columns, and
// 8 more, because the copy engine's lines begin and end at multiples of 16: behind them, or of an
// odd block before them. Rows whose own bytes are no multiple of 16 cannot come that way, so half a
// block does not exist.
struct RowSet {
  static constexpr int kRowBytes = 80, kOwnBytes = 72;
  static constexpr int kBytes = kSetRows * kRowBytes;
  static constexpr int kAlignment = 1024;
  static_assert(kBytes % kAlignment == 0);
  static constexpr bool kHalfBlocks = false;

  // Of a block, how far its own bytes are from where its line begins.
  static MEMRA_HD constexpr uint32_t shift(int block) { return block % 2 * 8u; }
  // The rest of an even block.
  static MEMRA_HD constexpr uint32_t scales(int row, int t, bool /*half*/) {
    return static_cast<uint32_t>(row * kRowBytes + t / 2 * (kOwnBytes / 2) + t % 2 * 2);
  }
  static MEMRA_HD constexpr uint32_t codes(int row, int t, bool /*half*/) {
    return static_cast<uint32_t>(row * kRowBytes + t / 2 * (kOwnBytes / 2) + 4 + t % 2 * 16);
  }
};
inline constexpr int kRowSetColumns = 256;  // rows of a multiple of them can come that way

// Bytes to codes and to the word with their scales.
struct LaneOffsets {
  uint32_t codes;
  uint32_t scales;
};

// Where a format has them. codes() and scales(): of row `row`, a multiple of 8, in a slab. lane():
// of thread t of a quad in a row, counted from there, in the first block of columns, or with `half`
// in a last block of 64; a block of columns is kCodeStep and kScaleStep bytes.
struct FragmentV2 {
  static constexpr bool kStrips = true;  // lies in memory as a WeightSet does, but for the swizzle
  static constexpr bool kChecked = false;
  static constexpr uint32_t kCodeStep = 512, kScaleStep = 64;
  static MEMRA_HD constexpr uint32_t code_row(bool half) { return half ? 32 : 64; }
  static MEMRA_HD constexpr uint32_t scale_row(bool half) { return half ? 4 : 8; }

  static MEMRA_HD constexpr int64_t codes(int64_t columns, int64_t row) {
    return row * columns / 2;
  }
  static MEMRA_HD constexpr int64_t scale_rows(int64_t columns, int64_t row) {
    return row * columns / 16;
  }
  static MEMRA_HD constexpr int64_t scales(int64_t rows, int64_t columns, int64_t row) {
    return rows * columns / 2 + scale_rows(columns, row);
  }
  static MEMRA_HD constexpr LaneOffsets lane(int64_t columns, int row, int t, bool half) {
    const uint32_t block_row = static_cast<uint32_t>(row >> 3),
                   inside = static_cast<uint32_t>(row & 7);
    const auto in = static_cast<uint32_t>(columns);
    const auto lane = static_cast<uint32_t>(t);
    return {block_row * 4 * in + inside * code_row(half) + lane * (half ? 8 : 16),
            block_row * (in / 2) + inside * scale_row(half) + (half ? 0 : lane / 2 * 4)};
  }
};

struct FragmentV1 {
  static constexpr bool kStrips = false;
  static constexpr bool kChecked = true;
  static constexpr uint32_t kCodeStep = 72, kScaleStep = 72;
  static MEMRA_HD constexpr int64_t row_bytes(int64_t columns) { return columns / 64 * 36; }

  static MEMRA_HD constexpr int64_t codes(int64_t columns, int64_t row) {
    return row * row_bytes(columns);
  }
  static MEMRA_HD constexpr int64_t scale_rows(int64_t columns, int64_t row) {
    return row * row_bytes(columns);
  }
  static MEMRA_HD constexpr int64_t scales(int64_t /*rows*/, int64_t columns, int64_t row) {
    return scale_rows(columns, row);
  }
  static MEMRA_HD constexpr LaneOffsets lane(int64_t columns, int row, int t, bool half) {
    const auto begin = static_cast<uint32_t>(row * row_bytes(columns));
    const auto lane = static_cast<uint32_t>(t);
    if (half) return {begin + 4 + lane * 8, begin};
    return {begin + lane / 2 * 36 + 4 + lane % 2 * 16, begin + lane / 2 * 36};
  }
};

// The formats of a tile's two sets.
template <class First, class Second = First>
struct SetFragments {
  template <int kSet>
  using Of = std::conditional_t<kSet == 0, First, Second>;
  static constexpr bool kFirstV2 = std::is_same_v<First, FragmentV2>;
  static constexpr bool kSecondV2 = std::is_same_v<Second, FragmentV2>;
};
using SetsV1 = SetFragments<FragmentV1>;
using SetsV2 = SetFragments<FragmentV2>;
using SetsV1V2 = SetFragments<FragmentV1, FragmentV2>;
using SetsV2V1 = SetFragments<FragmentV2, FragmentV1>;

// The byte of a lane's scale word that holds for slab h of a block.
MEMRA_HD constexpr uint32_t scale_byte(int t, int h, bool half) {
  return static_cast<uint32_t>(half ? t : 2 * (t & 1) + h);
}

// Four of a word's eight codes as two f16 pairs, times `scale`: step kStep, of which pair i holds
// positions 2 * t + 8 * i and the next, in the order of k.
//
// Left shifts are multiplications, because the ALU is the busier pipe. The three bits of a
// magnitude fall into the lowest two of an f16's exponent and the highest of its mantissa, which is
// w * 2^-14 for every code, subnormals included.
struct DecodedStep {
  uint32_t pairs[2];
};

template <int kStep>
__device__ __forceinline__ DecodedStep decode_step(uint32_t word, uint32_t scale) {
  constexpr uint32_t kSigns = 0x80808080u, kCode = 0x8E008E00u;
  const uint32_t codes = kStep == 0 ? select_bits(kSigns, shift_left_by_multiply(word, 16),
                                                  shift_left_by_multiply(word, 2))
                                    : select_bits(kSigns, word, word >> 3);
  return {{multiply_f16x2(shift_left_by_multiply(codes, 256) & kCode, scale),
           multiply_f16x2(codes & kCode, scale)}};
}

// Which bytes of a lane's scale word hold for the two slabs of a block, as a byte permute takes
// them. Of half a block there is one slab.
MEMRA_HD constexpr uint32_t scale_selector(int t, bool half) {
  return scale_byte(t, 0, half) | scale_byte(t, half ? 0 : 1, half) << 4 | 0x4400u;
}

// Two scales as f16. kChecked: formats that may hold invalid codes, which count as 0.
template <bool kChecked>
__device__ __forceinline__ uint32_t decode_scales(uint32_t word) {
  const auto bytes = static_cast<uint16_t>(word);
  return kChecked ? legal_f16_pair_of_e4m3(bytes) : f16_pair_of_e4m3(bytes);
}

}  // namespace memra::cuda
