// Problems with the reference's answer, computed once in a process however many backends, formats
// and variants are held against it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "memra.h"
#include "reference/compare.h"
#include "reference/generate.h"
#include "reference/moe.h"

namespace memra::test {

// What the tests run with: each a format per plane.
struct Formats {
  reference::Format gate;
  reference::Format up;
  reference::Format down;
  const char* name;
};
// V1, V2, and three mixtures.
const std::vector<Formats>& all_formats();
const Formats& v1();
const Formats& v2();

struct Solved {
  std::string name;
  reference::MoeProblem problem;  // in V1
  reference::MoeResult result;

  // The same problem in other formats, converted when first asked for.
  const reference::MoeProblem& in(const Formats& formats) const;

 private:
  mutable std::vector<std::unique_ptr<reference::MoeProblem>> converted_;
};

// The spec's formats are ignored. Asserts nothing of the values; see is_informative.
std::shared_ptr<const Solved> solve(const reference::ProblemSpec& spec);
// Not kept.
std::shared_ptr<const Solved> solve(const std::string& name, reference::MoeProblem problem);

// Most outputs are neither zero nor alike, no NaN, and few depend on the clamp alone: a comparison
// of bits is worth something.
::testing::AssertionResult is_informative(const Solved& solved);

std::string describe(const reference::ProblemSpec& spec);

memra_format abi(reference::Format format);
memra_dtype abi(reference::DType dtype);
memra_activation abi(reference::Activation activation);

}  // namespace memra::test
