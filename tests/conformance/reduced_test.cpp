// A short selection for memory and race checkers: every kernel at least once, on tiny shapes, in
// buffers without guard bands, so that a checker sees their true ends. Select it with
// --gtest_filter='*Reduced*'.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "conformance/banks.h"
#include "conformance/fixture.h"
#include "conformance/grouped.h"
#include "conformance/stages.h"
#include "reference/weights.h"

namespace memra::test {
namespace {

using reference::DType;
using reference::Format;
using reference::ProblemSpec;

class Reduced : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (!IsSkipped()) engine().set_guards(Guards::kNone);
  }
  void TearDown() override {
    if (!IsSkipped()) engine().set_guards(Guards::kBands);
    BackendTest::TearDown();
  }

  static ProblemSpec tiny(std::int64_t hidden, std::int64_t intermediate, std::int64_t tokens) {
    ProblemSpec spec;
    spec.hidden = hidden;
    spec.intermediate = intermediate;
    spec.n_experts = 3;
    spec.tokens = tokens;
    return spec;
  }

  // Every variant of the layer, once.
  void run_layer(const ProblemSpec& spec, const Formats& formats, Placement placement = {}) {
    const auto solved = solve(spec);
    const DeviceProblem device(engine(), solved->in(formats), placement);
    for (const std::uint32_t variant : device.variants()) {
      device.run({variant});
      EXPECT_TRUE(device.check({variant}, solved->result)) << variant_name(variant);
    }
  }

  void expect_probes(const ProblemSpec& spec, const Formats& formats, std::uint32_t variant) {
    const auto solved = solve(spec);
    const DeviceProblem device(engine(), solved->in(formats));
    const DeviceStages stages(device, *solved);
    stages.feed_gate_up();
    stages.feed_down();
    const memra_rows_gate_up_args gate_up = stages.gate_up_args(variant);
    const memra_rows_down_args down = stages.down_args(variant);
    for (const memra_probe_arm arm :
         {MEMRA_PROBE_LOADONLY, MEMRA_PROBE_MATHONLY, MEMRA_PROBE_STREAM}) {
      memra_rows_probe_args args = MEMRA_ROWS_PROBE_ARGS_INIT;
      args.arm = arm;
      args.gate_up = &gate_up;
      EXPECT_TRUE(ok(memra_moe_rows_probe(engine().get(), &args, engine().stream()))) << arm;
      args.gate_up = nullptr;
      args.down = &down;
      EXPECT_TRUE(ok(memra_moe_rows_probe(engine().get(), &args, engine().stream()))) << arm;
    }
    engine().synchronize();
    EXPECT_TRUE(stages.inputs_intact());
    EXPECT_TRUE(device.inputs_intact());
  }
};

TEST_P(Reduced, LayerV1) {
  run_layer(tiny(192, 64, 3), v1(), {Slabs::kPacked, 4});
}

TEST_P(Reduced, LayerV2) {
  run_layer(tiny(192, 64, 3), v2());
}

TEST_P(Reduced, LayerV2HalfTiles) {
  run_layer(tiny(64, 192, 2), v2());
}

TEST_P(Reduced, LayerV2LongRows) {
  run_layer(tiny(1408, 64, 2), v2());
}

TEST_P(Reduced, LayerV2LongerRows) {
  run_layer(tiny(4160, 64, 1), v2());
}

TEST_P(Reduced, LayerMixed) {
  for (const Formats& formats : all_formats())
    run_layer(tiny(192, 128, 2), formats);
}

TEST_P(Reduced, LayerBiasAndOffset) {
  ProblemSpec spec = tiny(128, 64, 3);
  spec.bias = true;
  spec.local_offset = 1;
  run_layer(spec, v1(), {Slabs::kTables, 4});
  run_layer(spec, v2(), {Slabs::kTables, 0});
}

TEST_P(Reduced, LayerInvalidIds) {
  ProblemSpec spec = tiny(128, 64, 9);
  spec.ids = reference::IdPattern::kWithInvalid;
  run_layer(spec, v2());
}

TEST_P(Reduced, LayerTypesAndStrides) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    ProblemSpec spec = tiny(128, 64, 3);
    spec.x_dtype = spec.y_dtype = dtype;
    spec.x_padding = spec.y_padding = 8;
    spec.accumulate = true;
    run_layer(spec, v2());
  }
}

TEST_P(Reduced, LayerManySlots) {
  ProblemSpec spec = tiny(64, 64, 2);
  spec.n_experts = 20;
  spec.top_k = 20;
  run_layer(spec, v1());
  run_layer(spec, v2());
}

TEST_P(Reduced, LayerOneTokenAndMany) {
  for (const std::int64_t tokens : {1, 33}) {
    run_layer(tiny(128, 64, tokens), v1());
    run_layer(tiny(128, 64, tokens), v2());
  }
}

TEST_P(Reduced, Activations) {
  for (const auto kind :
       {reference::Activation::kSwigluPreclamp, reference::Activation::kSwigluPostclamp,
        reference::Activation::kSwigluOai}) {
    ProblemSpec spec = tiny(128, 64, 2);
    spec.activation = {kind, 0.75f, 1.702f};
    run_layer(spec, v1());
    run_layer(spec, v2());
  }
}

TEST_P(Reduced, Graph) {
  const auto solved = solve(tiny(1408, 64, 2));
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solved->in(formats));
    device.run_recorded({});
    EXPECT_TRUE(device.check({}, solved->result)) << formats.name;
  }
}

TEST_P(Reduced, CallsBackToBack) {
  const auto solved = solve(tiny(1408, 64, 2));
  for (const Formats& formats : {v1(), v2()}) {
    const DeviceProblem device(engine(), solved->in(formats));
    device.reset();
    for (int i = 0; i < 8; ++i)
      ASSERT_TRUE(ok(device.enqueue({MEMRA_ROWS_AUTO, i % 2 == 0}, engine().stream())));
    engine().synchronize();
    EXPECT_TRUE(same_bytes(solved->result.y, device.y())) << formats.name;
  }
}

TEST_P(Reduced, Stages) {
  const auto solved = solve(tiny(320, 128, 3));
  for (const Formats& formats : all_formats()) {
    const DeviceProblem device(engine(), solved->in(formats));
    const DeviceStages stages(device, *solved);
    for (const std::uint32_t variant : device.variants()) {
      stages.quantize_x();
      stages.gate_up(variant);
      stages.quantize_act();
      stages.down(variant);
      EXPECT_TRUE(stages.check_y()) << formats.name << ", " << variant_name(variant);
    }
  }
}

TEST_P(Reduced, Probes) {
  for (const std::int64_t hidden : {192, 1408}) {
    expect_probes(tiny(hidden, 128, 2), v1(), MEMRA_ROWS_ILP);
    expect_probes(tiny(hidden, 128, 2), v2(), MEMRA_ROWS_ILP);
    expect_probes(tiny(hidden, 128, 2), v2(), MEMRA_ROWS_LANE_MAJOR);
    expect_probes(tiny(hidden, 128, 2), v2(), MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_PACK);
  }
}

TEST_P(Reduced, Repack) {
  const std::int64_t slab = reference::slab_bytes(16, 320);
  const auto slabs = random_slabs(1, Format::kV1, 3, 16, 320, true);
  const Part part{8, 8, 64, 192};
  reference::InvalidScales found;
  const auto expected = convert_part(slabs, part, Format::kV2, &found);
  for (const bool in_place : {false, true}) {
    const Buffer src(engine(), bank_bytes(slabs, 0));
    const Buffer dst(engine(), 3 * reference::slab_bytes(8, 192));
    const Buffer workspace(engine(), slab);
    const Report report(engine());
    memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
    args.rows = 16;
    args.columns = 320;
    args.n_experts = 3;
    args.slice = part.slice();
    args.src = src.data();
    args.dst = in_place ? src.data() : dst.data();
    if (in_place) {
      args.workspace = workspace.data();
      args.workspace_bytes = static_cast<std::uint64_t>(slab);
    }
    args.report = report.get();
    ASSERT_TRUE(ok(memra_repack_v2(engine().get(), &args, engine().stream())));
    engine().synchronize();
    const Buffer& written = in_place ? src : dst;
    EXPECT_TRUE(same_bytes(bank_bytes(expected, 0), written.download(0, dst.bytes())));
    EXPECT_TRUE(report.check(found));
  }
}

TEST_P(Reduced, Import) {
  const auto slab = random_slabs(2, Format::kV1, 1, 16, 192, false)[0];
  const reference::Checkpoint checkpoint = reference::export_nvfp4(slab);
  const Input codes(engine(), checkpoint.codes);
  const Input scales(engine(), checkpoint.scales);
  for (const Format format : {Format::kV1, Format::kV2}) {
    const Buffer dst(engine(), reference::slab_bytes(16, 192));
    const Report report(engine());
    const float one = 1.0f;
    float expert_scale = 0.0f;
    memra_import_args args = MEMRA_IMPORT_ARGS_INIT;
    args.format = abi(format);
    args.rows = 16;
    args.columns = 192;
    args.n_experts = 1;
    args.codes = codes.data();
    args.scales = scales.data();
    args.global_scales = &one;
    args.global_scale = MEMRA_GLOBAL_SCALE_DIRECT;
    args.dst = dst.data();
    args.expert_scales = &expert_scale;
    args.report = report.get();
    ASSERT_TRUE(ok(memra_import_nvfp4(engine().get(), &args, engine().stream())));
    engine().synchronize();
    EXPECT_TRUE(same_bytes(reference::convert(slab, format).bytes, dst.download()));
    EXPECT_TRUE(report.check({}));
  }
}

TEST_P(Reduced, QuantizeAndDequantize) {
  reference::Random random(3);
  std::vector<float> values(16 * 192);
  for (float& value : values)
    value = random.normal();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Bytes raw = reference::narrow(values, dtype);
    const Input src(engine(), raw);
    const auto seen = reference::widen(raw, dtype, 16, 192, 192);
    for (const Format format : {Format::kV1, Format::kV2}) {
      const Buffer bank(engine(), reference::slab_bytes(16, 192));
      const Buffer scale(engine(), 4);
      const Buffer decoded(engine(), static_cast<std::int64_t>(raw.size()));
      const Report report(engine());
      memra_quantize_args quantize = MEMRA_QUANTIZE_ARGS_INIT;
      quantize.format = abi(format);
      quantize.rows = 16;
      quantize.columns = 192;
      quantize.n_experts = 1;
      quantize.src = src.data();
      quantize.src_dtype = abi(dtype);
      quantize.compute_expert_scale = 1;
      quantize.dst = bank.data();
      quantize.expert_scales = scale.as<float>();
      quantize.report = report.get();
      ASSERT_TRUE(ok(memra_quantize_nvfp4(engine().get(), &quantize, engine().stream())));
      memra_dequantize_args dequantize = MEMRA_DEQUANTIZE_ARGS_INIT;
      dequantize.format = abi(format);
      dequantize.rows = 16;
      dequantize.columns = 192;
      dequantize.n_experts = 1;
      dequantize.src = bank.data();
      dequantize.expert_scales = scale.as<float>();
      dequantize.dst = decoded.data();
      dequantize.dst_dtype = abi(dtype);
      ASSERT_TRUE(ok(memra_dequantize(engine().get(), &dequantize, engine().stream())));
      engine().synchronize();
      const float expert_scale = reference::choose_expert_scale(seen);
      const auto slab = reference::quantize_nvfp4(seen, 16, 192, expert_scale, format);
      EXPECT_TRUE(same_bytes(slab.bytes, bank.download()));
      EXPECT_TRUE(same_bytes(reference::narrow(reference::dequantize(slab, expert_scale), dtype),
                             decoded.download()));
      EXPECT_TRUE(report.check({}));
    }
  }
}

// Tiles that are full and not, in every format; skipped pairs, bias, slots.
TEST_P(Reduced, GroupedLayer) {
  std::string reason;
  if (!has_grouped(engine(), &reason)) GTEST_SKIP() << reason;
  // Of 256 columns rows in V1 are multiples of 16 bytes, which need not begin at one.
  const std::tuple<std::int64_t, std::int64_t, Placement> shapes[] = {
      {192, 128, {}}, {256, 256, {}}, {256, 256, {Slabs::kPointers, 4}}};
  for (const auto& [hidden, intermediate, placement] : shapes) {
    for (const std::int64_t tokens : {1, 3, 70}) {
      ProblemSpec spec = tiny(hidden, intermediate, tokens);
      spec.bias = true;
      spec.ids = reference::IdPattern::kDuplicates;
      spec.n_local = 2;
      const auto exact = solve_exact(spec);
      for (const Formats& formats : all_formats()) {
        const DeviceProblem device(engine(), exact->solved.in(formats), placement);
        device.run(grouped_call());
        EXPECT_TRUE(device.check_close(grouped_call(), exact->y)) << formats.name << ", " << tokens;
      }
    }
  }
}

MEMRA_ON_BOTH_BACKENDS(Reduced);

}  // namespace
}  // namespace memra::test
