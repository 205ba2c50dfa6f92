// What a layer can be asked for, each in every format and variant: activations, types, strides,
// routing, placement of the slabs, tables, bias, accumulation.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/fixture.h"
#include "conformance/matrix.h"

namespace memra::test {
namespace {

using reference::Activation;
using reference::DType;
using reference::IdPattern;
using reference::MoeProblem;
using reference::ProblemSpec;
using reference::RowKind;

struct Feature {
  std::string name;
  ProblemSpec spec;
  Placement placement = {};
  std::function<void(MoeProblem&)> edit = {};
  bool informative = true;
  bool inputs_stable = false;
};

// 9 tokens of [320 -> 192], so that both planes end in half a tile.
ProblemSpec base() {
  ProblemSpec spec;
  spec.hidden = 320;
  spec.intermediate = 192;
  spec.n_experts = 6;
  spec.tokens = 9;
  return spec;
}

template <typename Change>
ProblemSpec with(Change change) {
  ProblemSpec spec = base();
  change(spec);
  return spec;
}

void add_activations(std::vector<Feature>& list) {
  const auto add = [&](const char* name, Activation kind, float limit, float alpha) {
    list.push_back({name, with([&](ProblemSpec& s) { s.activation = {kind, limit, alpha}; })});
  };
  add("swiglu", Activation::kSwiglu, 0.0f, 0.0f);
  add("preclamp", Activation::kSwigluPreclamp, 7.0f, 0.0f);
  add("preclamp_tight", Activation::kSwigluPreclamp, 0.75f, 0.0f);
  add("postclamp", Activation::kSwigluPostclamp, 7.0f, 0.0f);
  add("postclamp_tight", Activation::kSwigluPostclamp, 0.5f, 0.0f);
  add("oai", Activation::kSwigluOai, 7.0f, 1.702f);
  add("oai_tight", Activation::kSwigluOai, 0.75f, 0.5f);
}

void add_types(std::vector<Feature>& list) {
  const std::pair<DType, const char*> types[] = {
      {DType::kF32, "f32"}, {DType::kF16, "f16"}, {DType::kBF16, "bf16"}};
  for (const auto& [x, x_name] : types) {
    for (const auto& [y, y_name] : types) {
      ProblemSpec spec = base();
      spec.x_dtype = x;
      spec.y_dtype = y;
      std::string name = x_name;
      name.append("_").append(y_name);
      list.push_back({name, spec});
      spec.x_padding = 8;
      spec.y_padding = 24;
      list.push_back({name + "_strided", spec});
      spec.accumulate = true;
      list.push_back({name + "_accumulate", spec});
    }
  }
}

void add_routing(std::vector<Feature>& list) {
  const auto add = [&](const char* name, auto change) { list.push_back({name, with(change)}); };
  add("one_expert", [](ProblemSpec& s) { s.ids = IdPattern::kOneExpert; });
  add("invalid_ids", [](ProblemSpec& s) { s.ids = IdPattern::kWithInvalid; });
  add("invalid_ids_accumulate", [](ProblemSpec& s) {
    s.ids = IdPattern::kWithInvalid;
    s.accumulate = true;
  });
  add("duplicates", [](ProblemSpec& s) {
    s.ids = IdPattern::kDuplicates;
    s.top_k = 5;
  });
  add("top_k_1", [](ProblemSpec& s) { s.top_k = 1; });
  add("top_k_6_of_6", [](ProblemSpec& s) { s.top_k = 6; });
  add("top_k_64", [](ProblemSpec& s) {
    s.top_k = 64;
    s.hidden = 128;
    s.intermediate = 64;
  });
  add("top_k_17_of_40", [](ProblemSpec& s) {
    s.n_experts = 40;
    s.top_k = 17;
    s.hidden = 128;
  });
  add("one_of_one", [](ProblemSpec& s) {
    s.n_experts = 1;
    s.top_k = 1;
  });
  add("experts_256", [](ProblemSpec& s) {
    s.n_experts = 256;
    s.top_k = 8;
    s.hidden = 128;
    s.intermediate = 64;
  });
  add("local_4_to_8", [](ProblemSpec& s) {
    s.n_experts = 8;
    s.top_k = 5;
    s.local_offset = 4;
    s.n_local = 4;
  });
  add("local_last_with_bias", [](ProblemSpec& s) {
    s.n_experts = 8;
    s.top_k = 7;
    s.local_offset = 5;
    s.n_local = 2;
    s.bias = true;
  });
}

void add_weights(std::vector<Feature>& list) {
  const auto all_codes = [](ProblemSpec& s) { s.scales = reference::ScaleCodes::kAll; };
  const auto with_bias = [](ProblemSpec& s) { s.bias = true; };
  list.push_back({"all_scale_codes", with(all_codes)});
  list.push_back({"bias", with(with_bias)});
  list.push_back({"bias_accumulate_bf16", with([](ProblemSpec& s) {
                    s.bias = true;
                    s.accumulate = true;
                    s.y_dtype = DType::kBF16;
                  })});
  const auto only_bias_of = [](std::size_t kept) {
    return [kept](MoeProblem& problem) {
      for (std::size_t plane = 0; plane < 3; ++plane) {
        if (plane != kept) problem.banks[plane].bias.clear();
      }
    };
  };
  list.push_back({"bias_of_gate", with(with_bias), {}, only_bias_of(reference::kGate)});
  list.push_back({"bias_of_up", with(with_bias), {}, only_bias_of(reference::kUp)});
  list.push_back({"bias_of_down", with(with_bias), {}, only_bias_of(reference::kDown)});
  list.push_back({"router_weights", base(), {}, [](MoeProblem& problem) {
                    const float values[] = {0.0f, -1.0f, 2.5f};
                    for (std::size_t p = 0; p < problem.weights.size(); ++p)
                      problem.weights[p] = values[p % 3];
                  }});
  list.push_back({"expert_scales", base(), {}, [](MoeProblem& problem) {
                    for (reference::Bank& bank : problem.banks) {
                      bank.scales[1] *= -1.0f;
                      bank.scales[2] *= 1e-3f;
                      bank.scales[3] = 0.0f;
                    }
                  }});
}

void add_placements(std::vector<Feature>& list) {
  const auto without_some = [](MoeProblem& problem) {
    for (std::size_t plane = 0; plane < 3; ++plane)
      problem.banks[plane].slabs[plane + 1].bytes.clear();
  };
  list.push_back({"packed_plus_8", base(), {Slabs::kPacked, 8}});
  list.push_back({"strided_plus_12", base(), {Slabs::kStrided, 12}});
  list.push_back({"pointers", base(), {Slabs::kPointers, 4}});
  list.push_back({"pointers_some_null", base(), {Slabs::kPointers, 0}, without_some});
  list.push_back({"tables", base(), {Slabs::kTables, 12}});
  list.push_back({"tables_some_null", base(), {Slabs::kTables, 4}, without_some});
  list.push_back({"tables_bias_offset",
                  with([](ProblemSpec& s) {
                    s.bias = true;
                    s.local_offset = 2;
                  }),
                  {Slabs::kTables, 0}});
  list.push_back({"inputs_stable", base(), {}, {}, true, true});
  list.push_back({"inputs_stable_tables",
                  with([](ProblemSpec& s) { s.hidden = 1408; }),
                  {Slabs::kTables, 4},
                  {},
                  true,
                  true});
}

void add_special_rows(std::vector<Feature>& list) {
  const std::pair<RowKind, const char*> kinds[] = {
      {RowKind::kZero, "zero"},         {RowKind::kOneNan, "nan"},
      {RowKind::kOneInf, "inf"},        {RowKind::kTiny41, "tiny_1e-41"},
      {RowKind::kTiny38, "tiny_1e-38"}, {RowKind::kTinyMixed, "tiny_mixed"},
      {RowKind::kOneHuge, "one_huge"},  {RowKind::kBlockOf6000, "block_of_6000"}};
  for (const auto& [kind, name] : kinds) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      ProblemSpec spec = base();
      spec.x_dtype = dtype;
      spec.y_dtype = dtype;
      spec.special_rows = {{0, kind}, {4, kind}, {8, kind}};
      std::string full = "row_";
      for (const char c : std::string(name))
        full += c == '-' ? '_' : c;
      full += dtype == DType::kF32 ? "_f32" : "_bf16";
      const bool finite = kind != RowKind::kOneNan && kind != RowKind::kOneInf;
      list.push_back({full, spec, {}, {}, finite});
    }
  }
}

std::vector<Feature> all_features() {
  std::vector<Feature> list;
  add_activations(list);
  add_types(list);
  add_routing(list);
  add_weights(list);
  add_placements(list);
  add_special_rows(list);
  return list;
}

const Feature& feature(int index) {
  static const std::vector<Feature> list = all_features();
  return list[static_cast<std::size_t>(index)];
}

class RowsFeatures : public BackendCaseTest<int> {};

TEST_P(RowsFeatures, SameBits) {
  const Feature& asked = feature(param());
  std::shared_ptr<const Solved> solved = solve(asked.spec);
  if (asked.edit) {
    MoeProblem problem = solved->problem;
    asked.edit(problem);
    solved = solve(asked.name, std::move(problem));
  }
  Matrix matrix;
  matrix.tokens = {1, 5, 9};
  matrix.placement = asked.placement;
  matrix.inputs_stable = asked.inputs_stable;
  matrix.informative = asked.informative;
  expect_same_bits(engine(), *solved, matrix);
  matrix.tokens = {9};
  matrix.formats = {v1(), v2()};
  matrix.modes = Modes::kGraph;
  expect_same_bits(engine(), *solved, matrix);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RowsFeatures,
    ::testing::Combine(both_backends(),
                       ::testing::Range(0, static_cast<int>(all_features().size()))),
    case_namer([](int index) { return feature(index).name; }));

}  // namespace
}  // namespace memra::test
