#include "tp2/rank.h"

#include "inputs.h"
#include "routing.h"

namespace memra::bench::tp2 {
namespace {

constexpr double kSkew = 1.35;  // low experts get more
constexpr uint32_t kInputSeed = 31;
constexpr uint32_t kActSeed = 41;

LayerPart bank_of(const Options& options) {
  LayerPart part;
  part.format = options.format;
  part.zero_banks = options.random_bank == 0;
  return part;
}

size_t float_bytes(int64_t count) {
  return static_cast<size_t>(count) * sizeof(float);
}

}  // namespace

Rank::Rank(const Session& session, const Options& options, int index)
    : session_(session),
      index_(index),
      shape_(options.shape),
      fixture_(session, options.shape, {}, bank_of(options)),
      ids_(hashed_experts(options.shape, kSkew)) {
  const int64_t n_pairs = shape_.n_pairs();
  const auto seed = static_cast<uint32_t>(index);
  x_ = session.upload(random_floats(shape_.tokens * shape_.hidden_size, kInputSeed + seed));
  act_ = session.upload(random_floats(n_pairs * shape_.intermediate_size, kActSeed + seed));
  const size_t box_bytes = float_bytes(options.copy_rows * shape_.hidden_size);
  outbox_ = session.device_memory(box_bytes);
  session.copy(outbox_.as(), x_.as(), box_bytes);
  inbox_ = session.device_memory(box_bytes);
  route();
  make_tables();
  z_x_ = session.device_memory(float_bytes(n_pairs * shape_.hidden_size) / 2);
  zs_x_ = session.device_memory(float_bytes(n_pairs));
  z_act_ = session.device_memory(float_bytes(n_pairs * shape_.intermediate_size) / 2);
  zs_act_ = session.device_memory(float_bytes(n_pairs));
  uint64_t bytes = 0;
  check(memra_moe_grouped_gemm_workspace_size(session.engine(), n_pairs, shape_.n_experts, &bytes),
        "memra_moe_grouped_gemm_workspace_size");
  if (bytes != 0) workspace_ = session.device_memory(bytes);
  for (const Plane plane : {kGate, kUp, kDown})
    out_[plane] = session.device_memory(float_bytes(n_pairs * plane_rows(shape_, plane)));
  session.synchronize();
}

void Rank::route() {
  const auto n_experts = static_cast<size_t>(shape_.n_experts);
  const Memory ids = session_.upload(ids_);
  active_count_ = session_.device_memory(sizeof(int32_t));
  active_ = session_.device_memory(n_experts * sizeof(int32_t));
  offsets_ = session_.device_memory((n_experts + 1) * sizeof(int32_t));
  order_ = session_.device_memory(ids.bytes());
  uint64_t bytes = 0;
  check(memra_moe_route_workspace_size(session_.engine(), shape_.tokens, shape_.top_k,
                                       shape_.n_experts, &bytes),
        "memra_moe_route_workspace_size");
  const Memory workspace = session_.device_memory(bytes);
  memra_moe_route_args args = MEMRA_MOE_ROUTE_ARGS_INIT;
  args.tokens = shape_.tokens;
  args.top_k = shape_.top_k;
  args.n_experts = shape_.n_experts;
  args.topk_ids = ids.as<const int32_t>();
  args.n_active = active_count_.as<int32_t>();
  args.active_experts = active_.as<int32_t>();
  args.offsets = offsets_.as<int32_t>();
  args.pair_order = order_.as<int32_t>();
  args.workspace = workspace.as();
  args.workspace_bytes = bytes;
  check(memra_moe_route(session_.engine(), &args, session_.stream()), "memra_moe_route");
  n_active_ = session_.download<int32_t>(active_count_)[0];
}

void Rank::make_tables() {
  std::vector<const void*> ptrs;
  std::vector<float> scales;
  for (const Plane plane : {kGate, kUp, kDown}) {
    for (int64_t expert = 0; expert < shape_.n_experts; ++expert) {
      ptrs.push_back(fixture_.slab(plane, expert));
      scales.push_back(fixture_.scale(plane, expert));
    }
  }
  ptrs_ = session_.upload(ptrs);
  scales_ = session_.upload(scales);
}

Inputs Rank::allocate() const {
  const auto copy_of = [&](const Memory& memory) {
    void* ptr = nullptr;
    check(memra_alloc_async(session_.engine(), memory.bytes(), session_.stream(), &ptr),
          "memra_alloc_async");
    session_.copy(ptr, memory.as(), memory.bytes());
    return ptr;
  };
  return {copy_of(x_), copy_of(act_)};
}

void Rank::release(const Inputs& inputs) const {
  for (void* ptr : {inputs.x, inputs.act})
    check(memra_free_async(session_.engine(), ptr, session_.stream()), "memra_free_async");
}

void Rank::gather_f16(const void* source, int64_t source_rows, int64_t columns, const Memory& z,
                      const Memory& zs, bool by_order) const {
  memra_moe_gather_f16_args args = MEMRA_MOE_GATHER_F16_ARGS_INIT;
  args.x_dtype = MEMRA_F32;
  args.x = source;
  args.source_rows = source_rows;
  args.rows = shape_.n_pairs();
  args.columns = columns;
  args.z = z.as();
  args.zs = zs.as<float>();
  if (by_order) {
    args.index = order_.as<const int32_t>();
    args.top_k = shape_.top_k;
  }
  check(memra_moe_gather_f16(session_.engine(), &args, session_.stream()), "memra_moe_gather_f16");
}

void Rank::gather(const Inputs& inputs) const {
  gather_f16(inputs.x, shape_.tokens, shape_.hidden_size, z_x_, zs_x_, true);
}

void Rank::convert(const Inputs& inputs) const {
  gather_f16(inputs.act, shape_.n_pairs(), shape_.intermediate_size, z_act_, zs_act_, false);
}

void Rank::multiply(Plane plane) const {
  memra_moe_grouped_gemm_args args = MEMRA_MOE_GROUPED_GEMM_ARGS_INIT;
  args.rows = shape_.n_pairs();
  args.columns = plane_columns(shape_, plane);
  args.outputs = plane_rows(shape_, plane);
  args.n_experts = shape_.n_experts;
  args.format = fixture_.part().format;
  args.plane = plane;
  args.ptrs = ptrs_.as<const void* const>();
  args.n_active = active_count_.as<const int32_t>();
  args.active_experts = active_.as<const int32_t>();
  args.offsets = offsets_.as<const int32_t>();
  args.z = (plane == kDown ? z_act_ : z_x_).as();
  args.zs = (plane == kDown ? zs_act_ : zs_x_).as<const float>();
  args.out = out_[plane].as<float>();
  args.scales = scales_.as<const float>();
  args.workspace = workspace_.as();
  args.workspace_bytes = workspace_.bytes();
  check(memra_moe_grouped_gemm(session_.engine(), &args, session_.stream()),
        "memra_moe_grouped_gemm");
}

void Rank::chain(const Inputs& inputs, Trace* trace) const {
  const auto mark = [&](const char* name) {
    if (trace != nullptr) trace->begin(index_, name);
  };
  mark("gather x");
  gather(inputs);
  mark("convert act");
  convert(inputs);
  mark("gate");
  multiply(kGate);
  mark("up");
  multiply(kUp);
  mark("down");
  multiply(kDown);
}

}  // namespace memra::bench::tp2
