#pragma once

// Vectors of 256 bits for rows_simd.h: what AVX2 and AVX-VNNI have in common.

#include <immintrin.h>

#include <cstdint>

#include "numerics/platform.h"

namespace memra::cpu {

// Codes 0..15 to doubled value + kCodeBias.
MEMRA_HD __m128i code_table() {
  return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
}

MEMRA_HD __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
MEMRA_HD __m128i load64(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}
MEMRA_HD __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

MEMRA_HD int load_word(const std::uint8_t* p) {
  int word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}
// Four words, or `count`, and zero.
template <bool kAll>
MEMRA_HD __m128i load_words(const std::uint8_t* const* from, std::int64_t count) {
  __m128i words = _mm_setzero_si128();
  if (kAll || count > 0) words = _mm_cvtsi32_si128(load_word(from[0]));
  if (kAll || count > 1) words = _mm_insert_epi32(words, load_word(from[1]), 1);
  if (kAll || count > 2) words = _mm_insert_epi32(words, load_word(from[2]), 2);
  if (kAll || count > 3) words = _mm_insert_epi32(words, load_word(from[3]), 3);
  return words;
}

// `Local`, the class that derives from it, makes it local to a file.
template <class Local>
class Simd256 {
 public:
  using Ints = __m256i;
  using Floats = __m256;
  using ScaleBytes = __m128i;
  static constexpr int kParts = 2;
  static constexpr int kRowsAtOnce = 1;

  static MEMRA_HD Ints zero_ints() { return _mm256_setzero_si256(); }
  static MEMRA_HD Floats zero() { return _mm256_setzero_ps(); }
  static MEMRA_HD Floats all(float x) { return _mm256_set1_ps(x); }
  static MEMRA_HD Floats load_floats(const float* p) { return _mm256_load_ps(p); }
  static MEMRA_HD Ints load_ints(const void* p) { return load256(p); }
  static MEMRA_HD Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static MEMRA_HD Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static MEMRA_HD Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static MEMRA_HD Ints exclusive_or(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
  static MEMRA_HD Ints widened(ScaleBytes scales) { return _mm256_castsi128_si256(scales); }

  static MEMRA_HD void keep(Ints a) { asm volatile("" : : "x"(a) : "memory"); }

  static MEMRA_HD Ints low_words(Ints a, Ints b) { return _mm256_unpacklo_epi32(a, b); }
  static MEMRA_HD Ints high_words(Ints a, Ints b) { return _mm256_unpackhi_epi32(a, b); }
  static MEMRA_HD Ints low_pairs(Ints a, Ints b) { return _mm256_unpacklo_epi64(a, b); }
  static MEMRA_HD Ints high_pairs(Ints a, Ints b) { return _mm256_unpackhi_epi64(a, b); }

  static MEMRA_HD Ints values(Ints nibbles) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(code_table()),
                               _mm256_and_si256(nibbles, _mm256_set1_epi8(15)));
  }
  static MEMRA_HD Ints low_nibble_values(Ints codes) { return values(codes); }
  static MEMRA_HD Ints high_nibble_values(Ints codes) {
    return values(_mm256_srli_epi16(codes, 4));
  }

  static MEMRA_HD Ints load_parts(const std::int8_t* const* parts) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(parts[0])), load128(parts[1]), 1);
  }

  // Vector i of those blocks that exist.
  template <bool kAll>
  static MEMRA_HD Ints load_block_codes(const std::uint8_t* const* codes, int i,
                                        std::int64_t count) {
    return kAll || i < count ? load256(codes[i]) : zero_ints();
  }
  template <bool kAll>
  static MEMRA_HD ScaleBytes load_block_scales(const std::uint8_t* const* scales,
                                               std::int64_t count) {
    return load_words<kAll>(scales, count);
  }
  template <int kVector>
  static MEMRA_HD Ints load_tile_codes(const std::uint8_t* const* codes) {
    return load256(codes[kVector / 2] + kVector % 2 * 32);
  }
  static MEMRA_HD ScaleBytes load_tile_scales(const std::uint8_t* const* scales) {
    return _mm_unpacklo_epi64(load64(scales[0]), load64(scales[1]));
  }
  // Invalid codes, 0x7F and up, decode to 0.
  static MEMRA_HD ScaleBytes without_invalid(ScaleBytes scales) {
    const __m128i limit = _mm_set1_epi8(0x7F);
    return _mm_andnot_si128(_mm_cmpeq_epi8(_mm_min_epu8(scales, limit), limit), scales);
  }

  // Read as f16 from (byte << 7), which is s * 2^-8; in the order of the lanes.
  static MEMRA_HD void decode_scales(ScaleBytes scales, Floats (&scale)[2]) {
    // Each byte to the high half of a word; then down by one.
    const __m256i order =
        _mm256_setr_epi8(-1, 0, -1, 4, -1, 8, -1, 12, -1, 2, -1, 6, -1, 10, -1, 14,  //
                         -1, 1, -1, 5, -1, 9, -1, 13, -1, 3, -1, 7, -1, 11, -1, 15);
    const __m256i halves =
        _mm256_srli_epi16(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(scales), order), 1);
    scale[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    scale[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  }

  // Those of the first groups of a step from `a`, the others from `b`.
  static MEMRA_HD Floats choose_first(std::int64_t groups, Floats a, Floats b) {
    const __m256i group = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const __m256i first = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(groups)), group);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(first));
  }

  // The sums of lanes of four rows by rule 3's distances 4, 2 and 1, halved.
  static MEMRA_HD void store_tree(const Floats* rows, float* dots) {
    const auto pair = [&](int i) {
      const __m256d a = _mm256_castps_pd(rows[i]), b = _mm256_castps_pd(rows[i + 1]);
      return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                           _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    };
    const __m256 sums = _mm256_hadd_ps(pair(0), pair(2));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
    _mm_storeu_ps(dots, _mm_mul_ps(four, _mm_set1_ps(0.5f)));
  }

  static MEMRA_HD void store_eight(Ints values, float* out) {
    _mm256_storeu_ps(out, _mm256_cvtepi32_ps(values));
  }

 private:
  friend Local;
  Simd256() = default;
};

}  // namespace memra::cpu
