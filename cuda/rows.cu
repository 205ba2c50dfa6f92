// Dispatch of the rows path: from arguments to parameters, and from variants to kernels.

#include "rows.h"

#include "launch.h"
#include "rows_kernels.h"
#include "rows_params.cuh"

namespace memra::cuda {
namespace {

constexpr int kWarpsPacked = 4;
constexpr int kMaxDownWarps = 16;
constexpr int64_t kMaxBlocks = 1 << 30;

// The bits of a variant that choose a kernel among those that exist. Mixed formats have no ILP
// form, the accumulators of shared pairs leave no registers to load ahead into, and the probes'
// arms exist for what is timed: ILP and lane-major.
uint32_t gate_up_key(RowsArm arm, bool gate_v2, bool up_v2, uint32_t variant) {
  constexpr uint32_t kIlp = MEMRA_ROWS_ILP, kLane = MEMRA_ROWS_LANE_MAJOR;
  if (gate_v2 != up_v2) return variant & MEMRA_ROWS_DEDUP_ORDER;
  if (arm != RowsArm::kServed) return (variant & kLane) != 0 ? kLane : kIlp;
  const bool shared = (variant & MEMRA_ROWS_DEDUP_ORDER) != 0;
  return variant & (kLane | (shared ? uint32_t{MEMRA_ROWS_DEDUP_ORDER} : kIlp));
}

uint32_t down_key(RowsArm arm, uint32_t variant) {
  constexpr uint32_t kIlp = MEMRA_ROWS_ILP, kLane = MEMRA_ROWS_LANE_MAJOR;
  if (arm != RowsArm::kServed) return (variant & kLane) != 0 ? kLane : kIlp;
  return variant & (kIlp | kLane);
}

const GateUpKernel* find_gate_up(RowsArm arm, memra_format gate, memra_format up,
                                 uint32_t variant) {
  const uint32_t key = gate_up_key(arm, is_v2(gate), is_v2(up), variant);
  for (const GateUpKernel& k : gate_up_kernels()) {
    if (k.arm == arm && k.gate_v2 == is_v2(gate) && k.up_v2 == is_v2(up) && k.key == key) return &k;
  }
  return nullptr;
}

const DownKernel* find_down(RowsArm arm, memra_format format, uint32_t variant) {
  const uint32_t key = down_key(arm, variant);
  for (const DownKernel& k : down_kernels()) {
    if (k.arm == arm && k.v2 == is_v2(format) && k.key == key) return &k;
  }
  return nullptr;
}

Format format_of(memra_format format) {
  return is_v2(format) ? Format::kV2 : Format::kV1;
}

// Variants that the ring kernels serve: lane-major activations with V2, loads ahead with V1.
bool is_ring_variant(Format format, uint32_t variant) {
  constexpr uint32_t kOther = MEMRA_ROWS_PACK | MEMRA_ROWS_DEDUP_ORDER;
  const uint32_t kind = variant & (MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_ILP);
  return (variant & kOther) == 0 &&
         (format == Format::kV2 ? (kind & MEMRA_ROWS_LANE_MAJOR) != 0 : kind == MEMRA_ROWS_ILP);
}

bool gate_up_uses_ring(const Device& device, memra_format gate, memra_format up,
                       int64_t hidden_size, uint32_t variant) {
  return gate == up && is_ring_variant(format_of(gate), variant) &&
         gate_up_ring_fits(device, format_of(gate), hidden_size);
}

bool down_uses_ring(const Device& device, memra_format format, int64_t intermediate_size,
                    int64_t top_k, uint32_t variant) {
  return is_ring_variant(format_of(format), variant & ~uint32_t{MEMRA_ROWS_DEDUP_ORDER}) &&
         down_ring_fits(device, format_of(format), intermediate_size, top_k);
}

unsigned grid_blocks(int64_t wanted) {
  return static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
}

}  // namespace

Status rows_load(const Device& device) {
  for (const GateUpKernel& k : gate_up_kernels())
    MEMRA_TRY(load_kernel(k.kernel));
  for (const DownKernel& k : down_kernels())
    MEMRA_TRY(load_kernel(k.kernel));
  MEMRA_TRY(ring_load(device));
  return stream_load(device);
}

RowsChoice choose_rows(const Device& device, const RowsShape& shape, int64_t tokens) {
  const bool shared = tokens > 1;
  RowsChoice choice;
  choice.gate_up_variant =
      is_v2(shape.gate_format) && is_v2(shape.up_format) ? MEMRA_ROWS_LANE_MAJOR : MEMRA_ROWS_ILP;
  if (!gate_up_uses_ring(device, shape.gate_format, shape.up_format, shape.hidden_size,
                         choice.gate_up_variant)) {
    choice.gate_up_variant |= MEMRA_ROWS_PACK;
  }
  if (shared) choice.gate_up_variant |= MEMRA_ROWS_ORD;
  choice.down_variant = MEMRA_ROWS_ILP;
  if (is_v2(shape.down_format)) {
    choice.down_variant = MEMRA_ROWS_LANE_MAJOR;
    if (!down_ring_fits(device, Format::kV2, shape.intermediate_size, shape.top_k))
      choice.down_variant |= MEMRA_ROWS_PACK;
  }
  if (shared) choice.down_variant |= MEMRA_ROWS_ORD;
  return choice;
}

const char* gate_up_kernel_name(const Device& device, const RowsShape& shape, uint32_t variant) {
  if (gate_up_uses_ring(device, shape.gate_format, shape.up_format, shape.hidden_size, variant)) {
    return is_v2(shape.gate_format) ? "gate_up_v2_lane_major_ring" : "gate_up_v1_ring";
  }
  const GateUpKernel* k =
      find_gate_up(RowsArm::kServed, shape.gate_format, shape.up_format, variant);
  return k != nullptr ? k->name : "none";
}

const char* down_kernel_name(const Device& device, const RowsShape& shape, uint32_t variant) {
  if (down_uses_ring(device, shape.down_format, shape.intermediate_size, shape.top_k, variant)) {
    return is_v2(shape.down_format) ? "down_v2_lane_major_ring" : "down_v1_ring";
  }
  const DownKernel* k = find_down(RowsArm::kServed, shape.down_format, variant);
  return k != nullptr ? k->name : "none";
}

namespace {

GateUpParams gate_up_params(const Device& device, const memra_rows_gate_up_args& args,
                            const Launch& launch) {
  const bool ordered = (args.variant & (MEMRA_ROWS_ORD | MEMRA_ROWS_DEDUP_ORDER)) != 0;
  GateUpParams p{};
  p.ptrs = args.ptrs;
  p.scales = args.scales;
  p.bias = args.bias;
  p.order = ordered ? args.order : nullptr;
  p.q = args.q;
  p.d = args.d;
  p.out = args.out;
  p.n_pairs = args.tokens * args.top_k;
  p.top_k = args.top_k;
  p.in = args.hidden_size;
  p.rows = args.intermediate_size;
  p.activation = static_cast<numerics::Activation>(args.activation);
  p.activation_params = {args.limit, args.alpha};
  p.prefetch = may_prefetch(device, launch);
  return p;
}

DownParams down_params(const Device& device, const memra_rows_down_args& args,
                       const Launch& launch) {
  DownParams p{};
  p.ptrs = args.ptrs;
  p.scales = args.scales;
  p.bias = args.bias;
  p.topk_weights = args.topk_weights;
  p.q = args.q;
  p.d = args.d;
  p.y = args.y;
  p.y_dtype = args.y_dtype;
  p.y_stride = args.y_stride;
  p.tokens = args.tokens;
  p.top_k = args.top_k;
  p.in = args.intermediate_size;
  p.rows = args.hidden_size;
  p.accumulate = (args.flags & MEMRA_FLAG_ACCUMULATE) != 0;
  p.rows_outermost = (args.variant & (MEMRA_ROWS_ORD | MEMRA_ROWS_DEDUP_ORDER)) != 0;
  p.prefetch = may_prefetch(device, launch);
  return p;
}

Route route_of(const PreparePairsArgs& args) {
  Route r{};
  r.topk_ids = args.topk_ids;
  r.topk_weights = args.topk_weights;
  r.expert_ptrs = args.expert_ptrs;
  r.expert_scales = args.expert_scales;
  r.expert_bias = args.expert_bias;
  r.invalid_ids = args.invalid_ids;
  r.n_experts = args.n_experts;
  r.local_offset = args.local_expert_offset;
  r.n_local = args.n_local_experts;
  return r;
}

}  // namespace

bool rows_layer_fits(const Device& device, const RowsLayerArgs& args) {
  const memra_rows_gate_up_args& gate_up = args.gate_up;
  const memra_rows_down_args& down = args.down;
  return is_v2(gate_up.gate_format) && is_v2(down.format) &&
         gate_up_uses_ring(device, gate_up.gate_format, gate_up.up_format, gate_up.hidden_size,
                           gate_up.variant) &&
         down_uses_ring(device, down.format, down.intermediate_size, down.top_k, down.variant) &&
         layer_ring_fits(device, gate_up.hidden_size, down.intermediate_size, gate_up.tokens,
                         gate_up.top_k, args.pairs.n_local_experts);
}

Status rows_layer(const Device& device, const RowsLayerArgs& args, Exchange* exchange,
                  const Launch& launch, bool* taken) {
  const Route route = route_of(args.pairs);
  GateUpParams gate_up = gate_up_params(device, args.gate_up, launch);
  gate_up.route = route;
  gate_up.order = nullptr;
  gate_up.source = {args.x, args.x_dtype, args.x_stride};
  gate_up.out_q = args.act_q;
  gate_up.out_d = args.act_d;
  DownParams down = down_params(device, args.down, launch);
  down.route = route;
  down.q = args.act_q;
  down.d = args.act_d;
  down.dots = args.dots;
  return layer_ring(device, gate_up, down, exchange, launch, taken);
}

Status rows_gate_up(const Device& device, RowsArm arm, const memra_rows_gate_up_args& args,
                    const Launch& launch) {
  const int64_t n_pairs = args.tokens * args.top_k;
  if (arm == RowsArm::kStream) {
    const auto bytes =
        static_cast<uint64_t>(numerics::slab_bytes(args.intermediate_size, args.hidden_size));
    return stream_slabs(device, args.ptrs, 2 * n_pairs, bytes, may_prefetch(device, launch),
                        args.out, launch);
  }
  const GateUpParams params = gate_up_params(device, args, launch);
  if (n_pairs * (args.intermediate_size / kRowBlock) <= kMaxRingUnits &&
      gate_up_uses_ring(device, args.gate_format, args.up_format, args.hidden_size, args.variant)) {
    return gate_up_ring(device, arm, format_of(args.gate_format), params, launch);
  }
  const GateUpKernel* k = find_gate_up(arm, args.gate_format, args.up_format, args.variant);
  if (k == nullptr) {
    return fail(MEMRA_ERROR_UNSUPPORTED) << "this probe arm has no gate/up kernel for variant "
                                         << args.variant << " and these formats";
  }
  const int warps = (args.variant & MEMRA_ROWS_PACK) != 0 ? kWarpsPacked : 1;
  const int64_t n_units = n_pairs * (args.intermediate_size / kRowBlock);
  const Grid grid{dim3(grid_blocks((n_units + warps - 1) / warps)),
                  dim3(static_cast<unsigned>(32 * warps)), 0};
  return launch_kernel(device, launch, grid, k->kernel, params);
}

Status rows_down(const Device& device, RowsArm arm, const memra_rows_down_args& args,
                 const Launch& launch) {
  const int64_t n_pairs = args.tokens * args.top_k;
  if (arm == RowsArm::kStream) {
    const auto bytes =
        static_cast<uint64_t>(numerics::slab_bytes(args.hidden_size, args.intermediate_size));
    return stream_slabs(device, args.ptrs + kDown * n_pairs, n_pairs, bytes,
                        may_prefetch(device, launch), args.y, launch);
  }
  const DownParams params = down_params(device, args, launch);
  if (down_uses_ring(device, args.format, args.intermediate_size, args.top_k, args.variant)) {
    return down_ring(device, arm, format_of(args.format), params, launch);
  }
  const DownKernel* k = find_down(arm, args.format, args.variant);
  if (k == nullptr) {
    return fail(MEMRA_ERROR_UNSUPPORTED)
           << "this probe arm has no down kernel for variant " << args.variant;
  }
  const int most = (args.variant & MEMRA_ROWS_PACK) != 0 ? kWarpsPacked : kMaxDownWarps;
  const int warps = args.top_k < most ? static_cast<int>(args.top_k) : most;
  const Grid grid{dim3(grid_blocks(args.tokens * (args.hidden_size / kRowBlock))),
                  dim3(static_cast<unsigned>(32 * warps)), 0};
  return launch_kernel(device, launch, grid, k->kernel, params);
}

}  // namespace memra::cuda
