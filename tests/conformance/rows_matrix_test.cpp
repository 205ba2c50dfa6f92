// memra_moe_rows over {CPU, CUDA} x formats x variants x tokens x shapes, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/matrix.h"

namespace memra::test {
namespace {

using reference::ProblemSpec;

// ---- Tokens: every count with every format and variant, eagerly and as a graph ----

class RowsTokens : public BackendCaseTest<int> {};

TEST_P(RowsTokens, SameBits) {
  ProblemSpec spec;
  spec.hidden = 192;
  spec.intermediate = 128;
  spec.n_experts = 8;
  spec.tokens = param();
  spec.seed = 100 + static_cast<std::uint64_t>(param());
  Matrix matrix;
  matrix.modes = Modes::kBoth;
  matrix.placement = {Slabs::kStrided, 4};
  expect_same_bits(engine(), *solve(spec), matrix);
}

INSTANTIATE_TEST_SUITE_P(Backends, RowsTokens,
                         ::testing::Combine(both_backends(), ::testing::Values(1, 2, 3, 4, 5, 7, 8,
                                                                               9, 16, 17, 33, 64)),
                         case_namer(name_of_tokens));

// ---- Shapes: every one with every format and variant ----

struct Shape {
  std::int64_t hidden;
  std::int64_t intermediate;
  std::int64_t top_k = 2;
};

class RowsShapes : public BackendCaseTest<Shape> {};

TEST_P(RowsShapes, SameBits) {
  ProblemSpec spec;
  spec.hidden = param().hidden;
  spec.intermediate = param().intermediate;
  spec.n_experts = 3;
  spec.top_k = param().top_k;
  // Fewer tokens where the planes are large, so that the suite stays short on a CPU.
  const bool large = spec.hidden * spec.intermediate > 250000;
  spec.tokens = large ? 9 : 64;
  spec.seed = static_cast<std::uint64_t>(spec.hidden * 4096 + spec.intermediate);
  Matrix matrix;
  matrix.tokens = {1, 2, 3, 4, 5, 7, 8, 9};
  if (!large) matrix.tokens.insert(matrix.tokens.end(), {16, 17, 33, 64});
  expect_same_bits(engine(), *solve(spec), matrix);
  matrix.tokens = {1, 8};
  matrix.modes = Modes::kGraph;
  expect_same_bits(engine(), *solve(spec), matrix);
}

// Planes of 640, 1408 and 2880; rows below, at and above the tiles of 128 columns and the 8 and 32
// lanes that kernels split them over; half tiles at the end of short and of long rows; dimensions
// that are no multiple of any larger tile.
INSTANTIATE_TEST_SUITE_P(
    Backends, RowsShapes,
    ::testing::Combine(both_backends(),
                       ::testing::Values(Shape{64, 64}, Shape{64, 128}, Shape{128, 64},
                                         Shape{192, 192}, Shape{320, 704}, Shape{640, 64},
                                         Shape{64, 640}, Shape{960, 128}, Shape{1024, 64},
                                         Shape{64, 1024}, Shape{1088, 64}, Shape{1408, 64},
                                         Shape{64, 1408}, Shape{1856, 64}, Shape{2688, 64},
                                         Shape{64, 1856}, Shape{2880, 64}, Shape{64, 2880},
                                         Shape{640, 1408}, Shape{4096, 64}, Shape{64, 4096},
                                         Shape{4160, 64}, Shape{64, 4160}, Shape{8192, 64},
                                         Shape{7168, 64, 1}, Shape{64, 9216, 1})),
    case_namer([](const Shape& s) { return name_of_shape(s.hidden, s.intermediate); }));

// ---- A layer of real proportions, and the widest rows ----

class RowsLargeShapes : public BackendCaseTest<Shape> {};

TEST_P(RowsLargeShapes, SameBits) {
  ProblemSpec spec;
  spec.hidden = param().hidden;
  spec.intermediate = param().intermediate;
  spec.n_experts = param().top_k;
  spec.top_k = param().top_k;
  spec.tokens = 1;
  Matrix matrix;
  matrix.formats = {v1(), v2()};
  matrix.modes = Modes::kGraph;
  expect_same_bits(engine(), *solve(spec), matrix);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RowsLargeShapes,
    ::testing::Combine(both_backends(),
                       ::testing::Values(Shape{2688, 1856, 1}, Shape{2880, 2880, 1},
                                         Shape{131072, 64, 1}, Shape{64, 131072, 1})),
    case_namer([](const Shape& s) { return name_of_shape(s.hidden, s.intermediate); }));

}  // namespace
}  // namespace memra::test
