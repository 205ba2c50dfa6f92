#pragma once

// What a backend offers to the API. The API has validated every argument before it calls in here:
// pointers, alignments, shapes, enums, formats and variants are legal, structs are whole (zeroes
// where the caller's was older), strides of zero have been replaced by their meaning, and the
// amount of work is not zero. A backend reports only what it alone can know: failures of memory and
// device.
//
// Everything that takes a stream enqueues and returns. Nothing here throws but std::bad_alloc.

#include <cstdint>
#include <memory>
#include <string>

#include "memra.h"
#include "status.h"

namespace memra {

class Backend;

// The default rule of what a backend runs; see rows_variants.h for how options change it.
struct RowsShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t top_k = 0;
  memra_format gate_format = 0;
  memra_format up_format = 0;
  memra_format down_format = 0;
};

struct RowsChoice {
  uint32_t gate_up_variant = MEMRA_ROWS_PLAIN;
  uint32_t down_variant = MEMRA_ROWS_PLAIN;
};

// Position of a kernel in a call of several, for dependent launch: only a kernel whose predecessor
// is memra's own, in the same call, may read weights before its dependency wait, unless the caller
// promised MEMRA_FLAG_INPUTS_STABLE.
struct Launch {
  memra_stream stream = nullptr;
  bool chained = false;        // the work just before is a kernel of the same call
  bool inputs_stable = false;  // MEMRA_FLAG_INPUTS_STABLE
};

// From ids and router weights to tables over pairs, plane-major: entry plane * n_pairs + p.
struct PreparePairsArgs {
  int64_t tokens = 0, top_k = 0;
  int64_t n_experts = 0, local_expert_offset = 0, n_local_experts = 0;
  const int32_t* topk_ids = nullptr;    // [n_pairs]
  const float* topk_weights = nullptr;  // [n_pairs]
  // Local-indexed device tables, entry plane * n_local_experts + e.
  const void* const* expert_ptrs = nullptr;
  const float* expert_scales = nullptr;
  const float* const* expert_bias = nullptr;  // or null
  uint64_t* invalid_ids = nullptr;            // or null; += ids >= n_experts or < -1
  // Outputs. A skipped pair (id not local, or any of its three slabs NULL) has three NULL ptrs,
  // and scales of +0.
  const void** ptrs = nullptr;   // [3 * n_pairs]
  float* scales = nullptr;       // [3 * n_pairs]; the down plane is mul(topk_weight, scale)
  const float** bias = nullptr;  // [3 * n_pairs], null exactly if expert_bias is
  // Pairs sorted by (local expert, pair), skipped ones last; or null: not wanted.
  int32_t* order = nullptr;
};

// Quantisation to int8, in natural or in lane-major order.
struct QuantizeQ8Args {
  memra_q8_1_args q8{};
  bool lane_major = false;
};

// memra_moe_rows as a whole: its inputs and what its stages would be given, less the tables over
// pairs, q, d and the activations in between.
struct RowsLayerArgs {
  PreparePairsArgs pairs;
  const void* x = nullptr;
  memra_dtype x_dtype = MEMRA_F32;
  int64_t x_stride = 0;
  memra_rows_gate_up_args gate_up{};
  memra_rows_down_args down{};
  int8_t* act_q = nullptr;          // int8 [n_pairs, intermediate_size]
  float* act_d = nullptr;           // f32 [n_pairs, intermediate_size / 32]
  float* dots = nullptr;            // f32 [n_pairs, hidden_size]
  const void* workspace = nullptr;  // where all of these lie
};

template <class... Formats>
constexpr bool all_v2(Formats... formats) {
  return (... && (formats == MEMRA_NVFP4_V2));
}

// A layer as the grouped path sees it.
struct GroupedShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t top_k = 0;
  int64_t n_experts = 0;
  int64_t local_expert_offset = 0;
  int64_t n_local_experts = 0;
  memra_format gate_format = 0;
  memra_format up_format = 0;
  memra_format down_format = 0;
};

// What a backend's grouped path is for a layer.
struct GroupedPlan {
  int64_t min_tokens = 0;  // memra_moe takes it from here on
  const char* gate_up_kernel = "";
  const char* down_kernel = "";
};

// memra_moe_grouped as a whole.
struct GroupedLayerArgs {
  GroupedShape shape;
  memra_activation activation = MEMRA_SWIGLU;
  float limit = 0.0f, alpha = 0.0f;
  uint32_t flags = 0;
  memra_dtype x_dtype = MEMRA_F32, y_dtype = MEMRA_F32;
  int64_t tokens = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
  const int32_t* topk_ids = nullptr;    // [n_pairs]
  const float* topk_weights = nullptr;  // [n_pairs]
  // Local-indexed device tables, entry plane * n_local_experts + e.
  const void* const* expert_ptrs = nullptr;
  const float* expert_scales = nullptr;
  const float* const* expert_bias = nullptr;  // or null
  uint64_t* invalid_ids = nullptr;            // or null
  void* workspace = nullptr;                  // of grouped_workspace() bytes
  // MEMRA_GROUPED_*, at least one. The workspace is as the missing ones before left it.
  uint32_t stages = MEMRA_GROUPED_ALL;
};

class Event {
 public:
  virtual ~Event() = default;
  virtual Status record(memra_stream stream) = 0;
  virtual Status query() = 0;
  virtual Status synchronize() = 0;
  // start is of the same backend kind and device, checked by the API.
  virtual Status elapsed_since(Event& start, float* milliseconds) = 0;
};

class Graph {
 public:
  virtual ~Graph() = default;
  virtual Status launch(memra_stream stream) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual memra_backend kind() const = 0;
  virtual int32_t device() const = 0;
  // Fills everything but struct_size and fallback_reason.
  virtual void describe(memra_engine_properties& properties) const = 0;
  // Called once by memra_engine_destroy: waits for streams of stream_create still alive. Events,
  // graphs and layers may outlive it and be destroyed afterwards.
  virtual void shutdown() = 0;

  // Memory.
  virtual Status alloc(uint64_t bytes, void** ptr) = 0;
  virtual Status free(void* ptr) = 0;
  virtual Status alloc_async(uint64_t bytes, memra_stream stream, void** ptr) = 0;
  virtual Status free_async(void* ptr, memra_stream stream) = 0;
  virtual Status alloc_host(uint64_t bytes, void** ptr) = 0;
  virtual Status free_host(void* ptr) = 0;
  virtual Status memcpy_async(void* dst, const void* src, uint64_t bytes, memra_stream stream) = 0;
  virtual Status memset_async(void* dst, int32_t value, uint64_t bytes, memra_stream stream) = 0;
  // src_backend is of the same kind. Ordered on a stream of this backend.
  virtual Status memcpy_from(Backend& src_backend, void* dst, const void* src, uint64_t bytes,
                             memra_stream stream) = 0;
  // Copies from host memory to device memory and waits, without touching the caller's streams; not
  // for hot calls. Legal while another thread or stream captures.
  virtual Status upload(void* dst, const void* src, uint64_t bytes) = 0;

  // Streams, events, graphs.
  virtual Status stream_create(memra_stream* stream) = 0;
  virtual Status stream_destroy(memra_stream stream) = 0;
  virtual Status stream_query(memra_stream stream) = 0;
  virtual Status stream_synchronize(memra_stream stream) = 0;
  virtual Status event_create(std::unique_ptr<Event>* event) = 0;
  // event belongs to a backend of the same kind, perhaps on another device.
  virtual Status stream_wait_event(memra_stream stream, Event& event) = 0;
  virtual Status graph_begin(memra_stream stream) = 0;
  virtual Status graph_end(memra_stream stream, std::unique_ptr<Graph>* graph) = 0;

  // Weights.
  virtual Status repack_v2(const memra_repack_args& args, memra_stream stream) = 0;
  // args.global_scales and args.expert_scales are the API's business: never read here.
  virtual Status import_nvfp4(const memra_import_args& args, memra_stream stream) = 0;
  virtual Status quantize_nvfp4(const memra_quantize_args& args, memra_stream stream) = 0;
  virtual Status dequantize(const memra_dequantize_args& args, memra_stream stream) = 0;

  // Rows. Variants in the args are explicit here, never AUTO.
  virtual RowsChoice choose_rows(const RowsShape& shape, int64_t tokens) const = 0;
  // Names of what a variant runs; static strings.
  virtual const char* gate_up_kernel_name(const RowsShape& shape, uint32_t variant) const = 0;
  virtual const char* down_kernel_name(const RowsShape& shape, uint32_t variant) const = 0;
  virtual Status prepare_pairs(const PreparePairsArgs& args, const Launch& launch) = 0;
  virtual Status quantize_q8(const QuantizeQ8Args& args, const Launch& launch) = 0;
  virtual Status q8_to_lane_major(const int8_t* q, int64_t rows, int64_t columns, int8_t* out,
                                  memra_stream stream) = 0;
  virtual Status rows_gate_up(const memra_rows_gate_up_args& args, const Launch& launch) = 0;
  virtual Status rows_down(const memra_rows_down_args& args, const Launch& launch) = 0;
  // A backend may have a shorter way through the layer than its stages one by one. taken: whether
  // this call has gone it; where not, nothing has been enqueued.
  virtual Status rows_layer(const RowsLayerArgs& /*args*/, const Launch& /*launch*/, bool* taken) {
    *taken = false;
    return MEMRA_OK;
  }
  virtual Status rows_probe_gate_up(memra_probe_arm arm, const memra_rows_gate_up_args& args,
                                    const Launch& launch) = 0;
  virtual Status rows_probe_down(memra_probe_arm arm, const memra_rows_down_args& args,
                                 const Launch& launch) = 0;

  // Routing and grouped. A backend may have none of it, or a part.
  virtual Status topk(const memra_moe_topk_args& /*args*/, const Launch& /*launch*/) {
    return lacks("memra_moe_topk");
  }
  virtual Status route_workspace(int64_t /*n_pairs*/, int64_t /*n_local_experts*/,
                                 uint64_t* /*bytes*/) const {
    return lacks("memra_moe_route");
  }
  virtual Status route(const memra_moe_route_args& /*args*/, const Launch& /*launch*/) {
    return lacks("memra_moe_route");
  }
  virtual Status gather_f16(const memra_moe_gather_f16_args& /*args*/, const Launch& /*launch*/) {
    return lacks("memra_moe_gather_f16");
  }
  virtual Status grouped_gemm_workspace(int64_t /*rows*/, int64_t /*n_experts*/,
                                        uint64_t* /*bytes*/) const {
    return lacks("memra_moe_grouped_gemm");
  }
  virtual Status grouped_gemm(const memra_moe_grouped_gemm_args& /*args*/,
                              const Launch& /*launch*/) {
    return lacks("memra_moe_grouped_gemm");
  }
  // Whether there is a grouped path for such layers; static strings in the plan.
  virtual bool plan_grouped(const GroupedShape& /*shape*/, GroupedPlan* /*plan*/) const {
    return false;
  }
  // Of a layer for which there is a plan; rises with tokens.
  virtual uint64_t grouped_workspace(const GroupedShape& /*shape*/, int64_t /*tokens*/) const {
    return 0;
  }
  virtual Status grouped_layer(const GroupedLayerArgs& /*args*/, const Launch& /*launch*/) {
    return lacks("memra_moe_grouped");
  }

  Status lacks(const char* entry) const {
    return fail(MEMRA_ERROR_UNSUPPORTED)
           << "the " << (kind() == MEMRA_BACKEND_CUDA ? "CUDA" : "CPU")
           << " backend of this version has no " << entry;
  }
};

// What an engine is made from, after options and environment have been merged.
struct BackendConfig {
  int32_t device = 0;
  int32_t cpu_threads = 0;  // 0: the processors this process may use
  std::string cpu_simd;     // one of cpu_simd_paths(), or "": the best that runs here
  bool dependent_launch = true;
};

Status make_cpu_backend(const BackendConfig& config, std::shared_ptr<Backend>* backend);
#if MEMRA_WITH_CUDA
Status make_cuda_backend(const BackendConfig& config, std::shared_ptr<Backend>* backend);
#endif

// Build facts, for memra_build_info.
const char* cpu_simd_paths();  // best first, with blanks between
#if MEMRA_WITH_CUDA
int32_t cuda_runtime_version();
const char* cuda_archs();
#endif

}  // namespace memra
