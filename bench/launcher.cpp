#include "launcher.h"

namespace memra::bench {
namespace {

memra_probe_arm probe_arm(Kind kind) {
  switch (kind) {
    case Kind::kLoadOnly:
      return MEMRA_PROBE_LOADONLY;
    case Kind::kMathOnly:
      return MEMRA_PROBE_MATHONLY;
    default:
      return MEMRA_PROBE_STREAM;
  }
}

}  // namespace

uint32_t Launcher::flags(const Arm& arm) const {
  const bool stable = arm.is_stream() ? arm.kind == Kind::kStreamDependent : inputs_stable_;
  return stable ? uint32_t{MEMRA_FLAG_INPUTS_STABLE} : 0U;
}

const void* const* Launcher::ptrs(const Arm& arm, int64_t copy) const {
  if (arm.is_stream()) return data_.roof_ptrs(copy);
  return arm.format == MEMRA_NVFP4 ? data_.v1_ptrs(copy) : data_.v2_ptrs(copy);
}

void Launcher::probe(const Arm& arm, const memra_rows_gate_up_args* gate_up,
                     const memra_rows_down_args* down) const {
  memra_rows_probe_args args = MEMRA_ROWS_PROBE_ARGS_INIT;
  args.arm = probe_arm(arm.kind);
  args.gate_up = gate_up;
  args.down = down;
  check(memra_moe_rows_probe(session_.engine(), &args, session_.stream()), "memra_moe_rows_probe");
}

void Launcher::launch(const Arm& arm, int64_t copy, const Activation& activation) const {
  const Shape& shape = arm.is_stream() ? data_.roof() : data_.shape();
  if (arm.stage == Stage::kGateUp) {
    memra_rows_gate_up_args args = MEMRA_ROWS_GATE_UP_ARGS_INIT;
    args.flags = flags(arm);
    args.tokens = shape.tokens;
    args.top_k = shape.top_k;
    args.hidden_size = shape.hidden_size;
    args.intermediate_size = shape.intermediate_size;
    args.gate_format = arm.format;
    args.up_format = arm.format;
    args.activation = activation.kind;
    args.limit = activation.limit;
    args.alpha = activation.alpha;
    args.variant = arm.variant;
    args.ptrs = ptrs(arm, copy);
    args.scales = data_.scales(copy);
    args.q = data_.input().values(arm.variant);
    args.d = data_.input().scales();
    args.out = data_.gate_up_out().as<float>();
    if (!arm.has_output()) return probe(arm, &args, nullptr);
    check(memra_moe_rows_gate_up(session_.engine(), &args, session_.stream()),
          "memra_moe_rows_gate_up");
  } else {
    memra_rows_down_args args = MEMRA_ROWS_DOWN_ARGS_INIT;
    args.flags = flags(arm);
    args.tokens = shape.tokens;
    args.top_k = shape.top_k;
    args.intermediate_size = shape.intermediate_size;
    args.hidden_size = shape.hidden_size;
    args.format = arm.format;
    args.y_dtype = MEMRA_F32;
    args.variant = arm.variant;
    args.ptrs = ptrs(arm, copy);
    args.scales = data_.scales(copy);
    args.q = data_.down_input().values(arm.variant);
    args.d = data_.down_input().scales();
    args.y = data_.y().as();
    if (!arm.has_output()) return probe(arm, nullptr, &args);
    check(memra_moe_rows_down(session_.engine(), &args, session_.stream()), "memra_moe_rows_down");
  }
}

}  // namespace memra::bench
