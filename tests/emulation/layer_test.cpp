// The grouped path as a whole by the emulated kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "emulation/layer.h"
#include "emulation/machine.h"
#include "emulation/support.h"
#include "reference/generate.h"

namespace memra::emulation {
namespace {

namespace ref = memra::reference;

std::string text(const ref::ProblemSpec& spec, bool wgmma) {
  return describe(wgmma, {{"hidden", spec.hidden},
                          {"intermediate", spec.intermediate},
                          {"experts", spec.n_experts},
                          {"top_k", spec.top_k},
                          {"tokens", spec.tokens},
                          {"offset", spec.local_offset},
                          {"local", spec.n_local},
                          {"gate format", static_cast<int64_t>(spec.gate_format)},
                          {"up format", static_cast<int64_t>(spec.up_format)},
                          {"down format", static_cast<int64_t>(spec.down_format)},
                          {"bias", spec.bias},
                          {"activation", static_cast<int64_t>(spec.activation.kind)},
                          {"ids", static_cast<int64_t>(spec.ids)},
                          {"x type", static_cast<int64_t>(spec.x_dtype)},
                          {"y type", static_cast<int64_t>(spec.y_dtype)},
                          {"accumulate", spec.accumulate},
                          {"seed", static_cast<int64_t>(spec.seed)}});
}

// Everything but the shape.
void choose_features(ref::ProblemSpec& spec, ref::Random& random) {
  const auto format = [&] { return random.below(2) == 0 ? ref::Format::kV1 : ref::Format::kV2; };
  const auto dtype = [&] { return static_cast<ref::DType>(random.below(3)); };
  spec.gate_format = format();
  spec.up_format = random.below(2) == 0 ? spec.gate_format : format();
  spec.down_format = format();
  spec.bias = random.below(2) == 0;
  spec.activation.kind = static_cast<ref::Activation>(random.below(4));
  if (random.below(2) == 0) spec.activation.limit = 0.7f;
  if (random.below(4) == 0) spec.pre_activation = random.below(2) == 0 ? 3.0f : 0.01f;
  spec.ids = static_cast<ref::IdPattern>(random.below(4));
  for (int64_t i = random.below(3) == 0 ? 3 : 0; i > 0; --i)
    spec.special_rows.push_back(
        {random.below(spec.tokens), static_cast<ref::RowKind>(random.below(9))});
  spec.x_dtype = dtype();
  spec.y_dtype = random.below(2) == 0 ? ref::DType::kF32 : dtype();
  spec.x_padding = 8 * random.below(2);
  spec.y_padding = 8 * random.below(2);
  spec.accumulate = random.below(3) == 0;
}

ref::ProblemSpec random_spec(ref::Random& random, uint64_t seed) {
  constexpr int64_t kDimensions[] = {64, 128, 192, 256, 320};
  ref::ProblemSpec spec;
  spec.seed = seed;
  spec.hidden = one_of(random, kDimensions);
  spec.intermediate = one_of(random, kDimensions);
  if (random.below(3) == 0) {  // many rows to an expert
    spec.n_experts = 1 + random.below(2);
    spec.top_k = 1;
    spec.tokens = 20 + random.below(160);
  } else {
    spec.n_experts = 1 + random.below(9);
    spec.top_k = 1 + random.below(std::min<int64_t>(4, spec.n_experts));
    spec.tokens = 1 + random.below(random.below(2) == 0 ? 60 : 12);
  }
  if (spec.n_experts > 2 && random.below(3) == 0) {  // a rank's part of the experts
    spec.local_offset = random.below(spec.n_experts - 1);
    spec.n_local = 1 + random.below(spec.n_experts - spec.local_offset);
  }
  choose_features(spec, random);
  return spec;
}

void run_and_expect_right(const ref::MoeProblem& problem, bool wgmma, const std::string& name,
                          ref::Random& random) {
  Layer layer(problem, wgmma, name);
  const bool staged = random.below(3) == 0;
  const std::vector<uint8_t> y = layer.run(static_cast<int>(1 + random.below(4)), staged);
  layer.expect_right(y);
  if (random.below(3) != 0) return;
  const int multiprocessors = static_cast<int>(1 + random.below(4));
  EXPECT_EQ(layer.run(multiprocessors, !staged), y) << "a second run differs, " << name;
}

void random_layers(bool wgmma, uint64_t seed, int rounds) {
  machine().seed(seed);
  ref::Random random(seed);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const ref::ProblemSpec spec = random_spec(random, seed * 100 + static_cast<uint64_t>(round));
    ref::MoeProblem problem = ref::make_problem(spec);
    if (random.below(4) == 0) {
      const auto expert = static_cast<size_t>(random.below(problem.n_local));
      problem.banks[static_cast<size_t>(random.below(3))].slabs[expert].bytes.clear();
    }
    run_and_expect_right(problem, wgmma, text(spec, wgmma), random);
  }
}

TEST(EmulatedLayer, WarpgroupMatrixInstructions) {
  random_layers(true, 51, 50);
}
TEST(EmulatedLayer, WarpMatrixInstructions) {
  random_layers(false, 52, 20);
}

// Parts of a row of activations get exponents of their own, which must meet again.
TEST(EmulatedLayer, ExponentsFarApart) {
  constexpr int64_t kIntermediates[] = {320, 640, 2112, 2240};
  constexpr uint8_t kCodes[] = {0, 0x01, 0x7E, 0x38, 0x08};
  machine().seed(53);
  ref::Random random(53);
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    ref::ProblemSpec spec;
    spec.hidden = 64;
    spec.intermediate = one_of(random, kIntermediates);
    spec.n_experts = 1 + random.below(3);
    spec.top_k = 1;
    spec.tokens = 1 + random.below(30);
    choose_features(spec, random);
    spec.x_dtype = ref::DType::kBF16;
    ref::MoeProblem problem = ref::make_problem(spec);
    for (const size_t plane : {ref::kGate, ref::kUp}) {
      for (ref::Slab& slab : problem.banks[plane].slabs) {
        for (int64_t row = 0; row < slab.rows; ++row) {
          const auto part = static_cast<uint64_t>(row / 64 + round);
          if (part % 8 >= 5) continue;
          for (int64_t column = 0; column < slab.cols; column += 16)
            ref::set_scale(slab, row, column, kCodes[part % 8]);
        }
      }
    }
    run_and_expect_right(problem, round % 4 != 3, text(spec, round % 4 != 3), random);
  }
}

// Tall planes, whose tiles follow one another over the same activations.
TEST(EmulatedLayer, TallPlanes) {
  constexpr int64_t kDimensions[] = {512, 640, 1088};
  machine().seed(54);
  ref::Random random(54);
  for (int round = 0; round < 4 && !HasFailure(); ++round) {
    ref::ProblemSpec spec;
    spec.hidden = one_of(random, kDimensions);
    spec.intermediate = one_of(random, kDimensions);
    spec.n_experts = 1 + random.below(3);
    spec.top_k = 1;
    spec.tokens = 1 + random.below(40);
    choose_features(spec, random);
    run_and_expect_right(ref::make_problem(spec), true, text(spec, true), random);
  }
}

// Many experts: routing in several launches, and most tiles of a few rows.
TEST(EmulatedLayer, ManyExperts) {
  machine().seed(55);
  ref::Random random(55);
  for (int round = 0; round < 3 && !HasFailure(); ++round) {
    ref::ProblemSpec spec;
    spec.hidden = spec.intermediate = 64;
    spec.n_experts = round == 0 ? 1100 : 300 + random.below(300);
    spec.top_k = round == 0 ? 64 : 8;
    spec.tokens = round == 0 ? 3 : 40;
    choose_features(spec, random);
    run_and_expect_right(ref::make_problem(spec), true, text(spec, true), random);
  }
}

TEST(EmulatedLayer, IdsOfNoExpert) {
  machine().seed(56);
  ref::Random random(56);
  for (const bool accumulate : {false, true}) {
    ref::ProblemSpec spec;
    spec.accumulate = accumulate;
    spec.tokens = 40;
    ref::MoeProblem problem = ref::make_problem(spec);
    for (size_t i = 0; i < problem.ids.size(); ++i)
      problem.ids[i] = i % 3 == 0 ? -1 : static_cast<int32_t>(spec.n_experts + 5);
    run_and_expect_right(problem, true, text(spec, true), random);
  }
}

}  // namespace
}  // namespace memra::emulation
