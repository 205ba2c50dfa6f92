#include "conformance/grouped.h"

#include <map>
#include <utility>

#include "reference/exact.h"

namespace memra::test {

bool has_grouped(Engine& engine, std::string* reason) {
  memra_bank bank = MEMRA_BANK_INIT;
  bank.format = MEMRA_NVFP4;
  memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
  desc.hidden_size = desc.intermediate_size = 64;
  desc.n_experts = desc.top_k = desc.max_tokens = 1;
  desc.gate = desc.up = desc.down = &bank;
  memra_moe_layer* layer = nullptr;
  require(memra_moe_layer_create(engine.get(), &desc, &layer));
  std::uint64_t bytes = 0;
  const memra_status status = memra_moe_grouped_workspace_size(layer, 1, &bytes);
  *reason = memra_last_error();
  memra_moe_layer_destroy(layer);
  if (engine.is_cuda() && status == MEMRA_ERROR_UNSUPPORTED) return false;
  require(status);
  return true;
}

std::shared_ptr<const ExactSolved> solve_exact(reference::MoeProblem problem) {
  auto solved = std::make_shared<ExactSolved>();
  solved->y = reference::moe_exact(problem);
  solved->solved.problem = std::move(problem);
  return solved;
}

std::shared_ptr<const ExactSolved> solve_exact(const reference::ProblemSpec& spec) {
  static std::map<std::string, std::shared_ptr<const ExactSolved>> known;
  std::shared_ptr<const ExactSolved>& slot = known[describe(spec)];
  if (slot == nullptr) {
    reference::ProblemSpec v1 = spec;
    slot = solve_exact(reference::make_problem(v1.with_format(reference::Format::kV1)));
  }
  return slot;
}

::testing::AssertionResult is_informative(const ExactSolved& solved) {
  const std::vector<float> y(solved.y.begin(), solved.y.end());
  const reference::ValueCounts counts = reference::count_values(y);
  if (counts.informative()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << counts.text();
}

}  // namespace memra::test
