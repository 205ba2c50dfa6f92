// How kernels decode weights: every code under every scale, at every place of a word.
#include <gtest/gtest.h>

#include <cstdint>

#include "grouped_fragment.cuh"
#include "reference/floats.h"
#include "reference/formats.h"

namespace memra::cuda {
namespace {

namespace ref = memra::reference;

// The f16 that code `at` of the word becomes: low nibbles are the first step, high ones the second.
uint16_t decoded(uint32_t word, uint32_t scale, int at) {
  constexpr int kPositions[] = {0, 2, 1, 3};  // of bytes
  const int position = kPositions[at / 2];
  const DecodedStep step = at % 2 == 0 ? decode_step<0>(word, scale) : decode_step<1>(word, scale);
  return static_cast<uint16_t>(step.pairs[position / 2] >> (position % 2 * 16));
}

template <bool kChecked>
void expect_exact(uint32_t scale_code) {
  for (uint32_t byte = 0; byte < 4; ++byte) {
    const uint32_t scales = (0x3C7F80FFu & ~(0xFFu << (8 * byte))) | scale_code << (8 * byte);
    const uint32_t scale = decode_scales<kChecked>(byte_permute(scales, 0, byte * 0x11u | 0x4400u));
    for (uint32_t code = 0; code < 16; ++code) {
      const double want = static_cast<double>(ref::e2m1_value(static_cast<uint8_t>(code))) *
                          ref::ue4m3_value(static_cast<uint8_t>(scale_code)) / kWeightUnit;
      for (int at = 0; at < 8; ++at) {
        for (const uint32_t others : {0u, 5u, 10u, 15u}) {
          const uint32_t rest = others * 0x11111111u & ~(0xFu << (4 * at));
          const uint32_t word = rest | code << (4 * at);
          ASSERT_EQ(ref::f16_to_f32(decoded(word, scale, at)), want)
              << "code " << code << " at " << at << ", scale " << scale_code;
        }
      }
    }
  }
}

TEST(EmulatedFragments, EveryCodeUnderEveryScaleIsExact) {
  for (uint32_t scale = 0; scale < 256; ++scale)
    expect_exact<true>(scale);
}

TEST(EmulatedFragments, LegalScalesNeedNoCheck) {
  for (uint32_t scale = 0; scale <= 0x7E; ++scale)
    expect_exact<false>(scale);
}

}  // namespace
}  // namespace memra::cuda
