#pragma once

// What x86 instruction sets have in common for grouped_simd.h, and its class for 256 bits.

#include <immintrin.h>

#include <cstdint>

#include "cpu/simd_256.h"
#include "numerics/platform.h"

namespace memra::cpu {

// Codes 0..15 to doubled values.
MEMRA_HD __m128i doubled_table() {
  return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
}

// Two rows of a panel: 8 doubled values each, times the scales of their outputs.
template <std::int64_t kPanel>
MEMRA_HD void store_panel_rows(__m128i values, __m256 scale, float* panel) {
  const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(values));
  const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(values, 8)));
  _mm256_store_ps(panel, _mm256_mul_ps(low, scale));
  _mm256_store_ps(panel + kPanel, _mm256_mul_ps(high, scale));
}

// 16 columns, 8 code bytes, of 8 rows that lie `step` bytes apart. Transposed as bytes, which is
// four times less work than as floats.
template <std::int64_t kPanel>
MEMRA_HD void decode_half(const std::uint8_t* codes, std::int64_t step, const float* scales,
                          float* panel) {
  const __m128i table = doubled_table(), mask = _mm_set1_epi8(15);
  __m128i row[8];
  for (int r = 0; r < 8; ++r) {
    const __m128i bytes = load64(codes + r * step);
    const __m128i nibbles = _mm_unpacklo_epi64(_mm_and_si128(bytes, mask),
                                               _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    row[r] = _mm_shuffle_epi8(table, nibbles);
  }
  const __m256 scale = _mm256_load_ps(scales);
  for (int high = 0; high < 2; ++high) {  // columns 0..7, then 8..15
    __m128i two[4];
    for (int i = 0; i < 4; ++i) {
      two[i] = high != 0 ? _mm_unpackhi_epi8(row[2 * i], row[2 * i + 1])
                         : _mm_unpacklo_epi8(row[2 * i], row[2 * i + 1]);
    }
    const __m128i low0 = _mm_unpacklo_epi16(two[0], two[1]);  // rows 0..3 of columns 0..3
    const __m128i low1 = _mm_unpacklo_epi16(two[2], two[3]);
    const __m128i high0 = _mm_unpackhi_epi16(two[0], two[1]);
    const __m128i high1 = _mm_unpackhi_epi16(two[2], two[3]);
    float* const to = panel + high * 8 * kPanel;
    store_panel_rows<kPanel>(_mm_unpacklo_epi32(low0, low1), scale, to);
    store_panel_rows<kPanel>(_mm_unpackhi_epi32(low0, low1), scale, to + 2 * kPanel);
    store_panel_rows<kPanel>(_mm_unpacklo_epi32(high0, high1), scale, to + 4 * kPanel);
    store_panel_rows<kPanel>(_mm_unpackhi_epi32(high0, high1), scale, to + 6 * kPanel);
  }
}

// Codes 0..255, one to a word of 32 bits, to half of what they mean; invalid ones to 0. The fields
// of a code land in those of a float, whose bias the factor corrects.
MEMRA_HD __m256 half_scales(__m256i codes) {
  const __m256i legal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7F), codes);
  const __m256i bits = _mm256_and_si256(_mm256_slli_epi32(codes, 20), legal);
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p119f));
}

// The two scales of 8 rows that lie `step` bytes apart.
MEMRA_HD void decode_scale_pairs(const std::uint8_t* codes, std::int64_t step,
                                 float (&scales)[2][8]) {
  const auto pair = [&](int r) {
    std::uint16_t word;
    __builtin_memcpy(&word, codes + r * step, sizeof word);
    return static_cast<short>(word);
  };
  // Not through memory: a load of words just stored would wait for them.
  const __m128i words =
      _mm_setr_epi16(pair(0), pair(1), pair(2), pair(3), pair(4), pair(5), pair(6), pair(7));
  const __m256i both = _mm256_cvtepu16_epi32(words);
  _mm256_store_ps(scales[0], half_scales(_mm256_and_si256(both, _mm256_set1_epi32(0xFF))));
  _mm256_store_ps(scales[1], half_scales(_mm256_srli_epi32(both, 8)));
}

// `Local`, a class that no other file has, makes it local to a file.
template <class Local>
struct Grouped256 {
  using Floats = __m256;
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::int64_t kVectors = 2;
  static constexpr std::int64_t kTokens = 6;

  static MEMRA_HD Floats load(const float* p) { return _mm256_load_ps(p); }
  static MEMRA_HD void store(float* p, Floats a) { _mm256_store_ps(p, a); }
  static MEMRA_HD Floats all(float x) { return _mm256_set1_ps(x); }
  static MEMRA_HD Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  template <std::int64_t kPanel>
  static MEMRA_HD void decode(const std::uint8_t* codes, std::int64_t step, const float* scales,
                              float* panel) {
    decode_half<kPanel>(codes, step, scales, panel);
  }
  static MEMRA_HD void scales(const std::uint8_t* codes, std::int64_t step, float (&scales)[2][8]) {
    decode_scale_pairs(codes, step, scales);
  }
};

}  // namespace memra::cpu
