// Fixtures over {CPU, CUDA}. A CUDA case is skipped where there is no such device. After every test
// a small known operation must still give its known answer on the engine that the process shares,
// if it gave it before the first: a library that is wrong throughout fails where it is wrong.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "conformance/engine.h"

namespace memra::test {

class BackendTestBase {
 protected:
  // NULL, with the reason, where the test is to be skipped.
  Engine* take(memra_backend backend, std::string* reason);
  Engine& engine() const { return *engine_; }
  void expect_alive() const;

 private:
  Engine* engine_ = nullptr;
};

#define MEMRA_TAKE_ENGINE(backend)                                 \
  do {                                                             \
    std::string reason;                                            \
    if (take(backend, &reason) == nullptr) GTEST_SKIP() << reason; \
  } while (false)

// Parameter: the backend.
class BackendTest : public ::testing::TestWithParam<memra_backend>, protected BackendTestBase {
 protected:
  void SetUp() override { MEMRA_TAKE_ENGINE(GetParam()); }
  void TearDown() override { expect_alive(); }
};

// Parameters: the backend and a case of the suite.
template <typename Case>
class BackendCaseTest : public ::testing::TestWithParam<std::tuple<memra_backend, Case>>,
                        protected BackendTestBase {
 protected:
  void SetUp() override { MEMRA_TAKE_ENGINE(std::get<0>(this->GetParam())); }
  void TearDown() override { expect_alive(); }
  const Case& param() const { return std::get<1>(this->GetParam()); }
};

inline auto both_backends() {
  return ::testing::Values(memra_backend{MEMRA_BACKEND_CPU}, memra_backend{MEMRA_BACKEND_CUDA});
}

// Names "CPU" and "CUDA", or "CPU_case" where name_of(case) gives "case".
inline std::string name_of_backend(const ::testing::TestParamInfo<memra_backend>& info) {
  return backend_name(info.param);
}
std::string case_name(memra_backend backend, const std::string& name);
template <typename NameOf>
auto case_namer(NameOf name_of) {
  return [name_of](const auto& info) {
    return case_name(std::get<0>(info.param), name_of(std::get<1>(info.param)));
  };
}
// "t17", "640x64".
std::string name_of_tokens(std::int64_t tokens);
std::string name_of_shape(std::int64_t hidden, std::int64_t intermediate);

}  // namespace memra::test

#define MEMRA_ON_BOTH_BACKENDS(suite)                                       \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, ::memra::test::both_backends(), \
                           ::memra::test::name_of_backend)
