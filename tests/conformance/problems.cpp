#include "conformance/problems.h"

#include <map>
#include <sstream>
#include <utility>

namespace memra::test {

using reference::Activation;
using reference::DType;
using reference::Format;
using reference::MoeProblem;
using reference::ProblemSpec;

const std::vector<Formats>& all_formats() {
  static const std::vector<Formats> formats = {
      {Format::kV1, Format::kV1, Format::kV1, "V1"},
      {Format::kV2, Format::kV2, Format::kV2, "V2"},
      {Format::kV2, Format::kV1, Format::kV2, "V2/V1/V2"},
      {Format::kV1, Format::kV2, Format::kV1, "V1/V2/V1"},
      {Format::kV2, Format::kV2, Format::kV1, "V2/V2/V1"},
  };
  return formats;
}

const Formats& v1() {
  return all_formats()[0];
}
const Formats& v2() {
  return all_formats()[1];
}

const MoeProblem& Solved::in(const Formats& formats) const {
  const Format wanted[3] = {formats.gate, formats.up, formats.down};
  const auto matches = [&](const MoeProblem& candidate) {
    for (std::size_t plane = 0; plane < 3; ++plane) {
      if (candidate.banks[plane].format != wanted[plane]) return false;
    }
    return true;
  };
  if (matches(problem)) return problem;
  for (const auto& candidate : converted_) {
    if (matches(*candidate)) return *candidate;
  }
  auto made = std::make_unique<MoeProblem>(problem);
  for (std::size_t plane = 0; plane < 3; ++plane) {
    reference::Bank& bank = made->banks[plane];
    if (bank.format == wanted[plane]) continue;
    bank.format = wanted[plane];
    for (reference::Slab& slab : bank.slabs) {
      if (!slab.bytes.empty()) slab = reference::convert(slab, bank.format);
      slab.format = bank.format;
    }
  }
  converted_.push_back(std::move(made));
  return *converted_.back();
}

std::shared_ptr<const Solved> solve(const std::string& name, MoeProblem problem) {
  auto solved = std::make_shared<Solved>();
  solved->name = name;
  solved->result = reference::moe_rows(problem);
  solved->problem = std::move(problem);
  return solved;
}

std::shared_ptr<const Solved> solve(const ProblemSpec& spec) {
  static std::map<std::string, std::shared_ptr<const Solved>> cache;
  const std::string name = describe(spec);
  std::shared_ptr<const Solved>& slot = cache[name];
  if (slot == nullptr) {
    ProblemSpec plain = spec;
    plain.with_format(Format::kV1);
    slot = solve(name, reference::make_problem(plain));
  }
  return slot;
}

namespace {

// The rows of a matrix that `is_live` tells of.
template <typename IsLive>
std::vector<float> live_rows(const std::vector<float>& values, std::int64_t columns,
                             IsLive is_live) {
  std::vector<float> result;
  for (std::int64_t row = 0; row * columns < static_cast<std::int64_t>(values.size()); ++row) {
    if (!is_live(row)) continue;
    const auto begin = values.begin() + row * columns;
    result.insert(result.end(), begin, begin + columns);
  }
  return result;
}

}  // namespace

::testing::AssertionResult is_informative(const Solved& solved) {
  const MoeProblem& problem = solved.problem;
  const auto is_live = [&](std::int64_t pair) {
    return solved.result.pair_live[static_cast<std::size_t>(pair)] != 0;
  };
  const auto has_live = [&](std::int64_t token) {
    for (std::int64_t slot = 0; slot < problem.top_k; ++slot) {
      if (is_live(token * problem.top_k + slot)) return true;
    }
    return false;
  };
  const reference::ValueCounts act =
      reference::count_values(live_rows(solved.result.gate_up.act, problem.intermediate, is_live));
  const reference::ValueCounts y =
      reference::count_values(live_rows(solved.result.y_f32, problem.hidden, has_live));
  for (const auto& [counts, name] : {std::pair{y, "y"}, std::pair{act, "act"}}) {
    if (counts.nan == 0 && counts.inf == 0 && counts.informative()) continue;
    return ::testing::AssertionFailure()
           << solved.name << ": " << name << " is vacuous: " << counts.text();
  }
  const std::int64_t saturated = reference::count_saturated(problem, solved.result);
  if (10 * saturated > 7 * act.elements) {
    return ::testing::AssertionFailure() << solved.name << ": " << saturated << " of "
                                         << act.elements << " activations are saturated";
  }
  return ::testing::AssertionSuccess();
}

std::string describe(const ProblemSpec& spec) {
  std::ostringstream out;
  out << "hidden " << spec.hidden << " intermediate " << spec.intermediate << " experts "
      << spec.n_experts << " top_k " << spec.top_k << " tokens " << spec.tokens << " seed "
      << spec.seed;
  if (spec.n_local >= 0 || spec.local_offset != 0) {
    out << " local " << spec.local_offset << "+" << spec.n_local;
  }
  out << " scales " << static_cast<int>(spec.scales) << " activation "
      << static_cast<int>(spec.activation.kind) << " limit " << spec.activation.limit << " alpha "
      << spec.activation.alpha << " pre " << spec.pre_activation << " ids "
      << static_cast<int>(spec.ids) << " x " << static_cast<int>(spec.x_dtype) << "+"
      << spec.x_padding << " y " << static_cast<int>(spec.y_dtype) << "+" << spec.y_padding;
  if (spec.bias) out << " bias";
  if (spec.accumulate) out << " accumulate";
  for (const reference::SpecialRow& row : spec.special_rows)
    out << " row " << row.token << ": " << static_cast<int>(row.kind);
  return out.str();
}

memra_format abi(Format format) {
  return static_cast<memra_format>(format);
}

memra_dtype abi(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return MEMRA_F16;
    case DType::kBF16:
      return MEMRA_BF16;
    case DType::kF32:
      break;
  }
  return MEMRA_F32;
}

memra_activation abi(Activation activation) {
  switch (activation) {
    case Activation::kSwigluPreclamp:
      return MEMRA_SWIGLU_PRECLAMP;
    case Activation::kSwigluPostclamp:
      return MEMRA_SWIGLU_POSTCLAMP;
    case Activation::kSwigluOai:
      return MEMRA_SWIGLU_OAI;
    case Activation::kSwiglu:
      break;
  }
  return MEMRA_SWIGLU;
}

}  // namespace memra::test
