#pragma once

// Dot products of 8 rows of a slab with int8 activations by one warp: the inner loops of the rows
// path. Both formats leave the dot of row (lane / 4) in every lane of its quad.

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "numerics/dot.h"
#include "numerics/e2m1.h"
#include "numerics/nvfp4_layout.h"
#include "ptx.cuh"
#include "rows.h"

namespace memra::cuda {

using numerics::LayoutV1;
using numerics::LayoutV2;

inline constexpr int kRowBlock = 8;     // rows a warp works on together
inline constexpr int kLaneClasses = 8;  // V2 tile c holds the virtual lanes 4 * (c % 8) + 0..3

enum class Format { kV1, kV2 };

// Activations of one group of 32 in lane-major order, and their scale.
struct ActivationGroup {
  uint32_t x[8];
  float d;
};

template <bool kLaneMajor>
__device__ __forceinline__ ActivationGroup load_activations(const int8_t* q, const float* d,
                                                            int64_t group) {
  const uint4* p = reinterpret_cast<const uint4*>(q + group * numerics::kGroupValues);
  const uint4 a = p[0], b = p[1];
  ActivationGroup r;
  if constexpr (kLaneMajor) {
    r.x[0] = a.x, r.x[1] = a.y, r.x[2] = a.z, r.x[3] = a.w;
    r.x[4] = b.x, r.x[5] = b.y, r.x[6] = b.z, r.x[7] = b.w;
  } else {
    // Interleaves values w and w + 8 of a half, as numerics/lane_major.h orders them.
    constexpr uint32_t kLow = 0x5140, kHigh = 0x7362;
    r.x[0] = byte_permute(a.x, a.z, kLow), r.x[1] = byte_permute(a.x, a.z, kHigh);
    r.x[2] = byte_permute(a.y, a.w, kLow), r.x[3] = byte_permute(a.y, a.w, kHigh);
    r.x[4] = byte_permute(b.x, b.z, kLow), r.x[5] = byte_permute(b.x, b.z, kHigh);
    r.x[6] = byte_permute(b.y, b.w, kLow), r.x[7] = byte_permute(b.y, b.w, kHigh);
  }
  r.d = d[group];
  return r;
}

// One group of weights: 16 code bytes and, in the low half of `scales`, two scale bytes.
struct WeightGroup {
  uint4 codes;
  uint32_t scales;
};

// An exact integer that is an accumulator of dp4a and, read as a float, 1.5 * 2^23 plus the sum:
// one addition replaces a conversion, which runs at a quarter of the rate.
inline constexpr uint32_t kMagicBits = 0x4B400000;
inline constexpr float kMagic = 0x1.8p23f;

// Doubled magnitudes of codes 0..3 and 4..7, a byte each, and the sign bits of a word of codes.
inline constexpr uint32_t kMagnitudes0 = 0x03020100u;
inline constexpr uint32_t kMagnitudes1 = 0x0C080604u;
inline constexpr uint32_t kSignBits = 0x88888888u;

constexpr bool magnitudes_are_e2m1() {
  for (uint32_t code = 0; code < 8; ++code) {
    const uint32_t half = code < 4 ? kMagnitudes0 : kMagnitudes1;
    if (static_cast<int32_t>(half >> code % 4 * 8 & 0xFFu) != numerics::e2m1_doubled(code)) {
      return false;
    }
  }
  return kSignBits == numerics::kE2m1SignBit * 0x11111111u;
}
static_assert(magnitudes_are_e2m1());

// Constants of the decode, held in registers. The compiler would otherwise move each immediate into
// a register anew for nearly every use: 18 instructions where about 60 do the work.
struct DecodeConstants {
  uint32_t table;  // kMagnitudes0; the others fit as an immediate
  int32_t magic;
  float scale;

  static __device__ __forceinline__ DecodeConstants make() {
    return {opaque(kMagnitudes0), static_cast<int32_t>(opaque(kMagicBits)),
            __uint_as_float(opaque(0x43800000u))};
  }
};

// Adds the dot of 8 codes with 8 activations: positive codes to `plus`, negative ones to `minus`.
// The table holds the doubled magnitudes, all below 128. A permute selector nibble with its high
// bit set replicates the sign of the byte, which is zero: so the code word itself selects the
// positive magnitudes, and with the sign bits flipped the negative ones, with no masking.
__device__ __forceinline__ void dot8(const DecodeConstants& k, uint32_t codes, uint32_t x0,
                                     uint32_t x1, int32_t& plus, int32_t& minus) {
  const uint32_t flipped = codes ^ kSignBits;
  plus = __dp4a(static_cast<int32_t>(byte_permute(k.table, kMagnitudes1, codes)),
                static_cast<int32_t>(x0), plus);
  plus = __dp4a(static_cast<int32_t>(byte_permute(k.table, kMagnitudes1, codes >> 16)),
                static_cast<int32_t>(x1), plus);
  minus = __dp4a(static_cast<int32_t>(byte_permute(k.table, kMagnitudes1, flipped)),
                 static_cast<int32_t>(x0), minus);
  minus = __dp4a(static_cast<int32_t>(byte_permute(k.table, kMagnitudes1, flipped >> 16)),
                 static_cast<int32_t>(x1), minus);
}

// I * 2^8, exact.
__device__ __forceinline__ float half_sum(const DecodeConstants& k, uint32_t w0, uint32_t w1,
                                          const uint32_t* x) {
  int32_t plus = k.magic, minus = 0;
  dot8(k, w0, x[0], x[1], plus, minus);
  dot8(k, w1, x[2], x[3], plus, minus);
  return numerics::fma(__int_as_float(plus - minus), k.scale, -256.0f * kMagic);
}

// Rule 2. A scale byte shifted by 7 is an f16 of scale * 2^-8, subnormals included; the other
// factor carries 2^8, and both products stay exact.
__device__ __forceinline__ float group_product(const DecodeConstants& k, const WeightGroup& w,
                                               const uint32_t (&x)[8]) {
  const uint32_t halves = byte_permute(w.scales, 0, 0x1404) >> 1;
  const float s0 = __half2float(__ushort_as_half(static_cast<unsigned short>(halves & 0xFFFFu)));
  const float s1 = __half2float(__ushort_as_half(static_cast<unsigned short>(halves >> 16)));
  const float i0 = half_sum(k, w.codes.x, w.codes.y, x);
  const float i1 = half_sum(k, w.codes.z, w.codes.w, x + 4);
  return numerics::group_partial(s0, i0, s1, i1);
}

// Invalid scale codes (0x7F, and all with bit 7) become 0, two bytes at once.
__device__ __forceinline__ uint32_t sanitize_scales(uint32_t scales) {
  const uint32_t bad = (((scales & 0x7F7Fu) + 0x0101u) | scales) & 0x8080u;
  return scales & ~((bad >> 7) * 0xFFu);
}

// Where the weights of one warp's 8 rows come from. The probes' loads and arithmetic are the served
// ones, cut on either side of this.
template <RowsArm kArm>
struct WeightSource {
  // Row block `row_block` of a V2 slab, tile `tile`, the group of `lane`; the lane must own one.
  static __device__ __forceinline__ WeightGroup v2(const uint8_t* codes, const uint8_t* scales,
                                                   int tile, int slot) {
    if constexpr (kArm == RowsArm::kMathOnly) {
      // Changes with the tile, so that no decode can move out of the loop.
      const uint32_t seed = static_cast<uint32_t>(tile) * 0x9E3779B9u ^
                            static_cast<uint32_t>(reinterpret_cast<uintptr_t>(codes) + slot);
      return {{seed, seed ^ 0x5bd1e995u, seed + 0x01234567u, ~seed}, (seed & 0x0707u) | 0x3838u};
    } else {
      const int64_t at = static_cast<int64_t>(tile);
      WeightGroup w;
      w.codes = load_streaming(reinterpret_cast<const uint4*>(
          codes + at * numerics::kV2TileCodeBytes + slot * numerics::kGroupCodeBytes));
      w.scales = load_streaming_u16(reinterpret_cast<const uint16_t*>(
          scales + at * numerics::kV2TileScaleBytes + slot * numerics::kGroupScaleBytes));
      return w;
    }
  }

  static __device__ __forceinline__ WeightGroup v1(const uint8_t* row, int64_t group) {
    if constexpr (kArm == RowsArm::kMathOnly) {
      const uint32_t seed = static_cast<uint32_t>(group) * 0x9E3779B9u ^
                            static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row));
      return {{seed, seed ^ 0x5bd1e995u, seed + 0x01234567u, ~seed},
              sanitize_scales((seed & 0x0707u) | 0x3838u)};
    } else {
      const uint32_t* block =
          reinterpret_cast<const uint32_t*>(row + group / 2 * numerics::kV1BlockBytes);
      const int odd = static_cast<int>(group & 1);
      WeightGroup w;
      w.scales = load_cached(block) >> (16 * odd) & 0xFFFFu;
      const uint32_t* codes = block + 1 + 4 * odd;
      w.codes = {load_cached(codes), load_cached(codes + 1), load_cached(codes + 2),
                 load_cached(codes + 3)};
      if constexpr (kArm != RowsArm::kLoadOnly) w.scales = sanitize_scales(w.scales);
      return w;
    }
  }
};

__device__ __forceinline__ uint32_t fold(const uint4& codes) {
  return codes.x ^ codes.y ^ codes.z ^ codes.w;
}
__device__ __forceinline__ uint32_t fold(const WeightGroup& w) {
  return fold(w.codes) ^ w.scales;
}

// Rule 3, one group; under kLoadOnly the accumulator collects bits instead.
template <RowsArm kArm>
__device__ __forceinline__ void accumulate(const DecodeConstants& k, float& acc,
                                           const WeightGroup& w, const ActivationGroup& a) {
  if constexpr (kArm == RowsArm::kLoadOnly) {
    acc = __uint_as_float(__float_as_uint(acc) ^ fold(w));
  } else {
    acc = numerics::row_step(acc, a.d, group_product(k, w, a.x));
  }
}

template <RowsArm kArm>
__device__ __forceinline__ float tree_add(float a, float b) {
  if constexpr (kArm == RowsArm::kLoadOnly) {
    return __uint_as_float(__float_as_uint(a) ^ __float_as_uint(b));
  } else {
    return numerics::add(a, b);
  }
}

// The last two distances of the tree, inside a quad.
template <RowsArm kArm>
__device__ __forceinline__ float quad_sum(float v) {
  v = tree_add<kArm>(v, __shfl_xor_sync(0xFFFFFFFFu, v, 2));
  return tree_add<kArm>(v, __shfl_xor_sync(0xFFFFFFFFu, v, 1));
}

// The operands of a warp: kPlanes slabs against kPairs rows of activations. in: columns.
template <int kPlanes, int kPairs>
struct DotOperands {
  const uint8_t* slab[kPlanes];
  const int8_t* q[kPairs];
  const float* d[kPairs];
  int64_t rows;
  int64_t in;
  int64_t row_block;
};

template <int kPlanes, int kPairs>
using Dots = float[kPlanes][kPairs];

// V2: a tile is one 512-byte access; lane 4r + t owns group t of row r. Its virtual lanes are the
// class c % 8, so the 8 classes are separate chains, and distances 16, 8, 4 sum over classes.
template <int kPlanes, int kPairs, bool kLaneMajor, bool kAhead, RowsArm kArm>
__device__ __forceinline__ void block_dots_v2(const DecodeConstants& k,
                                              const DotOperands<kPlanes, kPairs>& o, int lane,
                                              Dots<kPlanes, kPairs>& dots) {
  const int groups = static_cast<int>(o.in / numerics::kGroupValues);
  const int tiles = static_cast<int>(LayoutV2::tiles(o.in));
  const int quad = lane % 4;
  const int half_slot = lane / 4 * 2 + quad;  // in the half tile at the end
  const uint8_t* codes[kPlanes];
  const uint8_t* scales[kPlanes];
#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
    codes[p] = o.slab[p] + LayoutV2::row_block_codes(o.in, o.row_block);
    scales[p] = o.slab[p] + LayoutV2::row_block_scales(o.rows, o.in, o.row_block);
  }
  float acc[kPlanes][kPairs][kLaneClasses] = {};

  const auto multiply = [&](const WeightGroup(&w)[kPlanes], int c, int j) {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      ActivationGroup a{};
      if constexpr (kArm != RowsArm::kLoadOnly) {
        a = load_activations<kLaneMajor>(o.q[n], o.d[n], 4 * c + quad);
      }
#pragma unroll
      for (int p = 0; p < kPlanes; ++p)
        accumulate<kArm>(k, acc[p][n][j], w[p], a);
    }
  };

  // Eight tiles, one of each class. While they are whole there is no branch between them, so that
  // loads and arithmetic of several overlap.
  const auto round = [&](int c0, [[maybe_unused]] auto whole) {
    constexpr bool kWhole = decltype(whole)::value;
    const auto mine = [&](int j) { return kWhole || 4 * (c0 + j) + quad < groups; };
    const auto load = [&](int p, int c) {
      const int slot = kWhole || groups - 4 * c >= 4 ? lane : half_slot;
      return WeightSource<kArm>::v2(codes[p], scales[p], c, slot);
    };
    if constexpr (kAhead) {
      WeightGroup w[kLaneClasses][kPlanes];
#pragma unroll
      for (int j = 0; j < kLaneClasses; ++j) {
        if (mine(j)) {
#pragma unroll
          for (int p = 0; p < kPlanes; ++p)
            w[j][p] = load(p, c0 + j);
        }
      }
#pragma unroll
      for (int j = 0; j < kLaneClasses; ++j) {
        if (mine(j)) multiply(w[j], c0 + j, j);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kLaneClasses; ++j) {
        if (mine(j)) {
          WeightGroup w[kPlanes];
#pragma unroll
          for (int p = 0; p < kPlanes; ++p)
            w[p] = load(p, c0 + j);
          multiply(w, c0 + j, j);
        }
      }
    }
  };
  int c0 = 0;
  for (; 4 * (c0 + kLaneClasses) <= groups; c0 += kLaneClasses)
    round(c0, std::true_type{});
  if (c0 < tiles) round(c0, std::false_type{});

#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      float(&v)[kLaneClasses] = acc[p][n];
#pragma unroll
      for (int distance = kLaneClasses / 2; distance > 0; distance /= 2) {
#pragma unroll
        for (int j = 0; j < distance; ++j)
          v[j] = tree_add<kArm>(v[j], v[j + distance]);
      }
      dots[p][n] = quad_sum<kArm>(v[0]);
    }
  }
}

// V1: lane l is virtual lane l and takes groups l, l + 32, ... of every row. The 8 rows are reduced
// together: at each of the first three distances a lane keeps half of its rows and gives away the
// other half, so that 9 shuffles do the work of 40, with the same pairs in every sum.
template <int kPlanes, int kPairs, bool kLaneMajor, bool kAhead, RowsArm kArm>
__device__ __forceinline__ void block_dots_v1(const DecodeConstants& k,
                                              const DotOperands<kPlanes, kPairs>& o, int lane,
                                              Dots<kPlanes, kPairs>& dots) {
  constexpr int kRowsAhead = kAhead ? 4 : 1;
  const int64_t groups = o.in / numerics::kGroupValues;
  const int64_t row_bytes = LayoutV1::row_bytes(o.in);
  const uint8_t* base[kPlanes];
#pragma unroll
  for (int p = 0; p < kPlanes; ++p)
    base[p] = o.slab[p] + o.row_block * kRowBlock * row_bytes;
  float acc[kPlanes][kPairs][kRowBlock] = {};

  for (int64_t group = lane; group < groups; group += numerics::kVirtualLanes) {
    ActivationGroup a[kPairs];
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      a[n] = ActivationGroup{};
      if constexpr (kArm != RowsArm::kLoadOnly) {
        a[n] = load_activations<kLaneMajor>(o.q[n], o.d[n], group);
      }
    }
#pragma unroll
    for (int r0 = 0; r0 < kRowBlock; r0 += kRowsAhead) {
      WeightGroup w[kRowsAhead][kPlanes];
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r) {
#pragma unroll
        for (int p = 0; p < kPlanes; ++p) {
          w[r][p] = WeightSource<kArm>::v1(base[p] + (r0 + r) * row_bytes, group);
        }
      }
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r) {
#pragma unroll
        for (int p = 0; p < kPlanes; ++p) {
#pragma unroll
          for (int n = 0; n < kPairs; ++n)
            accumulate<kArm>(k, acc[p][n][r0 + r], w[r][p], a[n]);
        }
      }
    }
  }

#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      float(&v)[kRowBlock] = acc[p][n];
#pragma unroll
      for (int half = kRowBlock / 2; half > 0; half /= 2) {
        const int distance = half * 4;
        const bool upper = (lane & distance) != 0;
#pragma unroll
        for (int r = 0; r < half; ++r) {
          const float keep = upper ? v[r + half] : v[r];
          const float give = upper ? v[r] : v[r + half];
          v[r] = tree_add<kArm>(keep, __shfl_xor_sync(0xFFFFFFFFu, give, distance));
        }
      }
      dots[p][n] = quad_sum<kArm>(v[0]);
    }
  }
}

template <Format kFormat, int kPlanes, int kPairs, bool kLaneMajor, bool kAhead, RowsArm kArm>
__device__ __forceinline__ void block_dots(const DecodeConstants& k,
                                           const DotOperands<kPlanes, kPairs>& o, int lane,
                                           Dots<kPlanes, kPairs>& dots) {
  if constexpr (kFormat == Format::kV1) {
    block_dots_v1<kPlanes, kPairs, kLaneMajor, kAhead, kArm>(k, o, lane, dots);
  } else {
    block_dots_v2<kPlanes, kPairs, kLaneMajor, kAhead, kArm>(k, o, lane, dots);
  }
}

}  // namespace memra::cuda
