// The rows kernels for the vectors that every AArch64 processor has.

#include <arm_neon.h>

#include <cstdint>

#include "cpu/grouped_simd.h"
#include "cpu/rows_simd.h"

namespace memra::cpu {
namespace {

struct Neon {
  using Ints = int8x16_t;
  using Floats = float32x4_t;
  using ScaleBytes = uint8x8_t;
  static constexpr int kParts = 1;
  static constexpr int kRowsAtOnce = 2;

  static MEMRA_HD Ints zero_ints() { return vdupq_n_s8(0); }
  static MEMRA_HD Floats zero() { return vdupq_n_f32(0.0f); }
  static MEMRA_HD Floats all(float x) { return vdupq_n_f32(x); }
  static MEMRA_HD Floats load_floats(const float* p) { return vld1q_f32(p); }
  static MEMRA_HD Ints load_ints(const void* p) {
    return vld1q_s8(static_cast<const std::int8_t*>(p));
  }
  static MEMRA_HD Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
  static MEMRA_HD Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
  static MEMRA_HD Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static MEMRA_HD Ints exclusive_or(Ints a, Ints b) { return veorq_s8(a, b); }
  static MEMRA_HD Ints widened(ScaleBytes scales) {
    return vreinterpretq_s8_u8(vcombine_u8(scales, vdup_n_u8(0)));
  }
  static MEMRA_HD void keep(Ints a) { asm volatile("" : : "w"(a) : "memory"); }

  static MEMRA_HD int32x4_t words(Ints a) { return vreinterpretq_s32_s8(a); }
  static MEMRA_HD int64x2_t pairs(Ints a) { return vreinterpretq_s64_s8(a); }
  static MEMRA_HD Ints low_words(Ints a, Ints b) {
    return vreinterpretq_s8_s32(vzip1q_s32(words(a), words(b)));
  }
  static MEMRA_HD Ints high_words(Ints a, Ints b) {
    return vreinterpretq_s8_s32(vzip2q_s32(words(a), words(b)));
  }
  static MEMRA_HD Ints low_pairs(Ints a, Ints b) {
    return vreinterpretq_s8_s64(vzip1q_s64(pairs(a), pairs(b)));
  }
  static MEMRA_HD Ints high_pairs(Ints a, Ints b) {
    return vreinterpretq_s8_s64(vzip2q_s64(pairs(a), pairs(b)));
  }

  // Both factors are signed here: doubled values without a bias.
  static MEMRA_HD Ints values(uint8x16_t nibbles) {
    alignas(16) static constexpr std::int8_t kValues[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                            0, -1, -2, -3, -4, -6, -8, -12};
    return vqtbl1q_s8(vld1q_s8(kValues), nibbles);
  }
  static MEMRA_HD Ints low_nibble_values(Ints codes) {
    return values(vandq_u8(vreinterpretq_u8_s8(codes), vdupq_n_u8(15)));
  }
  static MEMRA_HD Ints high_nibble_values(Ints codes) {
    return values(vshrq_n_u8(vreinterpretq_u8_s8(codes), 4));
  }

  static MEMRA_HD Ints load_parts(const std::int8_t* const* parts) { return load_ints(parts[0]); }

  // Vector i of those blocks that exist.
  template <bool kAll>
  static MEMRA_HD Ints load_block_codes(const std::uint8_t* const* codes, int i,
                                        std::int64_t count) {
    return kAll || i / 2 < count ? load_ints(codes[i / 2] + i % 2 * nv::kGroupCodeBytes)
                                 : zero_ints();
  }
  template <bool kAll>
  static MEMRA_HD ScaleBytes load_block_scales(const std::uint8_t* const* scales,
                                               std::int64_t count) {
    std::uint32_t blocks[2] = {};
    __builtin_memcpy(&blocks[0], scales[0], sizeof blocks[0]);
    if (kAll || count > 1) __builtin_memcpy(&blocks[1], scales[1], sizeof blocks[1]);
    return vreinterpret_u8_u32(vld1_u32(blocks));
  }
  template <int kVector>
  static MEMRA_HD Ints load_tile_codes(const std::uint8_t* const* codes) {
    return load_ints(codes[0] + kVector * nv::kGroupCodeBytes);
  }
  static MEMRA_HD ScaleBytes load_tile_scales(const std::uint8_t* const* scales) {
    return vld1_u8(scales[0]);
  }
  // Invalid codes, 0x7F and up, decode to 0.
  static MEMRA_HD ScaleBytes without_invalid(ScaleBytes scales) {
    return vand_u8(scales, vclt_u8(scales, vdup_n_u8(0x7F)));
  }

  // As f16 (byte << 7) is s * 2^-8.
  static MEMRA_HD Floats decode_four(uint8x8_t bytes) {
    const uint16x4_t halves = vget_low_u16(vshll_n_u8(bytes, 7));
    return vcvt_f32_f16(vreinterpret_f16_u16(halves));
  }
  static MEMRA_HD void decode_scales(ScaleBytes scales, Floats (&scale)[2]) {
    scale[0] = decode_four(vuzp1_u8(scales, scales));
    scale[1] = decode_four(vuzp2_u8(scales, scales));
  }

  static MEMRA_HD Ints bias(const Ints*) {
    return vreinterpretq_s8_s32(vdupq_n_s32(kSumOffsetBits));
  }
  // Sums of four products of 12 * 127 fit into int16.
  static MEMRA_HD Floats offset_sums(const Ints* w, const Ints* x, Ints bias) {
    int16x8_t low = vmull_s8(vget_low_s8(w[0]), vget_low_s8(x[0]));
    int16x8_t high = vmull_high_s8(w[0], x[0]);
    for (int k = 1; k < 4; ++k) {
      low = vmlal_s8(low, vget_low_s8(w[k]), vget_low_s8(x[k]));
      high = vmlal_high_s8(high, w[k], x[k]);
    }
    return vreinterpretq_f32_s32(vpadalq_s16(words(bias), vpaddq_s16(low, high)));
  }

  // Those of the first groups of a step from `a`, the others from `b`.
  static MEMRA_HD Floats choose_first(std::int64_t groups, Floats a, Floats b) {
    alignas(16) static constexpr std::int32_t kGroup[4] = {0, 1, 2, 3};
    const uint32x4_t first =
        vcltq_s32(vld1q_s32(kGroup), vdupq_n_s32(static_cast<std::int32_t>(groups)));
    return vbslq_f32(first, a, b);
  }

  // The sums of lanes of four rows by rule 3's distances 2 and 1, halved.
  static MEMRA_HD void store_tree(const Floats* rows, float* dots) {
    const auto pair = [&](int i) {
      const float64x2_t a = vreinterpretq_f64_f32(rows[i]), b = vreinterpretq_f64_f32(rows[i + 1]);
      return add(vreinterpretq_f32_f64(vzip1q_f64(a, b)), vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    };
    vst1q_f32(dots, vmulq_n_f32(vpaddq_f32(pair(0), pair(2)), 0.5f));
  }

  static MEMRA_HD void store_eight(Ints values, float* out) {
    const Floats four = vcvtq_f32_s32(words(values));
    vst1q_f32(out, four);
    vst1q_f32(out + 4, four);
  }
};

struct GroupedNeon {
  using Floats = float32x4_t;
  static constexpr std::int64_t kLanes = 4;
  static constexpr std::int64_t kVectors = 2;
  static constexpr std::int64_t kTokens = 8;

  static MEMRA_HD Floats load(const float* p) { return vld1q_f32(p); }
  static MEMRA_HD void store(float* p, Floats a) { vst1q_f32(p, a); }
  static MEMRA_HD Floats all(float x) { return vdupq_n_f32(x); }
  static MEMRA_HD Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  template <std::int64_t kPanel>
  static MEMRA_HD void decode(const std::uint8_t* codes, std::int64_t step, const float* scales,
                              float* panel) {
    decode_half_plainly<kPanel>(codes, step, scales, panel);
  }
  static MEMRA_HD void scales(const std::uint8_t* codes, std::int64_t step, float (&scales)[2][8]) {
    scales_plainly(codes, step, scales);
  }
};

}  // namespace

constexpr RowsKernels kNeonKernels = make_kernels<Neon>(
    "neon", "cpu_rows_v1_neon", "cpu_rows_v2_neon", "cpu_rows_v2_lane_major_neon",
    "cpu_rows_mixed_neon", make_grouped<GroupedNeon>("cpu_grouped_neon"));

}  // namespace memra::cpu
