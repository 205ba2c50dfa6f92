// The rows kernels for AVX-512 with VNNI: F, BW, DQ, VL and VNNI. The table look-ups are shuffles,
// not VBMI's permutes, which would leave out the first processors that have VNNI.

#include <immintrin.h>

#include "cpu/grouped_256.h"
#include "cpu/grouped_simd.h"
#include "cpu/rows_simd.h"
#include "cpu/simd_256.h"

namespace memra::cpu {
namespace {

struct Avx512Vnni {
  using Ints = __m512i;
  using Floats = __m512;
  using ScaleBytes = __m256i;
  static constexpr int kParts = 4;
  // Two rows meet one load of activations: this many registers allow it.
  static constexpr int kRowsAtOnce = 2;

  static MEMRA_HD Ints zero_ints() { return _mm512_setzero_si512(); }
  static MEMRA_HD Floats zero() { return _mm512_setzero_ps(); }
  static MEMRA_HD Floats all(float x) { return _mm512_set1_ps(x); }
  static MEMRA_HD Floats load_floats(const float* p) { return _mm512_load_ps(p); }
  static MEMRA_HD Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
  static MEMRA_HD Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static MEMRA_HD Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static MEMRA_HD Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static MEMRA_HD Ints exclusive_or(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
  static MEMRA_HD Ints widened(ScaleBytes scales) { return _mm512_castsi256_si512(scales); }

  static MEMRA_HD void keep(Ints a) { asm volatile("" : : "v"(a) : "memory"); }

  static MEMRA_HD Ints low_words(Ints a, Ints b) { return _mm512_unpacklo_epi32(a, b); }
  static MEMRA_HD Ints high_words(Ints a, Ints b) { return _mm512_unpackhi_epi32(a, b); }
  static MEMRA_HD Ints low_pairs(Ints a, Ints b) { return _mm512_unpacklo_epi64(a, b); }
  static MEMRA_HD Ints high_pairs(Ints a, Ints b) { return _mm512_unpackhi_epi64(a, b); }

  static MEMRA_HD Ints values(Ints nibbles) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(code_table()),
                               _mm512_and_si512(nibbles, _mm512_set1_epi8(15)));
  }
  static MEMRA_HD Ints low_nibble_values(Ints codes) { return values(codes); }
  static MEMRA_HD Ints high_nibble_values(Ints codes) {
    return values(_mm512_srli_epi16(codes, 4));
  }

  static MEMRA_HD Ints load_parts(const std::int8_t* const* parts) {
    const __m256i low =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load128(parts[0])), load128(parts[1]), 1);
    const __m256i high =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load128(parts[2])), load128(parts[3]), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  template <bool kAll>
  static MEMRA_HD Ints load_block_codes(const std::uint8_t* const* codes, int i,
                                        std::int64_t count) {
    const __m256i none = _mm256_setzero_si256();
    const __m256i low = kAll || 2 * i < count ? load256(codes[2 * i]) : none;
    const __m256i high = kAll || 2 * i + 1 < count ? load256(codes[2 * i + 1]) : none;
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  template <bool kAll>
  static MEMRA_HD ScaleBytes load_block_scales(const std::uint8_t* const* scales,
                                               std::int64_t count) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_words<kAll>(scales, count)),
                                   load_words<kAll>(scales + 4, count - 4), 1);
  }
  template <int kVector>
  static MEMRA_HD Ints load_tile_codes(const std::uint8_t* const* codes) {
    return load_ints(codes[kVector]);
  }
  static MEMRA_HD ScaleBytes load_tile_scales(const std::uint8_t* const* scales) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_unpacklo_epi64(load64(scales[0]), load64(scales[1]))),
        _mm_unpacklo_epi64(load64(scales[2]), load64(scales[3])), 1);
  }
  // Invalid codes, 0x7F and up, decode to 0.
  static MEMRA_HD ScaleBytes without_invalid(ScaleBytes scales) {
    return _mm256_maskz_mov_epi8(_mm256_cmplt_epu8_mask(scales, _mm256_set1_epi8(0x7F)), scales);
  }

  static MEMRA_HD void decode_scales(ScaleBytes scales, Floats (&scale)[2]) {
    // Words of groups in the order of the lanes: 4 * part + place is group 4 * place + part.
    const __m256i order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i words = _mm256_permutexvar_epi16(order, scales);
    // As f16, s * 2^-8: first half's byte is the low one.
    const __m256i mask = _mm256_set1_epi16(0x7F80);
    const __m256i first = _mm256_and_si256(_mm256_slli_epi16(words, 7), mask);
    const __m256i second = _mm256_and_si256(_mm256_srli_epi16(words, 1), mask);
    scale[0] = _mm512_cvtph_ps(first);
    scale[1] = _mm512_cvtph_ps(second);
  }

  static MEMRA_HD Ints sums(Ints start, Ints w0, Ints w1, Ints w2, Ints w3, const Ints* x) {
    start = _mm512_dpbusd_epi32(start, w0, x[0]);
    start = _mm512_dpbusd_epi32(start, w1, x[1]);
    start = _mm512_dpbusd_epi32(start, w2, x[2]);
    return _mm512_dpbusd_epi32(start, w3, x[3]);
  }
  // Where the sums start.
  static MEMRA_HD Ints bias(const Ints* x) {
    const Ints all = _mm512_set1_epi8(kCodeBias);
    return _mm512_sub_epi32(_mm512_set1_epi32(kSumOffsetBits),
                            sums(zero_ints(), all, all, all, all, x));
  }
  static MEMRA_HD Floats offset_sums(const Ints* w, const Ints* x, Ints bias) {
    return _mm512_castsi512_ps(sums(bias, w[0], w[1], w[2], w[3], x));
  }

  // Those of the first groups of a step from `a`, the others from `b`.
  static MEMRA_HD Floats choose_first(std::int64_t groups, Floats a, Floats b) {
    const Ints group = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __mmask16 first =
        _mm512_cmplt_epi32_mask(group, _mm512_set1_epi32(static_cast<int>(groups)));
    return _mm512_mask_blend_ps(first, b, a);
  }

  // The sums of lanes of four rows by rule 3's distances 8, 4, 2 and 1, halved.
  static MEMRA_HD void store_tree(const Floats* rows, float* dots) {
    const auto pair = [&](int i) {
      const __m512d a = _mm512_castps_pd(rows[i]), b = _mm512_castps_pd(rows[i + 1]);
      return add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                 _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    };
    const Floats rows01 = pair(0), rows23 = pair(2);
    const Floats parts = add(_mm512_shuffle_ps(rows01, rows23, 0b10'00'10'00),
                             _mm512_shuffle_ps(rows01, rows23, 0b11'01'11'01));
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(parts), _mm512_extractf32x8_ps(parts, 1));
    const __m128 four =
        _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
    _mm_storeu_ps(dots, _mm_mul_ps(four, _mm_set1_ps(0.5f)));
  }

  static MEMRA_HD void store_eight(Ints values, float* out) {
    _mm256_storeu_ps(out, _mm256_cvtepi32_ps(_mm512_castsi512_si256(values)));
  }
};

struct GroupedAvx512 {
  using Floats = __m512;
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kVectors = 2;
  static constexpr std::int64_t kTokens = 12;

  static MEMRA_HD Floats load(const float* p) { return _mm512_load_ps(p); }
  static MEMRA_HD void store(float* p, Floats a) { _mm512_store_ps(p, a); }
  static MEMRA_HD Floats all(float x) { return _mm512_set1_ps(x); }
  static MEMRA_HD Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  template <std::int64_t kPanel>
  static MEMRA_HD void decode(const std::uint8_t* codes, std::int64_t step, const float* scales,
                              float* panel) {
    decode_half<kPanel>(codes, step, scales, panel);
  }
  static MEMRA_HD void scales(const std::uint8_t* codes, std::int64_t step, float (&scales)[2][8]) {
    decode_scale_pairs(codes, step, scales);
  }
};

}  // namespace

constexpr RowsKernels kAvx512VnniKernels =
    make_kernels<Avx512Vnni>("avx512-vnni", "cpu_rows_v1_avx512_vnni", "cpu_rows_v2_avx512_vnni",
                             "cpu_rows_v2_lane_major_avx512_vnni", "cpu_rows_mixed_avx512_vnni",
                             make_grouped<GroupedAvx512>("cpu_grouped_avx512"));

}  // namespace memra::cpu
