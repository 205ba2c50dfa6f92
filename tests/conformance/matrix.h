// The body of the conformance suite: one problem, in every format, in every variant that the layer
// lists, eagerly and recorded, held bit for bit against the reference.
#pragma once

#include <memory>
#include <vector>

#include "conformance/device_problem.h"
#include "conformance/problems.h"

namespace memra::test {

enum class Modes { kEager, kGraph, kBoth };

struct Matrix {
  std::vector<Formats> formats = all_formats();
  std::vector<std::int64_t> tokens;  // of each call; empty: all of the problem
  Modes modes = Modes::kEager;
  Placement placement;
  bool inputs_stable = false;
  bool informative = true;  // whether the reference's outputs must be
};

void expect_same_bits(Engine& engine, const Solved& solved, const Matrix& matrix = {});

}  // namespace memra::test
