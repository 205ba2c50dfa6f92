// What the tests of the grouped path share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conformance/device_problem.h"
#include "conformance/fixture.h"

namespace memra::test {

// Whether the engine's backend has the grouped path, memra_moe_grouped_gemm included. This is the
// one place that lets a backend be without; routing and memra_moe_gather_f16 both have.
bool has_grouped(Engine& engine, std::string* reason);

// As BackendTest and BackendCaseTest; skipped where there is no grouped path.
template <typename Base>
class GroupedOnly : public Base {
 protected:
  void SetUp() override {
    Base::SetUp();
    if (this->IsSkipped()) return;
    std::string reason;
    if (!has_grouped(this->engine(), &reason)) GTEST_SKIP() << reason;
  }
};
using GroupedTest = GroupedOnly<BackendTest>;
template <typename Case>
using GroupedCaseTest = GroupedOnly<BackendCaseTest<Case>>;

inline Call grouped_call(std::int64_t first = 0, std::int64_t tokens = -1) {
  return {MEMRA_ROWS_AUTO, false, first, tokens, MEMRA_PATH_GROUPED};
}

// A problem in V1 and its outputs in f64, made once in a process.
struct ExactSolved {
  Solved solved;  // without the rows path's answer
  std::vector<double> y;

  const reference::MoeProblem& problem() const { return solved.problem; }
};
std::shared_ptr<const ExactSolved> solve_exact(const reference::ProblemSpec& spec);
std::shared_ptr<const ExactSolved> solve_exact(reference::MoeProblem problem);

// Most outputs are finite and neither zero nor alike.
::testing::AssertionResult is_informative(const ExactSolved& solved);

}  // namespace memra::test
