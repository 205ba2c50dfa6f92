// The layer that the benchmarks time, on the CPU: it computes something, its stages chain to its
// output, and its roof is launched within the rules of the library.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>

#include "layer_calls.h"
#include "layer_stages.h"

namespace memra::bench {
namespace {

constexpr EngineChoice kCpu = {MEMRA_BACKEND_CPU, 0, 2};

Shape small_shape(int64_t tokens) {
  return {512, 320, 24, 6, tokens};
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

class Layer : public testing::TestWithParam<memra_activation> {
 protected:
  void make(int64_t tokens) {
    Activation activation;
    activation.kind = GetParam();
    fixture_ = std::make_unique<LayerFixture>(session_, small_shape(tokens), activation);
    calls_ = std::make_unique<LayerCalls>(*fixture_, tokens);
  }

  Session session_{kCpu};
  std::unique_ptr<LayerFixture> fixture_;
  std::unique_ptr<LayerCalls> calls_;
};

TEST_P(Layer, OutputsAreFiniteAndCallsDiffer) {
  make(3);
  EXPECT_NO_THROW(calls_->check_outputs());
  EXPECT_NE(calls_->output(0, {}), calls_->output(1, {}));
  const memra_rows_plan* plan = fixture_->plan(3);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->gate_up_kernel[0], '\0');
  EXPECT_EQ(fixture_->plan(4), nullptr);
}

TEST_P(Layer, FewOutputsSitOnAClamp) {
  make(4);
  const LayerStages stages(*calls_);
  const std::vector<float> clamped = stages.gate_up_output(with_clamp(fixture_->activation()));
  const std::vector<float> free = stages.gate_up_output(without_clamp(fixture_->activation()));
  ASSERT_EQ(clamped.size(), free.size());
  size_t saturated = 0;
  size_t large = 0;
  for (size_t i = 0; i < clamped.size(); ++i) {
    ASSERT_TRUE(std::isfinite(clamped[i]) && std::isfinite(free[i]));
    saturated += clamped[i] != free[i] ? 1U : 0U;
    large += std::abs(clamped[i]) > 0.01F ? 1U : 0U;
  }
  EXPECT_LT(10 * saturated, clamped.size());
  EXPECT_GT(2 * large, clamped.size());
}

TEST_P(Layer, StagesChainToItsOutput) {
  make(4);
  const LayerStages stages(*calls_);
  const Bf16Bits y = calls_->output(0, {});
  const std::vector<float> chained = stages.output();
  ASSERT_EQ(y.size(), chained.size());
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(y[i], to_bf16(chained[i])) << i;
}

TEST_P(Layer, EveryVariantAndFlagGivesTheSameBits) {
  make(2);
  const Bf16Bits y = calls_->output(1, {});
  EXPECT_EQ(calls_->output(1, {MEMRA_ROWS_AUTO, true}), y);
  ASSERT_GT(fixture_->properties().n_rows_variants, 0);
  for (int32_t i = 0; i < fixture_->properties().n_rows_variants; ++i) {
    const uint32_t variant = fixture_->properties().rows_variants[i];
    EXPECT_EQ(calls_->output(1, {variant, false}), y) << variant;
  }
}

TEST_P(Layer, RoofsAndStagesOfAllCallsAreAccepted) {
  make(5);
  const LayerRoof roof(*calls_);
  const LayerStages stages(*calls_);
  for (int64_t call = 0; call < calls_->count(); ++call) {
    for (const Stage stage : {Stage::kGateUp, Stage::kDown}) {
      for (const bool early : {false, true}) {
        EXPECT_NO_THROW(roof.launch(call, stage, early));
        EXPECT_NO_THROW(stages.launch(call, stage, {MEMRA_ROWS_AUTO, early}));
        EXPECT_NO_THROW(stages.launch(call, stage, {MEMRA_ROWS_DEDUP_ORDER, early}));
      }
    }
  }
  EXPECT_NO_THROW(session_.synchronize());
}

TEST(LayerOutputs, DegenerateOnesAreRefused) {
  const uint16_t one = 0x3F80;
  EXPECT_NO_THROW(require_sound({one, 0x8000, one, 0x0000}));
  EXPECT_THROW(require_sound({}), Failure);
  EXPECT_THROW(require_sound({one, 0x8000, 0x0000}), Failure);
  EXPECT_THROW(require_sound({one, one, 0x7FC0}), Failure);
  EXPECT_THROW(require_sound({one, one, 0xFF80}), Failure);
}

INSTANTIATE_TEST_SUITE_P(, Layer,
                         testing::Values(MEMRA_SWIGLU, MEMRA_SWIGLU_PRECLAMP,
                                         MEMRA_SWIGLU_POSTCLAMP, MEMRA_SWIGLU_OAI),
                         [](const auto& info) { return activation_name(info.param); });

}  // namespace
}  // namespace memra::bench
