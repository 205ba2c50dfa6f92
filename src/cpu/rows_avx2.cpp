// The rows kernels for AVX2, FMA and F16C.

#include "cpu/grouped_256.h"
#include "cpu/grouped_simd.h"
#include "cpu/rows_simd.h"
#include "cpu/simd_256.h"

namespace memra::cpu {
namespace {

// Sums are made in int16 while they fit: eight products of 24 * 127 do.
struct Avx2 : Simd256<Avx2> {
  static MEMRA_HD Ints sums(Ints w0, Ints w1, Ints w2, Ints w3, const Ints* x) {
    const Ints low =
        _mm256_add_epi16(_mm256_maddubs_epi16(w0, x[0]), _mm256_maddubs_epi16(w1, x[1]));
    const Ints high =
        _mm256_add_epi16(_mm256_maddubs_epi16(w2, x[2]), _mm256_maddubs_epi16(w3, x[3]));
    return _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
  }
  // What is added to the sums.
  static MEMRA_HD Ints bias(const Ints* x) {
    const Ints all = _mm256_set1_epi8(kCodeBias);
    return _mm256_sub_epi32(_mm256_set1_epi32(kSumOffsetBits), sums(all, all, all, all, x));
  }
  static MEMRA_HD Floats offset_sums(const Ints* w, const Ints* x, Ints bias) {
    return _mm256_castsi256_ps(_mm256_add_epi32(sums(w[0], w[1], w[2], w[3], x), bias));
  }
};

using GroupedAvx2 = Grouped256<Avx2>;

}  // namespace

constexpr RowsKernels kAvx2Kernels = make_kernels<Avx2>(
    "avx2", "cpu_rows_v1_avx2", "cpu_rows_v2_avx2", "cpu_rows_v2_lane_major_avx2",
    "cpu_rows_mixed_avx2", make_grouped<GroupedAvx2>("cpu_grouped_avx2"));

}  // namespace memra::cpu
