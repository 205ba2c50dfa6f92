// A small valid call of every entry, and what can be wrong with each of its fields.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "memra.h"

namespace memra::api_test {

// A buffer with room to shift pointers into it, aligned as a workspace.
class Memory {
 public:
  static constexpr std::size_t kSlack = 256;
  static constexpr unsigned char kPoison = 0xFF;

  Memory(std::size_t bytes, unsigned char fill)
      : size_(bytes + kSlack),
        data_(static_cast<unsigned char*>(
            ::operator new (size_, std::align_val_t{MEMRA_WORKSPACE_ALIGNMENT}))) {
    std::memset(data_, fill, size_);
  }
  ~Memory() { ::operator delete (data_, std::align_val_t{MEMRA_WORKSPACE_ALIGNMENT}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <typename T = void>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  void fill(T (*value)(std::size_t)) {
    for (std::size_t i = 0; i < size_ / sizeof(T); ++i)
      as<T>()[i] = value(i);
  }
  std::size_t size() const { return size_; }
  void poison() { std::memset(data_, kPoison, size_); }
  bool poisoned() const {
    return std::all_of(data_, data_ + size_, [](unsigned char c) { return c == kPoison; });
  }

 private:
  std::size_t size_;
  unsigned char* data_;
};

enum class FieldType { kInt32, kInt64, kPointer };

// A field of an argument struct. Numbers: values that are wrong, and others that are right, each
// with everything else as in the valid call. Pointers: their alignment, and whether NULL is right.
struct Field {
  const char* name;
  std::size_t offset;
  FieldType type;
  std::vector<int64_t> wrong;
  std::vector<int64_t> right;
  std::size_t alignment = 1;
  bool optional = false;
  memra_status status = MEMRA_ERROR_INVALID_ARGUMENT;
  // Points to a struct: another aligned place is no legal call.
  bool to_struct = false;

  void put(std::vector<unsigned char>& bytes, int64_t value) const {
    std::memcpy(bytes.data() + offset, &value, type == FieldType::kInt32 ? 4 : 8);
  }
  int64_t get(const std::vector<unsigned char>& bytes) const {
    int64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, type == FieldType::kInt32 ? 4 : 8);
    return value;
  }
};

// A call whose arguments are one struct, as bytes.
struct Entry {
  std::string name;
  std::vector<unsigned char> valid;
  std::size_t needed;  // smallest struct_size that is accepted
  std::vector<Field> fields;
  std::vector<Memory*> outputs;
  // Makes the call and, where it succeeds, waits for it and drops what it made.
  std::function<memra_status(const void* args)> call;
};

template <typename Args>
std::vector<unsigned char> bytes_of(const Args& args) {
  std::vector<unsigned char> bytes(sizeof(args));
  std::memcpy(bytes.data(), &args, sizeof(args));
  return bytes;
}

inline constexpr int64_t kHidden = 128;
inline constexpr int64_t kIntermediate = 64;
inline constexpr int64_t kExperts = 4;
inline constexpr int64_t kTopK = 2;
inline constexpr int64_t kTokens = 3;
inline constexpr int64_t kPairs = kTokens * kTopK;
inline constexpr int64_t kMaxTokens = 8;
inline constexpr int64_t kRouted = 8;  // experts of the router's own call
inline constexpr int64_t kSlabBytes = kHidden * kIntermediate * 9 / 16;
// Room in every table beyond what the calls need.
inline constexpr int64_t kRoom = 64;

// An engine and a layer on the CPU, buffers for every call.
class World {
 public:
  explicit World(memra_format format = MEMRA_NVFP4) : format_(format) {
    memra_engine_options options = engine_options();
    ok_ = memra_engine_create(&options, &engine) == MEMRA_OK;
    slab_table.fill<const void*>([](std::size_t) -> const void* { return nullptr; });
    for (std::size_t i = 0; i < slab_table.size() / sizeof(void*); ++i) {
      slab_table.as<const void*>()[i] = slabs.as<char>() + (i % 16) * kSlabBytes;
    }
    scales.fill<float>([](std::size_t) { return 0.5f; });
    weights.fill<float>([](std::size_t) { return 0.25f; });
    // Any window of n_pairs entries is a permutation.
    order.fill<int32_t>([](std::size_t i) { return static_cast<int32_t>(i % kPairs); });
    bias_rows.fill<float>([](std::size_t) { return 0.0f; });
    for (std::size_t i = 0; i < bias_table.size() / sizeof(void*); ++i) {
      bias_table.as<const float*>()[i] = bias_rows.as<float>();
    }
    ones.fill<int32_t>([](std::size_t) { return 1; });
    pairs.fill<int32_t>([](std::size_t) { return static_cast<int32_t>(kPairs); });
    group_offsets.fill<int32_t>(
        [](std::size_t i) { return i == 0 ? 0 : static_cast<int32_t>(kPairs); });
    const memra_moe_layer_desc desc = layer_desc();
    ok_ = ok_ && memra_moe_layer_create(engine, &desc, &layer) == MEMRA_OK;
  }
  ~World() {
    memra_moe_layer_destroy(layer);
    memra_engine_destroy(engine);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  bool ok() const { return ok_; }

  memra_engine_options engine_options() const {
    memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
    options.backend = MEMRA_BACKEND_CPU;
    options.cpu_threads = 1;
    return options;
  }

  memra_moe_layer_desc layer_desc() {
    for (memra_bank* bank : {&gate, &up, &down}) {
      *bank = MEMRA_BANK_INIT;
      bank->format = format_;
      bank->base = slabs.as();
      bank->expert_scales = scales.as<float>();
    }
    memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
    desc.hidden_size = kHidden;
    desc.intermediate_size = kIntermediate;
    desc.n_experts = kExperts;
    desc.top_k = kTopK;
    desc.max_tokens = kMaxTokens;
    desc.gate = &gate;
    desc.up = &up;
    desc.down = &down;
    return desc;
  }

  memra_moe_args moe_args() {
    memra_moe_args args = MEMRA_MOE_ARGS_INIT;
    args.tokens = kTokens;
    args.x = x.as();
    args.y = y.as();
    args.topk_ids = ids.as<int32_t>();
    args.topk_weights = weights.as<float>();
    args.expert_ptrs = slab_table.as<const void*>();
    args.expert_scales = scales.as<float>();
    args.invalid_ids = counter.as<uint64_t>();
    args.workspace = workspace.as();
    memra_moe_workspace_size(layer, kTokens, &args.workspace_bytes);
    return args;
  }

  memra_q8_1_args q8_args() {
    memra_q8_1_args args = MEMRA_Q8_1_ARGS_INIT;
    args.x = x.as();
    args.rows = kTokens;
    args.columns = kHidden;
    args.q = q_out.as<int8_t>();
    args.d = d_out.as<float>();
    return args;
  }

  memra_rows_gate_up_args gate_up_args() {
    memra_rows_gate_up_args args = MEMRA_ROWS_GATE_UP_ARGS_INIT;
    args.tokens = kTokens;
    args.top_k = kTopK;
    args.hidden_size = kHidden;
    args.intermediate_size = kIntermediate;
    args.gate_format = format_;
    args.up_format = format_;
    args.ptrs = slab_table.as<const void*>();
    args.scales = scales.as<float>();
    args.bias = bias_table.as<const float*>();
    args.order = order.as<int32_t>();
    args.q = q.as<int8_t>();
    args.d = scales.as<float>();
    args.out = act.as<float>();
    return args;
  }

  memra_rows_down_args down_args() {
    memra_rows_down_args args = MEMRA_ROWS_DOWN_ARGS_INIT;
    args.tokens = kTokens;
    args.top_k = kTopK;
    args.intermediate_size = kIntermediate;
    args.hidden_size = kHidden;
    args.format = format_;
    args.ptrs = slab_table.as<const void*>();
    args.scales = scales.as<float>();
    args.bias = bias_table.as<const float*>();
    args.topk_weights = weights.as<float>();
    args.q = q.as<int8_t>();
    args.d = scales.as<float>();
    args.y = y.as();
    return args;
  }

  memra_moe_topk_args topk_args() {
    memra_moe_topk_args args = MEMRA_MOE_TOPK_ARGS_INIT;
    args.logits = x.as();
    args.tokens = kTokens;
    args.n_experts = kRouted;
    args.top_k = kTopK;
    args.topk_ids = ids_out.as<int32_t>();
    args.topk_weights = weights_out.as<float>();
    args.bias = scales.as<float>();
    args.n_groups = 4;
    args.top_k_groups = 2;
    return args;
  }

  memra_moe_route_args route_args() {
    memra_moe_route_args args = MEMRA_MOE_ROUTE_ARGS_INIT;
    args.tokens = kTokens;
    args.top_k = kTopK;
    args.n_experts = kExperts;
    args.topk_ids = ids.as<int32_t>();
    args.expert_ptrs = slab_table.as<const void*>();
    args.n_active = n_active_out.as<int32_t>();
    args.active_experts = active_out.as<int32_t>();
    args.offsets = offsets_out.as<int32_t>();
    args.pair_order = order_out.as<int32_t>();
    args.inverse = inverse_out.as<int32_t>();
    args.invalid_ids = counter.as<uint64_t>();
    args.workspace = workspace.as();
    args.workspace_bytes = 4096;
    return args;
  }

  memra_moe_gather_f16_args gather_args() {
    memra_moe_gather_f16_args args = MEMRA_MOE_GATHER_F16_ARGS_INIT;
    args.x = x.as();
    args.source_rows = kTokens;
    args.rows = kPairs;
    args.columns = kHidden;
    args.z = z_out.as();
    args.zs = zs_out.as<float>();
    args.index = order.as<int32_t>();
    args.top_k = kTopK;
    args.row_count = pairs.as<int32_t>();
    return args;
  }

  memra_moe_grouped_gemm_args gemm_args() {
    memra_moe_grouped_gemm_args args = MEMRA_MOE_GROUPED_GEMM_ARGS_INIT;
    args.rows = kPairs;
    args.columns = kHidden;
    args.outputs = kIntermediate;
    args.n_experts = kExperts;
    args.format = format_;
    args.plane = 1;
    args.ptrs = slab_table.as<const void*>();
    args.n_active = ones.as<int32_t>();
    args.active_experts = ids.as<int32_t>();
    args.offsets = group_offsets.as<int32_t>();
    args.z = q.as();
    args.zs = scales.as<float>();
    args.out = act.as<float>();
    args.scales = scales.as<float>();
    args.bias = bias_table.as<const float*>();
    args.workspace = workspace.as();
    args.workspace_bytes = 4096;
    return args;
  }

  memra_repack_args repack_args() {
    memra_repack_args args = MEMRA_REPACK_ARGS_INIT;
    args.rows = kIntermediate;
    args.columns = kHidden;
    args.n_experts = kExperts;
    args.src = slabs.as();
    args.dst = bank_out.as();
    args.report = report.as<memra_weight_report>();
    return args;
  }

  memra_repack_args in_place_args() {
    memra_repack_args args = repack_args();
    args.src = args.dst = in_place.as();
    args.workspace = workspace.as();
    args.workspace_bytes = kSlabBytes;
    return args;
  }

  memra_import_args import_args() {
    memra_import_args args = MEMRA_IMPORT_ARGS_INIT;
    args.format = format_;
    args.rows = kIntermediate;
    args.columns = kHidden;
    args.n_experts = kExperts;
    args.codes = slabs.as();
    args.scales = slabs.as();
    args.global_scales = scales.as<float>();
    args.global_scale = MEMRA_GLOBAL_SCALE_DIRECT;
    args.dst = bank_out.as();
    args.expert_scales = scales_out.as<float>();
    args.report = report.as<memra_weight_report>();
    return args;
  }

  memra_quantize_args quantize_args() {
    memra_quantize_args args = MEMRA_QUANTIZE_ARGS_INIT;
    args.format = format_;
    args.rows = kIntermediate;
    args.columns = kHidden;
    args.n_experts = kExperts;
    args.src = floats.as();
    args.compute_expert_scale = 1;
    args.dst = bank_out.as();
    args.expert_scales = scales_out.as<float>();
    args.report = report.as<memra_weight_report>();
    return args;
  }

  memra_dequantize_args dequantize_args() {
    memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
    args.format = format_;
    args.rows = kIntermediate;
    args.columns = kHidden;
    args.n_experts = kExperts;
    args.src = slabs.as();
    args.expert_scales = scales.as<float>();
    args.dst = floats_out.as();
    return args;
  }

  memra_status finish(memra_status status) {
    return status == MEMRA_OK ? memra_stream_synchronize(engine, nullptr) : status;
  }

  memra_engine* engine = nullptr;
  memra_moe_layer* layer = nullptr;
  memra_bank gate, up, down;

  // Inputs. Slabs of 0x38 are legal in both formats: scales of 1.
  Memory slabs{16 * kSlabBytes, 0x38};
  Memory slab_table{(3 * kPairs + kRoom) * sizeof(void*), 0};
  Memory scales{(3 * kPairs + kRoom) * sizeof(float), 0};
  Memory weights{(kPairs + kRoom) * sizeof(float), 0};
  Memory ids{(kPairs + kRoom) * sizeof(int32_t), 0};
  Memory order{(kPairs + kRoom) * sizeof(int32_t), 0};
  Memory bias_rows{kHidden * sizeof(float), 0};
  Memory bias_table{(3 * kPairs + kRoom) * sizeof(void*), 0};
  Memory x{kTokens * kHidden * sizeof(float), 0x3C};
  Memory q{kPairs * kHidden * 2, 0x11};  // int8, or f16
  Memory ones{kRoom * sizeof(int32_t), 0};
  Memory pairs{kRoom * sizeof(int32_t), 0};
  Memory group_offsets{(kExperts + 1 + kRoom) * sizeof(int32_t), 0};
  Memory floats{kExperts * kHidden * kIntermediate * sizeof(float), 0x3C};
  Memory workspace{64 * 1024, 0};
  Memory in_place{kExperts * kSlabBytes, 0x38};
  // Outputs.
  Memory y{kTokens * kHidden * sizeof(float), Memory::kPoison};
  Memory counter{sizeof(uint64_t), Memory::kPoison};
  Memory q_out{kTokens * kHidden, Memory::kPoison};
  Memory d_out{kTokens * kHidden / 32 * sizeof(float), Memory::kPoison};
  Memory act{kPairs * kIntermediate * sizeof(float), Memory::kPoison};
  Memory ids_out{kTokens * 4 * sizeof(int32_t), Memory::kPoison};
  Memory weights_out{kTokens * 4 * sizeof(float), Memory::kPoison};
  Memory n_active_out{sizeof(int32_t), Memory::kPoison};
  Memory active_out{kRouted * sizeof(int32_t), Memory::kPoison};
  Memory offsets_out{(kRouted + 1) * sizeof(int32_t), Memory::kPoison};
  Memory order_out{kPairs * sizeof(int32_t), Memory::kPoison};
  Memory inverse_out{kPairs * sizeof(int32_t), Memory::kPoison};
  Memory z_out{kPairs * kHidden * 2, Memory::kPoison};
  Memory zs_out{kPairs * sizeof(float), Memory::kPoison};
  Memory bank_out{kExperts * kSlabBytes, Memory::kPoison};
  Memory report{sizeof(memra_weight_report), Memory::kPoison};
  Memory scales_out{kExperts * sizeof(float), Memory::kPoison};
  Memory floats_out{kExperts * (kHidden + 2) * kIntermediate * sizeof(float), Memory::kPoison};

 private:
  memra_format format_;
  bool ok_ = false;
};

}  // namespace memra::api_test
