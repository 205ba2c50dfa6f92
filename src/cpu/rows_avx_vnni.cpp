// The rows kernels for AVX-VNNI, that is 256 bits and no AVX-512, with FMA and F16C. Compiled for
// AVX-512's VNNI instead they are the same but for the encoding of one instruction: so tests can
// run them elsewhere.

#include "cpu/grouped_256.h"
#include "cpu/grouped_simd.h"
#include "cpu/rows_simd.h"
#include "cpu/simd_256.h"

namespace memra::cpu {
namespace {

struct AvxVnni : Simd256<AvxVnni> {
  static MEMRA_HD Ints add_products(Ints sum, Ints w, Ints x) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, w, x);
#else
    return _mm256_dpbusd_epi32(sum, w, x);
#endif
  }
  static MEMRA_HD Ints sums(Ints start, Ints w0, Ints w1, Ints w2, Ints w3, const Ints* x) {
    return add_products(
        add_products(add_products(add_products(start, w0, x[0]), w1, x[1]), w2, x[2]), w3, x[3]);
  }
  // Where the sums start.
  static MEMRA_HD Ints bias(const Ints* x) {
    const Ints all = _mm256_set1_epi8(kCodeBias);
    return _mm256_sub_epi32(_mm256_set1_epi32(kSumOffsetBits),
                            sums(zero_ints(), all, all, all, all, x));
  }
  static MEMRA_HD Floats offset_sums(const Ints* w, const Ints* x, Ints bias) {
    return _mm256_castsi256_ps(sums(bias, w[0], w[1], w[2], w[3], x));
  }
};

using GroupedAvxVnni = Grouped256<AvxVnni>;

}  // namespace

#if !defined(MEMRA_CPU_AVX_VNNI_NAME)
#define MEMRA_CPU_AVX_VNNI_NAME kAvxVnniKernels
#endif
extern const RowsKernels MEMRA_CPU_AVX_VNNI_NAME;
constexpr RowsKernels MEMRA_CPU_AVX_VNNI_NAME = make_kernels<AvxVnni>(
    "avx-vnni", "cpu_rows_v1_avx_vnni", "cpu_rows_v2_avx_vnni", "cpu_rows_v2_lane_major_avx_vnni",
    "cpu_rows_mixed_avx_vnni", make_grouped<GroupedAvxVnni>("cpu_grouped_avx_vnni"));

}  // namespace memra::cpu
