// The sum over slots where the scale of a row of activations, a power of two, takes that of a slot
// out of f32's range, and what they give together is in it.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "emulation/guarded.h"
#include "emulation/support.h"
#include "grouped.h"
#include "grouped_activation.cuh"
#include "grouped_fragment.cuh"
#include "grouped_pairs.cuh"

namespace memra::emulation {
namespace {

struct Slot {
  int exponent;  // of its row
  float weight, scale;
  float output;
};

// y of one token, all of whose columns are alike.
float sum_of(const std::vector<Slot>& slots, bool biased) {
  constexpr int64_t kColumns = 64;
  const auto n = static_cast<int64_t>(slots.size());
  Guarded<int32_t> inverse(slots.size()), ids(slots.size());
  Guarded<int8_t> exponents(slots.size());
  Guarded<float> weights(slots.size()), scales(slots.size()), bias(kColumns), y(kColumns);
  Guarded<uint32_t> packed(slots.size() * kColumns / 2);
  for (int64_t column = 0; column < kColumns; ++column)
    bias[column] = 0.25f;
  std::vector<const float*> bias_rows(slots.size(), bias.data());
  for (int64_t i = 0; i < n; ++i) {
    const Slot& slot = slots[static_cast<size_t>(i)];
    inverse[i] = ids[i] = static_cast<int32_t>(i);
    exponents[i] = static_cast<int8_t>(slot.exponent);
    weights[i] = slot.weight;
    scales[i] = slot.scale;
    for (int64_t pair = 0; pair < kColumns / 2; ++pair)
      packed[i * kColumns / 2 + pair] = cuda::pack_outputs(slot.output, slot.output);
  }
  cuda::SumSlotsArgs args;
  args.tokens = 1;
  args.top_k = n;
  args.columns = kColumns;
  args.inverse = inverse.data();
  args.exponents = exponents.data();
  args.topk_ids = ids.data();
  args.topk_weights = weights.data();
  args.scales = scales.data();
  if (biased) args.bias = bias_rows.data();
  args.y = y.data();
  args.y_dtype = MEMRA_F32;
  args.y_stride = kColumns;
  EXPECT_EQ(cuda::sum_slots(device(true, 2), args, packed.data(), {}), MEMRA_OK);
  expect_no_faults("sum over slots");
  EXPECT_TRUE(y.intact());
  for (int64_t column = 1; column < kColumns; ++column)
    EXPECT_EQ(std::memcmp(&y[column], &y[0], sizeof(float)), 0);
  return y[0];
}

double exact(const std::vector<Slot>& slots, bool biased) {
  double sum = 0;
  for (const Slot& slot : slots) {
    const cuda::OutputPair kept =
        cuda::unpack_outputs(cuda::pack_outputs(slot.output, slot.output));
    sum += std::ldexp(double{kept.first} * slot.weight * slot.scale, slot.exponent) *
               cuda::kWeightUnit +
           (biased ? 0.25 * slot.weight : 0);
  }
  return sum;
}

TEST(EmulatedSum, ScalesThatLeaveTheRangeTogether) {
  // One slot as they mostly are beside one that is not.
  const Slot plain{-8, 0.5f, 1.5f, 0x1p-6f};
  const Slot cases[] = {
      {cuda::kMostExponent, 64.0f, 1.0f, 0x1p-100f},  // Inf, if multiplied first
      {cuda::kMostExponent, 1.0f, 3e30f, 0x1p-110f},
      {cuda::kLeastExponent, 0x1p-30f, 1.0f, 0x1p100f},  // 0, if multiplied first
      {cuda::kLeastExponent, 1.0f, -0x1p-40f, 0x1p110f},
  };
  for (const bool biased : {false, true}) {
    for (const Slot& odd : cases) {
      for (const auto& slots : {std::vector{odd}, std::vector{plain, odd, plain}}) {
        const double want = exact(slots, biased);
        EXPECT_NEAR(sum_of(slots, biased), want, std::fabs(want) * 1e-6) << "biased " << biased;
      }
    }
  }
}

TEST(EmulatedSum, RowsThatAreNotFiniteMakeTheTokenNan) {
  const Slot plain{-8, 0.5f, 1.5f, 0x1p-6f}, bad{cuda::kNotFinite, 0.5f, 1.5f, 0x1p-6f};
  EXPECT_TRUE(std::isnan(sum_of({plain, bad}, false)));
  EXPECT_FALSE(std::isnan(sum_of({plain, plain}, false)));
}

}  // namespace
}  // namespace memra::emulation
