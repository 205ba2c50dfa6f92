// The rows kernels for AVX2, FMA and F16C. Compiled with those instruction sets on: nothing but
// always-inlined functions may be included, or the linker could keep an AVX2 copy for everybody.
//
// The unit of work is two tiles a and b of one row by 128 columns, 4 groups g0..g3 each: of two
// rows in V2, two neighbours of one row in V1, whichever lie side by side in memory. What happens
// to it, and why the bits are those of the contract:
//  - A shuffle by code looks up the doubled value plus 12, 0..24, so that the unsigned-times-signed
//    multiply-add takes it as it is; 12 times the sum of the activations is subtracted afterwards.
//    Integers: exact.
//  - The sums are formed times 256 and the scales, read as f16 from (byte << 7), times 2^-8: each
//    product s * I is the same exact f32 as without.
//  - Both products of a group are exact, so their plain sum rounds as the fma of rule 2 does.
//  - acc = fma(d, P, acc) in vectors of 8 virtual lanes. The order of lanes in a vector is free;
//  the
//    tree at the end adds the pairs that rule 3 names.

#include <immintrin.h>

#include <cstdint>

#include "cpu/rows_common.h"
#include "cpu/rows_kernels.h"
#include "cpu/slab_access.h"

namespace memra::cpu {
namespace {

constexpr std::int64_t kTileColumns = nv::kV2TileColumns;
constexpr std::int64_t kTileGroups = nv::kV2TileGroups;
constexpr std::int64_t kRows = nv::kV2TileRows;                          // taken at a time
constexpr std::int64_t kTilesToARound = nv::kGroupValues / kTileGroups;  // of the virtual lanes
constexpr int kBias = 12;
constexpr int kSumFactor = 256;

MEMRA_HD __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
MEMRA_HD __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
MEMRA_HD __m128i load64(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}
MEMRA_HD int load32(const std::uint8_t* p) {
  int word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}

// Bytes of a tile in the order of the code bytes: those that meet low nibbles, and high ones.
struct Operands {
  __m256i low01, high01, low23, high23;
};

// The sums of each half of each group, times kSumFactor:
// [g0 h0, g0 h1, g2 h0, g2 h1 | g1 h0, g1 h1, g3 h0, g3 h1].
MEMRA_HD __m256i half_sums(const Operands& codes, const Operands& x) {
  const __m256i factor = _mm256_set1_epi16(kSumFactor);
  const __m256i sums01 =
      _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(codes.low01, x.low01),
                                         _mm256_maddubs_epi16(codes.high01, x.high01)),
                        factor);
  const __m256i sums23 =
      _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(codes.low23, x.low23),
                                         _mm256_maddubs_epi16(codes.high23, x.high23)),
                        factor);
  return _mm256_hadd_epi32(sums01, sums23);
}

// ---- Activations, brought into the order of the kernels once for many rows ----

constexpr std::int64_t kPanelTiles = 64;

struct Panel {
  Operands x[kPanelTiles];
  __m256i bias[kPanelTiles];                      // what the bias of the codes adds to half_sums()
  alignas(32) float d[kPanelTiles][kTileGroups];  // d0, d2, d1, d3
};

// A group's 32 activations as [8 + 8 for low nibbles | 8 + 8 for high nibbles].
template <bool kLaneMajor>
MEMRA_HD __m256i split_group(const std::int8_t* q) {
  if constexpr (kLaneMajor) return load256(q);
  return _mm256_permute4x64_epi64(load256(q), 0b11'01'10'00);
}

// Fills an even number of tiles; groups beyond `columns` are zero.
template <bool kLaneMajor>
MEMRA_HD void fill_panel(const std::int8_t* q, const float* d, std::int64_t columns, Panel& panel) {
  const std::int64_t groups = columns / nv::kGroupValues;
  const __m256i bias = _mm256_set1_epi8(kBias);
  for (std::int64_t tile = 0; tile * kTileGroups < groups || tile % 2 != 0; ++tile) {
    __m256i x[kTileGroups] = {};
    float scales[kTileGroups] = {};
    for (std::int64_t g = 0; g < kTileGroups; ++g) {
      const std::int64_t group = tile * kTileGroups + g;
      if (group >= groups) break;
      x[g] = split_group<kLaneMajor>(q + group * nv::kGroupValues);
      scales[g] = d[group];
    }
    Operands& to = panel.x[tile];
    to.low01 = _mm256_permute2x128_si256(x[0], x[1], 0x20);
    to.high01 = _mm256_permute2x128_si256(x[0], x[1], 0x31);
    to.low23 = _mm256_permute2x128_si256(x[2], x[3], 0x20);
    to.high23 = _mm256_permute2x128_si256(x[2], x[3], 0x31);
    panel.bias[tile] = half_sums({bias, bias, bias, bias}, to);
    panel.d[tile][0] = scales[0];
    panel.d[tile][1] = scales[2];
    panel.d[tile][2] = scales[1];
    panel.d[tile][3] = scales[3];
  }
}

// ---- Two tiles ----

// Codes and scales of tiles a and b. Groups that do not exist are zero.
struct TilePair {
  __m256i a01, a23, b01, b23;
  __m128i scales;  // a: g0 h0, g0 h1, g1 h0, ..., g3 h1, then b
};

MEMRA_HD __m256i tile_sums(__m256i codes01, __m256i codes23, const Operands& x, __m256i bias) {
  const __m256i nibble = _mm256_set1_epi8(15);
  // Codes 0..15 to doubled value + kBias.
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const Operands values{
      _mm256_shuffle_epi8(table, _mm256_and_si256(codes01, nibble)),
      _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes01, 4), nibble)),
      _mm256_shuffle_epi8(table, _mm256_and_si256(codes23, nibble)),
      _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes23, 4), nibble))};
  return _mm256_sub_epi32(half_sums(values, x), bias);
}

// Rule 2 for all groups: [a0, a2, b0, b2 | a1, a3, b1, b3].
MEMRA_HD __m256 partials(__m256i sums_a, __m256i sums_b, __m128i scale_bytes) {
  // Each byte to the high half of a word, groups as 0, 2, 1, 3; then down by one: byte << 7, which
  // is s * 2^-8 as f16.
  const __m256i order =
      _mm256_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 2, -1, 3, -1, 6, -1, 7,  //
                       -1, 8, -1, 9, -1, 12, -1, 13, -1, 10, -1, 11, -1, 14, -1, 15);
  const __m256i halves =
      _mm256_srli_epi16(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(scale_bytes), order), 1);
  const __m256 scales_a = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  const __m256 scales_b = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  return _mm256_hadd_ps(_mm256_mul_ps(scales_a, _mm256_cvtepi32_ps(sums_a)),
                        _mm256_mul_ps(scales_b, _mm256_cvtepi32_ps(sums_b)));
}

// ---- V2: the same tile of two rows; 8 rows at a time, in memory order ----

constexpr std::int64_t kRowPairs = kRows / 2;
// Codes and scales are two streams, and hardware prefetchers alone leave a fifth of the speed
// unused. Prefetching beyond a slab's end is harmless.
constexpr std::int64_t kPrefetchBytes = 2048;  // of codes: four tiles ahead

// kHalf: the half tile at the end, with groups 0 and 1 alone.
template <bool kHalf>
MEMRA_HD TilePair load_v2(const std::uint8_t* codes, const std::uint8_t* scales,
                          std::int64_t row_pair) {
  constexpr std::int64_t kGroups = kHalf ? kTileGroups / 2 : kTileGroups;
  codes += row_pair * 2 * kGroups * nv::kGroupCodeBytes;
  scales += row_pair * 2 * kGroups * nv::kGroupScaleBytes;
  if constexpr (kHalf) {
    const __m256i none = _mm256_setzero_si256();
    return {load256(codes), none, load256(codes + 32), none,
            _mm_unpacklo_epi32(load64(scales), _mm_setzero_si128())};
  }
  _mm_prefetch(codes + kPrefetchBytes, _MM_HINT_T0);
  _mm_prefetch(codes + kPrefetchBytes + 64, _MM_HINT_T0);
  if (row_pair == 0) _mm_prefetch(scales + kPrefetchBytes / 8, _MM_HINT_T0);
  return {load256(codes), load256(codes + 32), load256(codes + 64), load256(codes + 96),
          load128(scales)};
}

struct AccumulatorsV2 {
  // Of row pair k at tiles c, c + 8, ...: in the order of partials(), virtual lane 4c + group.
  __m256 lanes[kTilesToARound][kRowPairs];

  MEMRA_HD void clear() {
    for (auto& residue : lanes) {
      for (__m256& vector : residue)
        vector = _mm256_setzero_ps();
    }
  }

  // Rule 3's tree: distances 16, 8 and 4 between vectors, 2 and 1 inside one.
  MEMRA_HD void finish(float* dots) {
    for (std::int64_t distance = kTilesToARound / 2; distance > 0; distance /= 2) {
      for (std::int64_t c = 0; c < distance; ++c) {
        for (std::int64_t k = 0; k < kRowPairs; ++k) {
          lanes[c][k] = _mm256_add_ps(lanes[c][k], lanes[c + distance][k]);
        }
      }
    }
    for (std::int64_t k = 0; k < kRowPairs; k += 2) {
      const __m256 sums = _mm256_hadd_ps(lanes[0][k], lanes[0][k + 1]);
      const __m128 rows = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
      _mm_storeu_ps(dots + 2 * k, _mm_mul_ps(rows, _mm_set1_ps(0.5f)));
    }
  }
};

template <bool kHalf>
MEMRA_HD void tile_step_v2(const std::uint8_t* codes, const std::uint8_t* scales,
                           const Panel& panel, std::int64_t tile, __m256* lanes) {
  const Operands x = panel.x[tile];
  const __m256i bias = panel.bias[tile];
  // [d0, d2, d0, d2 | d1, d3, d1, d3]
  const __m256 d = _mm256_castpd_ps(_mm256_permute4x64_pd(
      _mm256_castps_pd(_mm256_castps128_ps256(_mm_load_ps(panel.d[tile]))), 0b01'01'00'00));
  for (std::int64_t k = 0; k < kRowPairs; ++k) {
    const TilePair rows = load_v2<kHalf>(codes, scales, k);
    const __m256 p = partials(tile_sums(rows.a01, rows.a23, x, bias),
                              tile_sums(rows.b01, rows.b23, x, bias), rows.scales);
    const __m256 next = _mm256_fmadd_ps(d, p, lanes[k]);
    // Lanes without a group keep what they hold.
    lanes[k] = kHalf ? _mm256_blend_ps(lanes[k], next, 0b0101'0101) : next;
  }
}

template <template <class> class Access>
MEMRA_HD void add_panel(const Access<nv::LayoutV2>& slab, std::int64_t row_block,
                        std::int64_t first_tile, std::int64_t columns, const Panel& panel,
                        AccumulatorsV2& acc) {
  const std::int64_t full_tiles = columns / kTileColumns;
  for (std::int64_t tile = 0; tile < full_tiles; ++tile) {
    tile_step_v2<false>(slab.codes(row_block, first_tile + tile),
                        slab.scales(row_block, first_tile + tile), panel, tile,
                        acc.lanes[tile % kTilesToARound]);
  }
  if (columns % kTileColumns != 0) {
    tile_step_v2<true>(slab.codes(row_block, first_tile + full_tiles),
                       slab.scales(row_block, first_tile + full_tiles), panel, full_tiles,
                       acc.lanes[full_tiles % kTilesToARound]);
  }
}

// ---- V1: two neighbouring tiles of a row, that is 4 blocks of 64 columns; row by row ----

constexpr std::int64_t kStepBlocks = 4;
constexpr std::int64_t kStepsToARound = kTilesToARound / 2;

// Only the first kBlocks of the four exist.
template <int kBlocks>
MEMRA_HD TilePair load_v1(const std::uint8_t* const (&blocks)[kStepBlocks]) {
  __m256i codes[kStepBlocks] = {};
  int words[kStepBlocks] = {};
  for (int i = 0; i < kBlocks; ++i) {
    codes[i] = load256(blocks[i] + nv::kV1BlockScaleBytes);
    words[i] = load32(blocks[i]);
  }
  const __m128i bytes = _mm_setr_epi32(words[0], words[1], words[2], words[3]);
  // Invalid codes, 0x7F and up, decode to 0.
  const __m128i limit = _mm_set1_epi8(0x7F);
  const __m128i invalid = _mm_cmpeq_epi8(_mm_min_epu8(bytes, limit), limit);
  return {codes[0], codes[1], codes[2], codes[3], _mm_andnot_si128(invalid, bytes)};
}

struct AccumulatorsV1 {
  // Of a row at steps s, s + 4, ...: in the order of partials(), so that lane i of either half
  // belongs to block i of the step; virtual lane 8s + 2 * i + half.
  __m256 lanes[kRows][kStepsToARound];

  MEMRA_HD void clear() {
    for (auto& row : lanes) {
      for (__m256& vector : row)
        vector = _mm256_setzero_ps();
    }
  }

  // Rule 3's tree: distances 16 and 8 between vectors; then for 4 rows at once 4, 2 and 1.
  MEMRA_HD void finish(float* dots) const {
    for (std::int64_t r = 0; r < kRows; r += 4) {
      __m256d rows[4];
      for (std::int64_t i = 0; i < 4; ++i) {
        const __m256* const row = lanes[r + i];
        rows[i] = _mm256_castps_pd(
            _mm256_add_ps(_mm256_add_ps(row[0], row[2]), _mm256_add_ps(row[1], row[3])));
      }
      const __m256 sums01 = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(rows[0], rows[1])),
                                          _mm256_castpd_ps(_mm256_unpackhi_pd(rows[0], rows[1])));
      const __m256 sums23 = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(rows[2], rows[3])),
                                          _mm256_castpd_ps(_mm256_unpackhi_pd(rows[2], rows[3])));
      const __m256 sums = _mm256_hadd_ps(sums01, sums23);
      const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
      _mm_storeu_ps(dots + r, _mm_mul_ps(four, _mm_set1_ps(0.5f)));
    }
  }
};

template <int kBlocks, class Slab>
MEMRA_HD void step_v1(const Slab& slab, std::int64_t row, std::int64_t first_block,
                      const Panel& panel, std::int64_t step, __m256* lanes) {
  const std::uint8_t* blocks[kStepBlocks] = {};
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = slab.block(row, first_block + step * kStepBlocks + i);
  }
  const std::int64_t a = 2 * step, b = 2 * step + 1;
  const TilePair tiles = load_v1<kBlocks>(blocks);
  const __m256 p =
      partials(tile_sums(tiles.a01, tiles.a23, panel.x[a], panel.bias[a]),
               tile_sums(tiles.b01, tiles.b23, panel.x[b], panel.bias[b]), tiles.scales);
  const __m256 d = _mm256_castpd_ps(
      _mm256_permute4x64_pd(_mm256_castps_pd(_mm256_load_ps(panel.d[a])), 0b11'01'10'00));
  __m256& acc = lanes[step % kStepsToARound];
  const __m256 next = _mm256_fmadd_ps(d, p, acc);
  // Lanes without a group keep what they hold.
  constexpr int kLanes = (1 << kBlocks) - 1;
  acc = kBlocks < kStepBlocks ? _mm256_blend_ps(acc, next, kLanes | kLanes << 4) : next;
}

template <int kTailBlocks, class Slab>
MEMRA_HD void add_panel_v1(const Slab& slab, std::int64_t row_block, std::int64_t first_block,
                           std::int64_t steps, const Panel& panel, AccumulatorsV1& acc) {
  for (std::int64_t r = 0; r < kRows; ++r) {
    const std::int64_t row = row_block * kRows + r;
    for (std::int64_t step = 0; step < steps; ++step) {
      step_v1<kStepBlocks>(slab, row, first_block, panel, step, acc.lanes[r]);
    }
    if constexpr (kTailBlocks != 0) {
      step_v1<kTailBlocks>(slab, row, first_block, panel, steps, acc.lanes[r]);
    }
  }
}

template <template <class> class Access>
MEMRA_HD void add_panel(const Access<nv::LayoutV1>& slab, std::int64_t row_block,
                        std::int64_t first_tile, std::int64_t columns, const Panel& panel,
                        AccumulatorsV1& acc) {
  const std::int64_t blocks = columns / nv::kV1BlockValues, first_block = 2 * first_tile;
  const std::int64_t steps = blocks / kStepBlocks;
  switch (blocks % kStepBlocks) {
    case 0:
      return add_panel_v1<0>(slab, row_block, first_block, steps, panel, acc);
    case 1:
      return add_panel_v1<1>(slab, row_block, first_block, steps, panel, acc);
    case 2:
      return add_panel_v1<2>(slab, row_block, first_block, steps, panel, acc);
    default:
      return add_panel_v1<3>(slab, row_block, first_block, steps, panel, acc);
  }
}

// ---- Both ----

template <class Layout>
struct AccumulatorsOf;
template <>
struct AccumulatorsOf<nv::LayoutV1> {
  using Type = AccumulatorsV1;
};
template <>
struct AccumulatorsOf<nv::LayoutV2> {
  using Type = AccumulatorsV2;
};

template <class Layout, template <class> class Access, bool kLaneMajor>
void dots(const SlabRows& run, const std::int8_t* q, const float* d, float* out) {
  constexpr std::int64_t kPanelColumns = kPanelTiles * kTileColumns;
  static_assert(kPanelTiles % kTilesToARound == 0, "a panel begins with virtual lane 0");
  const Access<Layout> slab{run.slab, run.rows, run.in};
  Panel panel;
  for (std::int64_t r = 0; r < run.row_count; r += kRows) {
    typename AccumulatorsOf<Layout>::Type acc;
    acc.clear();
    for (std::int64_t begin = 0; begin < run.in; begin += kPanelColumns) {
      const std::int64_t columns = run.in - begin < kPanelColumns ? run.in - begin : kPanelColumns;
      // One panel holds most rows whole, and is then filled once.
      if (r == 0 || run.in > kPanelColumns) {
        fill_panel<kLaneMajor>(q + begin, d + begin / nv::kGroupValues, columns, panel);
      }
      add_panel(slab, (run.row_begin + r) / kRows, begin / kTileColumns, columns, panel, acc);
    }
    acc.finish(out + r);
  }
}

// ---- The rest ----

// The loads of the kernels in the same order, xored together.
struct Taken {
  __m256i sum = _mm256_setzero_si256();
  MEMRA_HD void take(const TilePair& tiles) {
    sum = _mm256_xor_si256(sum, _mm256_xor_si256(_mm256_xor_si256(tiles.a01, tiles.a23),
                                                 _mm256_xor_si256(tiles.b01, tiles.b23)));
    sum = _mm256_xor_si256(sum, _mm256_castsi128_si256(tiles.scales));
  }
};

void load_only_v2(const SlabRows& run, const std::int8_t*, const float*, float* out) {
  const SlabMemory<nv::LayoutV2> slab{run.slab, run.rows, run.in};
  const std::int64_t full_tiles = run.in / kTileColumns;
  for (std::int64_t r = 0; r < run.row_count; r += kRows) {
    const std::int64_t row_block = (run.row_begin + r) / kRows;
    Taken taken;
    for (std::int64_t tile = 0; tile < full_tiles; ++tile) {
      for (std::int64_t k = 0; k < kRowPairs; ++k) {
        taken.take(load_v2<false>(slab.codes(row_block, tile), slab.scales(row_block, tile), k));
      }
    }
    for (std::int64_t k = 0; k < kRowPairs && run.in % kTileColumns != 0; ++k) {
      taken.take(
          load_v2<true>(slab.codes(row_block, full_tiles), slab.scales(row_block, full_tiles), k));
    }
    _mm256_storeu_ps(out + r, _mm256_cvtepi32_ps(taken.sum));
  }
}

void load_only_v1(const SlabRows& run, const std::int8_t*, const float*, float* out) {
  const SlabMemory<nv::LayoutV1> slab{run.slab, run.rows, run.in};
  const std::int64_t blocks = run.in / nv::kV1BlockValues;
  for (std::int64_t r = 0; r < run.row_count; ++r) {
    Taken taken;
    std::int64_t block = 0;
    for (; block + kStepBlocks <= blocks; block += kStepBlocks) {
      const std::uint8_t* const p = slab.block(run.row_begin + r, block);
      taken.take(load_v1<kStepBlocks>(
          {p, p + nv::kV1BlockBytes, p + 2 * nv::kV1BlockBytes, p + 3 * nv::kV1BlockBytes}));
    }
    for (; block < blocks; ++block) {
      taken.take(load_v1<1>({slab.block(run.row_begin + r, block)}));
    }
    const __m128i folded =
        _mm_xor_si128(_mm256_castsi256_si128(taken.sum), _mm256_extracti128_si256(taken.sum, 1));
    _mm_store_ss(out + r, _mm_cvtepi32_ps(folded));
  }
}

void finish_gate_up(const GateUpRun& run) {
  finish_gate_up_loop(run);
}
void add_slot(const SlotRun& run) {
  add_slot_loop(run);
}
void quantize(const QuantizeRun& run) {
  quantize_loop(run);
}

void read(const void* begin, std::uint64_t bytes) {
  constexpr std::uint64_t kVectors = 4, kVector = sizeof(__m256i);
  const auto* const p = static_cast<const std::uint8_t*>(begin);
  __m256i sums[kVectors] = {};
  std::uint64_t i = 0;
  for (; i + kVectors * kVector <= bytes; i += kVectors * kVector) {
    for (std::uint64_t k = 0; k < kVectors; ++k) {
      sums[k] = _mm256_xor_si256(sums[k], load256(p + i + k * kVector));
    }
  }
  for (; i + sizeof(__m128i) <= bytes; i += sizeof(__m128i)) {
    sums[0] = _mm256_xor_si256(sums[0], _mm256_castsi128_si256(load128(p + i)));
  }
  for (const __m256i& sum : sums)
    asm volatile("" : : "x"(sum) : "memory");
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
    {load_only_v1, load_only_v2, load_only_v2},
    {dots<nv::LayoutV1, SlabWindow, false>, dots<nv::LayoutV2, SlabWindow, false>,
     dots<nv::LayoutV2, SlabWindow, true>},
    finish_gate_up,
    add_slot,
    quantize,
    read,
};

}  // namespace memra::cpu
