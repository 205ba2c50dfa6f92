// The rows kernels for AVX2, FMA and F16C. Compiled with those instruction sets on: nothing but
// always-inlined functions may be included, or the linker could keep an AVX2 copy for everybody.
//
// The unit is two rows by 128 columns (4 groups g0..g3). What happens to it, and why the bits are
// those of the contract:
//  - A shuffle by code looks up the doubled value plus 12, 0..24, so that the unsigned-times-signed
//    multiply-add takes it as it is; 12 times the sum of the activations is subtracted afterwards.
//    Integers: exact.
//  - The sums are formed times 256 and the scales, read as f16 from (byte << 7), times 2^-8: each
//    product s * I is the same exact f32 as without.
//  - Both products of a group are exact, so their plain sum rounds as the fma of rule 2 does.
//  - acc = fma(d, P, acc) in one vector of 8 virtual lanes: 4 of either row. Tile c holds virtual
//    lanes 4 * (c % 8) and up, and the tree at the end adds the pairs that rule 3 names.

#include <immintrin.h>

#include <cstdint>

#include "cpu/rows_common.h"
#include "cpu/rows_kernels.h"
#include "cpu/slab_access.h"

namespace memra::cpu {
namespace {

constexpr int kRowPairs = nv::kV2TileRows / 2;
constexpr int kResidues = nv::kGroupValues / nv::kV2TileGroups;  // tiles to a round of the lanes
constexpr int kBias = 12;
constexpr int kSumFactor = 256;

MEMRA_HD __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
MEMRA_HD __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// Codes 0..15 to doubled value + 12.
MEMRA_HD __m256i biased_values() {
  return _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

// Per 16 bytes: the sums over each group's halves of unsigned times signed, times kSumFactor:
// [g0 h0, g0 h1, g2 h0, g2 h1 | g1 h0, g1 h1, g3 h0, g3 h1].
struct Operands {
  __m256i low01, high01, low23, high23;
};
MEMRA_HD __m256i half_sums(const Operands& a, const Operands& x) {
  const __m256i factor = _mm256_set1_epi16(kSumFactor);
  const __m256i sums01 =
      _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(a.low01, x.low01),
                                         _mm256_maddubs_epi16(a.high01, x.high01)),
                        factor);
  const __m256i sums23 =
      _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(a.low23, x.low23),
                                         _mm256_maddubs_epi16(a.high23, x.high23)),
                        factor);
  return _mm256_hadd_epi32(sums01, sums23);
}

// The activations of a tile: the bytes that meet low and high nibbles, in the order of the codes.
struct TileActivations {
  Operands x;
  __m256i bias_sums;
  __m256 d;  // [d0, d2, d0, d2 | d1, d3, d1, d3]
};

// A group's 32 activations as [8 + 8 for low nibbles | 8 + 8 for high nibbles].
template <bool kLaneMajor>
MEMRA_HD __m256i split_group(const std::int8_t* q) {
  if constexpr (kLaneMajor) return load256(q);
  return _mm256_permute4x64_epi64(load256(q), 0b11'01'10'00);
}

template <bool kLaneMajor, bool kHalf>
MEMRA_HD TileActivations load_activations(const std::int8_t* q, const float* d) {
  TileActivations tile;
  const __m256i g0 = split_group<kLaneMajor>(q), g1 = split_group<kLaneMajor>(q + 32);
  tile.x.low01 = _mm256_permute2x128_si256(g0, g1, 0x20);
  tile.x.high01 = _mm256_permute2x128_si256(g0, g1, 0x31);
  __m128 scales;
  if constexpr (kHalf) {
    tile.x.low23 = tile.x.high23 = _mm256_setzero_si256();
    scales = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(d)));
  } else {
    const __m256i g2 = split_group<kLaneMajor>(q + 64), g3 = split_group<kLaneMajor>(q + 96);
    tile.x.low23 = _mm256_permute2x128_si256(g2, g3, 0x20);
    tile.x.high23 = _mm256_permute2x128_si256(g2, g3, 0x31);
    scales = _mm_loadu_ps(d);
  }
  const __m256i bias = _mm256_set1_epi8(kBias);
  tile.bias_sums = half_sums({bias, bias, bias, bias}, tile.x);
  tile.d = _mm256_set_m128(_mm_permute_ps(scales, 0b11'01'11'01),
                           _mm_permute_ps(scales, 0b10'00'10'00));
  return tile;
}

// A row's code bytes: groups 0 and 1, then 2 and 3.
MEMRA_HD __m256i row_sums(__m256i codes01, __m256i codes23, const TileActivations& tile) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i table = biased_values();
  const Operands values{
      _mm256_shuffle_epi8(table, _mm256_and_si256(codes01, nibble)),
      _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes01, 4), nibble)),
      _mm256_shuffle_epi8(table, _mm256_and_si256(codes23, nibble)),
      _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes23, 4), nibble))};
  return _mm256_sub_epi32(half_sums(values, tile.x), tile.bias_sums);
}

// The scale bytes of two rows, 8 and 8, legal ones, to s * 2^-8 in the order of row_sums.
struct RowPairScales {
  __m256 first, second;
};
MEMRA_HD RowPairScales decode_scales(__m128i bytes) {
  // Each byte to the high half of a word, groups as 0, 2, 1, 3; then down by one: byte << 7.
  const __m256i order = _mm256_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 2, -1, 3, -1, 6, -1, 7,  //
                                         -1, 8, -1, 9, -1, 12, -1, 13, -1, 10, -1, 11, -1, 14, -1,
                                         15);
  const __m256i halves = _mm256_srli_epi16(
      _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), order), 1);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

// Rule 2 for the four groups of two rows: [a g0, a g2, b g0, b g2 | a g1, a g3, b g1, b g3].
MEMRA_HD __m256 partials(__m256i sums_a, __m256i sums_b, const RowPairScales& scales) {
  return _mm256_hadd_ps(_mm256_mul_ps(scales.first, _mm256_cvtepi32_ps(sums_a)),
                        _mm256_mul_ps(scales.second, _mm256_cvtepi32_ps(sums_b)));
}

// Where two rows of a tile lie.
template <bool kHalf>
struct RowPair {
  const std::uint8_t *codes_a01, *codes_a23, *codes_b01, *codes_b23;
  __m128i scales;
};

template <bool kHalf>
MEMRA_HD __m256 row_pair_step(const RowPair<kHalf>& rows, const TileActivations& tile,
                              __m256 acc) {
  __m256i a23 = _mm256_setzero_si256(), b23 = _mm256_setzero_si256();
  if constexpr (!kHalf) {
    a23 = load256(rows.codes_a23);
    b23 = load256(rows.codes_b23);
  }
  const __m256i sums_a = row_sums(load256(rows.codes_a01), a23, tile);
  const __m256i sums_b = row_sums(load256(rows.codes_b01), b23, tile);
  const __m256 p = partials(sums_a, sums_b, decode_scales(rows.scales));
  const __m256 next = _mm256_fmadd_ps(tile.d, p, acc);
  // Lanes without a group keep what they hold.
  if constexpr (kHalf) return _mm256_blend_ps(acc, next, 0b0101'0101);
  return next;
}

template <bool kHalf, template <class> class Access>
MEMRA_HD RowPair<kHalf> row_pair(const Access<nv::LayoutV2>& slab, std::int64_t row_block,
                                 std::int64_t tile, int pair) {
  constexpr int kGroups = kHalf ? 2 : 4;
  constexpr int kRowCodes = kGroups * nv::kGroupCodeBytes;
  constexpr int kRowScales = kGroups * nv::kGroupScaleBytes;
  const std::uint8_t* const codes = slab.codes(row_block, tile) + 2 * pair * kRowCodes;
  const std::uint8_t* const scales = slab.scales(row_block, tile) + 2 * pair * kRowScales;
  RowPair<kHalf> rows{codes, codes + 32, codes + kRowCodes, codes + kRowCodes + 32, {}};
  if constexpr (kHalf) {
    // The second row's four bytes go where a full tile has them.
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales));
    rows.scales = _mm_unpacklo_epi32(bytes, _mm_setzero_si128());
  } else {
    rows.scales = load128(scales);
  }
  return rows;
}

MEMRA_HD int load_word(const std::uint8_t* p) {
  int word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}

template <bool kHalf, template <class> class Access>
MEMRA_HD RowPair<kHalf> row_pair(const Access<nv::LayoutV1>& slab, std::int64_t row_block,
                                 std::int64_t tile, int pair) {
  const std::int64_t row = row_block * nv::kV2TileRows + 2 * pair;
  const std::uint8_t* const a01 = slab.block(row, 2 * tile);
  const std::uint8_t* const b01 = slab.block(row + 1, 2 * tile);
  const std::uint8_t* const a23 = kHalf ? a01 : slab.block(row, 2 * tile + 1);
  const std::uint8_t* const b23 = kHalf ? b01 : slab.block(row + 1, 2 * tile + 1);
  const __m128i bytes = _mm_setr_epi32(load_word(a01), kHalf ? 0 : load_word(a23), load_word(b01),
                                       kHalf ? 0 : load_word(b23));
  // Invalid codes, 0x7F and up, decode to 0.
  const __m128i limit = _mm_set1_epi8(0x7F);
  const __m128i invalid = _mm_cmpeq_epi8(_mm_min_epu8(bytes, limit), limit);
  return {a01 + nv::kV1BlockScaleBytes, a23 + nv::kV1BlockScaleBytes,
          b01 + nv::kV1BlockScaleBytes, b23 + nv::kV1BlockScaleBytes,
          _mm_andnot_si128(invalid, bytes)};
}

// Accumulators of 8 rows: the 8 lanes of row pair k at tiles c = residue (mod 8).
using Accumulators = __m256[kResidues][kRowPairs];

// Rule 3's tree, and the half: distance 16, 8 and 4 between residues, 2 and 1 inside a vector.
MEMRA_HD void finish_rows(Accumulators& acc, float* dots) {
  __m256 sums[kRowPairs];
  for (int k = 0; k < kRowPairs; ++k) {
    for (int distance = kResidues / 2; distance > 0; distance /= 2) {
      for (int c = 0; c < distance; ++c) {
        acc[c][k] = _mm256_add_ps(acc[c][k], acc[c + distance][k]);
      }
    }
    sums[k] = acc[0][k];
  }
  for (int k = 0; k < kRowPairs; k += 2) {
    const __m256 pairs = _mm256_hadd_ps(sums[k], sums[k + 1]);
    const __m128 rows =
        _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
    _mm_storeu_ps(dots + 2 * k, _mm_mul_ps(rows, _mm_set1_ps(0.5f)));
  }
}

template <bool kLaneMajor, bool kHalf, class Slab>
MEMRA_HD void tile_step(const Slab& slab, std::int64_t row_block, std::int64_t tile,
                        const std::int8_t* q, const float* d, Accumulators& acc) {
  const TileActivations activations = load_activations<kLaneMajor, kHalf>(
      q + tile * nv::kV2TileColumns, d + tile * nv::kV2TileGroups);
  __m256* const lanes = acc[tile % kResidues];
  for (int k = 0; k < kRowPairs; ++k) {
    lanes[k] = row_pair_step<kHalf>(row_pair<kHalf>(slab, row_block, tile, k), activations,
                                    lanes[k]);
  }
}

template <class Layout, template <class> class Access, bool kLaneMajor>
void dots(const SlabRows& run, const std::int8_t* q, const float* d, float* out) {
  const Access<Layout> slab{run.slab, run.rows, run.in};
  const std::int64_t full_tiles = run.in / nv::kV2TileColumns;
  for (std::int64_t r = 0; r < run.row_count; r += nv::kV2TileRows) {
    const std::int64_t row_block = (run.row_begin + r) / nv::kV2TileRows;
    Accumulators acc;
    for (auto& residue : acc) {
      for (__m256& lanes : residue) lanes = _mm256_setzero_ps();
    }
    for (std::int64_t tile = 0; tile < full_tiles; ++tile) {
      tile_step<kLaneMajor, false>(slab, row_block, tile, q, d, acc);
    }
    if (run.in % nv::kV2TileColumns != 0) {
      tile_step<kLaneMajor, true>(slab, row_block, full_tiles, q, d, acc);
    }
    finish_rows(acc, out + r);
  }
}

template <class Layout>
void load_only(const SlabRows& run, const std::int8_t*, const float*, float* out) {
  const SlabMemory<Layout> slab{run.slab, run.rows, run.in};
  const std::int64_t full_tiles = run.in / nv::kV2TileColumns;
  for (std::int64_t r = 0; r < run.row_count; r += nv::kV2TileRows) {
    const std::int64_t row_block = (run.row_begin + r) / nv::kV2TileRows;
    __m256i sum = _mm256_setzero_si256();
    const auto take = [&](__m256i bits) __attribute__((always_inline)) {
      sum = _mm256_xor_si256(sum, bits);
    };
    for (std::int64_t tile = 0; tile < full_tiles; ++tile) {
      for (int k = 0; k < kRowPairs; ++k) {
        const RowPair<false> rows = row_pair<false>(slab, row_block, tile, k);
        take(load256(rows.codes_a01));
        take(load256(rows.codes_a23));
        take(load256(rows.codes_b01));
        take(load256(rows.codes_b23));
        take(_mm256_castsi128_si256(rows.scales));
      }
    }
    if (run.in % nv::kV2TileColumns != 0) {
      for (int k = 0; k < kRowPairs; ++k) {
        const RowPair<true> rows = row_pair<true>(slab, row_block, full_tiles, k);
        take(load256(rows.codes_a01));
        take(load256(rows.codes_b01));
        take(_mm256_castsi128_si256(rows.scales));
      }
    }
    _mm256_storeu_ps(out + r, _mm256_cvtepi32_ps(sum));
  }
}

void finish_gate_up(const GateUpRun& run) { finish_gate_up_loop(run); }
void add_slot(const SlotRun& run) { add_slot_loop(run); }
void quantize(const QuantizeRun& run) { quantize_loop(run); }

void read(const void* begin, std::uint64_t bytes) {
  constexpr std::uint64_t kStep = 4 * sizeof(__m256i);
  const auto* const p = static_cast<const std::uint8_t*>(begin);
  __m256i sum[4] = {};
  std::uint64_t i = 0;
  for (; i + kStep <= bytes; i += kStep) {
    for (int k = 0; k < 4; ++k) {
      sum[k] = _mm256_xor_si256(sum[k], load256(p + i + k * sizeof(__m256i)));
    }
  }
  for (; i + sizeof(__m128i) <= bytes; i += sizeof(__m128i)) {
    sum[0] = _mm256_xor_si256(sum[0], _mm256_castsi128_si256(load128(p + i)));
  }
  for (const __m256i& s : sum) asm volatile("" : : "x"(s) : "memory");
}

}  // namespace

constexpr RowsKernels kAvx2Kernels = {
    "avx2",
    "cpu_rows_v1_avx2",
    "cpu_rows_v2_avx2",
    "cpu_rows_v2_lane_major_avx2",
    "cpu_rows_mixed_avx2",
    {dots<nv::LayoutV1, SlabMemory, false>, dots<nv::LayoutV2, SlabMemory, false>,
     dots<nv::LayoutV2, SlabMemory, true>},
    {load_only<nv::LayoutV1>, load_only<nv::LayoutV2>, load_only<nv::LayoutV2>},
    {dots<nv::LayoutV1, SlabWindow, false>, dots<nv::LayoutV2, SlabWindow, false>,
     dots<nv::LayoutV2, SlabWindow, true>},
    finish_gate_up,
    add_slot,
    quantize,
    read,
};

}  // namespace memra::cpu
