#include "conformance/matrix.h"

#include <gtest/gtest.h>

namespace memra::test {
namespace {

// A fault in one kernel shows in many variants; the first reports are enough.
constexpr int kMaxReports = 8;

class Comparison {
 public:
  Comparison(const Solved& solved, const Matrix& matrix) : solved_(solved), matrix_(matrix) {}

  void run(Engine& engine) {
    for (const Formats& formats : matrix_.formats) {
      const DeviceProblem device(engine, solved_.in(formats), matrix_.placement);
      for (const std::uint32_t variant : device.variants()) {
        for (const std::int64_t tokens : tokens_of_calls())
          run_call(device, formats, {variant, matrix_.inputs_stable, 0, tokens});
      }
      EXPECT_TRUE(device.inputs_intact()) << solved_.name << ", " << formats.name;
      if (reports_ >= kMaxReports) return;
    }
  }

 private:
  std::vector<std::int64_t> tokens_of_calls() const {
    if (!matrix_.tokens.empty()) return matrix_.tokens;
    return {solved_.problem.tokens};
  }

  void run_call(const DeviceProblem& device, const Formats& formats, const Call& call) {
    if (matrix_.modes != Modes::kGraph) {
      device.run(call);
      report(device, formats, call, "eager");
    }
    if (matrix_.modes != Modes::kEager) {
      device.run_recorded(call);
      report(device, formats, call, "graph");
    }
  }

  void report(const DeviceProblem& device, const Formats& formats, const Call& call,
              const char* mode) {
    if (reports_ >= kMaxReports) return;
    const ::testing::AssertionResult result = device.check(call, solved_.result);
    if (!result) ++reports_;
    EXPECT_TRUE(result) << solved_.name << ", " << formats.name << ", "
                        << variant_name(call.variant) << ", " << call.tokens << " tokens, " << mode;
  }

  const Solved& solved_;
  const Matrix& matrix_;
  int reports_ = 0;
};

}  // namespace

void expect_same_bits(Engine& engine, const Solved& solved, const Matrix& matrix) {
  if (matrix.informative) {
    ASSERT_TRUE(is_informative(solved));
  }
  Comparison(solved, matrix).run(engine);
}

}  // namespace memra::test
