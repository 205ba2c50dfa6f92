#include "conformance/fixture.h"

#include <sstream>

#include "conformance/device_problem.h"

namespace memra::test {

Engine* BackendTestBase::take(memra_backend backend, std::string* reason) {
  engine_ = shared_engine(backend, reason);
  return engine_;
}

void BackendTestBase::expect_alive() const {
  if (engine_ == nullptr) return;
  const auto known = solve(reference::ProblemSpec{});
  ASSERT_TRUE(is_informative(*known));
  const DeviceProblem problem(*engine_, known->problem);
  problem.run({});
  EXPECT_TRUE(problem.check({}, known->result)) << "after the test";
}

std::string case_name(memra_backend backend, const std::string& name) {
  std::ostringstream out;
  out << backend_name(backend) << '_' << name;
  return out.str();
}

std::string name_of_tokens(std::int64_t tokens) {
  std::ostringstream out;
  out << 't' << tokens;
  return out.str();
}

std::string name_of_shape(std::int64_t hidden, std::int64_t intermediate) {
  std::ostringstream out;
  out << hidden << 'x' << intermediate;
  return out.str();
}

}  // namespace memra::test
