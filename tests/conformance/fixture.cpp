#include "conformance/fixture.h"

#include <sstream>

#include "conformance/device_problem.h"

namespace memra::test {

namespace {

::testing::AssertionResult known_operation(Engine& engine) {
  const auto known = solve(reference::ProblemSpec{});
  if (const auto result = is_informative(*known); !result) return result;
  const DeviceProblem problem(engine, known->problem);
  problem.run({});
  return problem.check({}, known->result);
}

}  // namespace

Engine* BackendTestBase::take(memra_backend backend, std::string* reason) {
  engine_ = shared_engine(backend, reason);
  if (engine_ != nullptr && engine_->health() == Health::kUnknown) {
    engine_->set_health(known_operation(*engine_) ? Health::kGood : Health::kBad);
  }
  return engine_;
}

void BackendTestBase::expect_alive() const {
  if (engine_ == nullptr || engine_->health() != Health::kGood) return;
  EXPECT_TRUE(known_operation(*engine_)) << "after the test";
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
