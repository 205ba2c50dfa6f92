#include "cpu/cpu_backend.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "cpu/event.h"
#include "cpu/grouped.h"
#include "cpu/machine.h"
#include "cpu/rows.h"
#include "cpu/rows_paths.h"
#include "cpu/weights.h"
#include "numerics/nvfp4_layout.h"

namespace memra::cpu {
namespace {

// Weights are read once from end to end: with small pages the walks of the page table cost speed.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr uint64_t kHugePagesFrom = 2 * kHugePage;

template <std::size_t kSize>
void copy_text(char (&to)[kSize], std::string_view text) {
  text = text.substr(0, kSize - 1);
  std::memset(to, 0, kSize);
  std::memcpy(to, text.data(), text.size());
}

// int8 products are so much faster than f32 ones that rows win at every number of tokens: by 1.6 to
// 2.2 with 64 pairs an expert and more (AVX2, AVX-512), by more with fewer.
constexpr int64_t kGroupedMinTokens = std::numeric_limits<int64_t>::max();

}  // namespace

CpuBackend::CpuBackend(std::shared_ptr<Core> core, const RowsKernels& kernels)
    : core_(std::move(core)), kernels_(kernels), memory_bytes_(cpu::memory_bytes()) {}

Status CpuBackend::create(const BackendConfig& config, const RowsKernels& kernels,
                          std::shared_ptr<Backend>* backend) {
  const int threads = config.cpu_threads > 0 ? config.cpu_threads : usable_processors();
  std::shared_ptr<Core> core;
  MEMRA_TRY(Core::create(threads, &core));
  backend->reset(new CpuBackend(std::move(core), kernels));
  return MEMRA_OK;
}

CpuBackend::~CpuBackend() {
  if (core_->forked()) {
    leak(core_);
  } else {
    core_->shutdown();
  }
}

void CpuBackend::shutdown() {
  if (!core_->forked()) core_->shutdown();
}

void CpuBackend::describe(memra_engine_properties& properties) const {
  properties.backend = MEMRA_BACKEND_CPU;
  properties.device = 0;
  properties.compute_capability = 0;
  properties.n_multiprocessors = 0;
  properties.cpu_threads = core_->threads();
  properties.driver_version = 0;
  properties.runtime_version = 0;
  properties.dependent_launch = 0;
  properties.l2_bytes = l2_bytes();
  properties.memory_bytes = memory_bytes_;
  copy_text(properties.device_name, processor_name());
  copy_text(properties.simd, kernels_.simd);
}

Status CpuBackend::enqueue(memra_stream stream, Task task) {
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  return target->enqueue(std::move(task));
}

// ---- Memory ----

Status CpuBackend::alloc(uint64_t bytes, void** ptr) {
  *ptr = nullptr;
  if (bytes == 0) return MEMRA_OK;
  const bool large = bytes >= kHugePagesFrom;
  const std::size_t alignment = large ? kHugePage : MEMRA_WORKSPACE_ALIGNMENT;
  // Overcommitting systems promise anything: what the machine cannot hold is refused here.
  const bool fits = memory_bytes_ == 0 || bytes <= memory_bytes_;
  if (!fits || posix_memalign(ptr, alignment, bytes) != 0) {
    *ptr = nullptr;
    return fail(MEMRA_ERROR_OUT_OF_MEMORY)
           << "bytes is " << bytes << ": the system has no such block of memory";
  }
#if defined(MADV_HUGEPAGE)
  // Only advice: whether it is taken is the system's business.
  if (large) static_cast<void>(madvise(*ptr, bytes, MADV_HUGEPAGE));
#endif
  return MEMRA_OK;
}

Status CpuBackend::free(void* ptr) {
  std::free(ptr);
  return MEMRA_OK;
}

Status CpuBackend::alloc_async(uint64_t bytes, memra_stream stream, void** ptr) {
  *ptr = nullptr;
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  if (target->recording()) {
    return fail(MEMRA_ERROR_UNSUPPORTED)
           << "the stream is recording a graph: on the CPU a graph holds no allocations";
  }
  return alloc(bytes, ptr);
}

Status CpuBackend::free_async(void* ptr, memra_stream stream) {
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  if (target->recording()) {
    return fail(MEMRA_ERROR_UNSUPPORTED)
           << "the stream is recording a graph: on the CPU a graph frees no memory";
  }
  return target->enqueue([ptr](const TaskContext&) { std::free(ptr); });
}

Status CpuBackend::alloc_host(uint64_t bytes, void** ptr) {
  return alloc(bytes, ptr);
}
Status CpuBackend::free_host(void* ptr) {
  return free(ptr);
}

Status CpuBackend::memcpy_async(void* dst, const void* src, uint64_t bytes, memra_stream stream) {
  return enqueue(stream,
                 [=](const TaskContext& context) { copy_bytes(dst, src, bytes, context.pool); });
}

Status CpuBackend::memset_async(void* dst, int32_t value, uint64_t bytes, memra_stream stream) {
  return enqueue(stream,
                 [=](const TaskContext& context) { fill_bytes(dst, value, bytes, context.pool); });
}

Status CpuBackend::memcpy_from(Backend&, void* dst, const void* src, uint64_t bytes,
                               memra_stream stream) {
  return memcpy_async(dst, src, bytes, stream);
}

Status CpuBackend::upload(void* dst, const void* src, uint64_t bytes) {
  std::memcpy(dst, src, bytes);
  return MEMRA_OK;
}

// ---- Streams, events, graphs ----

Status CpuBackend::stream_create(memra_stream* stream) {
  return core_->create_stream(stream);
}
Status CpuBackend::stream_destroy(memra_stream stream) {
  return core_->destroy_stream(stream);
}

Status CpuBackend::stream_query(memra_stream stream) {
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  return target->query();
}

Status CpuBackend::stream_synchronize(memra_stream stream) {
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  return target->synchronize();
}

Status CpuBackend::event_create(std::unique_ptr<Event>* event) {
  *event = std::make_unique<CpuEvent>(core_);
  return MEMRA_OK;
}

Status CpuBackend::stream_wait_event(memra_stream stream, Event& event) {
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  return target->wait(static_cast<CpuEvent&>(event).state());
}

Status CpuBackend::graph_begin(memra_stream stream) {
  if (stream == nullptr) {
    return fail(MEMRA_ERROR_INVALID_ARGUMENT)
           << "stream is NULL: legal is a stream of memra_stream_create";
  }
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  return target->begin_recording();
}

Status CpuBackend::graph_end(memra_stream stream, std::unique_ptr<Graph>* graph) {
  graph->reset();
  Stream* target = nullptr;
  MEMRA_TRY(core_->find(stream, &target));
  std::shared_ptr<GraphBody> body;
  MEMRA_TRY(target->end_recording(&body));
  *graph = std::make_unique<CpuGraph>(core_, std::move(body));
  return MEMRA_OK;
}

// ---- Weights ----

Status CpuBackend::repack_v2(const memra_repack_args& args, memra_stream stream) {
  return enqueue(stream,
                 [args](const TaskContext& context) { cpu::repack_v2(args, context.pool); });
}

Status CpuBackend::import_nvfp4(const memra_import_args& args, memra_stream stream) {
  return enqueue(stream,
                 [args](const TaskContext& context) { cpu::import_nvfp4(args, context.pool); });
}

Status CpuBackend::quantize_nvfp4(const memra_quantize_args& args, memra_stream stream) {
  return enqueue(stream,
                 [args](const TaskContext& context) { cpu::quantize_nvfp4(args, context.pool); });
}

Status CpuBackend::dequantize(const memra_dequantize_args& args, memra_stream stream) {
  return enqueue(stream,
                 [args](const TaskContext& context) { cpu::dequantize(args, context.pool); });
}

// ---- Rows ----

RowsChoice CpuBackend::choose_rows(const RowsShape&, int64_t tokens) const {
  // Experts are shared only between tokens.
  if (tokens == 1) return {MEMRA_ROWS_PLAIN, MEMRA_ROWS_PLAIN};
  return {MEMRA_ROWS_DEDUP_ORDER, MEMRA_ROWS_PLAIN};
}

const char* CpuBackend::kernel_name(memra_format format, uint32_t variant) const {
  if (format == MEMRA_NVFP4) return kernels_.name_v1;
  return (variant & MEMRA_ROWS_LANE_MAJOR) != 0 ? kernels_.name_v2_lane_major : kernels_.name_v2;
}

const char* CpuBackend::gate_up_kernel_name(const RowsShape& shape, uint32_t variant) const {
  if (shape.gate_format != shape.up_format) return kernels_.name_mixed;
  return kernel_name(shape.gate_format, variant);
}

const char* CpuBackend::down_kernel_name(const RowsShape& shape, uint32_t variant) const {
  return kernel_name(shape.down_format, variant);
}

Status CpuBackend::prepare_pairs(const PreparePairsArgs& args, const Launch& launch) {
  return enqueue(launch.stream, [args](const TaskContext&) { cpu::prepare_pairs(args); });
}

Status CpuBackend::quantize_q8(const QuantizeQ8Args& args, const Launch& launch) {
  return enqueue(launch.stream, [args, &kernels = kernels_](const TaskContext& context) {
    cpu::quantize_q8(args, kernels, context.pool);
  });
}

Status CpuBackend::q8_to_lane_major(const int8_t* q, int64_t rows, int64_t columns, int8_t* out,
                                    memra_stream stream) {
  return enqueue(stream, [=](const TaskContext& context) {
    cpu::q8_to_lane_major(q, rows, columns, out, context.pool);
  });
}

Status CpuBackend::rows_gate_up(const memra_rows_gate_up_args& args, const Launch& launch) {
  return enqueue(launch.stream, [args, &kernels = kernels_](const TaskContext& context) {
    cpu::rows_gate_up(args, kernels, kernels.dots, context.pool);
  });
}

Status CpuBackend::rows_down(const memra_rows_down_args& args, const Launch& launch) {
  return enqueue(launch.stream, [args, &kernels = kernels_](const TaskContext& context) {
    cpu::rows_down(args, kernels, kernels.dots, context.pool);
  });
}

const DotsFunctions& CpuBackend::probe_dots(memra_probe_arm arm) const {
  return arm == MEMRA_PROBE_LOADONLY ? kernels_.dots_load_only : kernels_.dots_math_only;
}

Status CpuBackend::rows_probe_gate_up(memra_probe_arm arm, const memra_rows_gate_up_args& args,
                                      const Launch& launch) {
  const RowsKernels& kernels = kernels_;
  if (arm == MEMRA_PROBE_STREAM) {
    const ReadSlabs slabs{args.ptrs, args.tokens * args.top_k, 0, 2,
                          numerics::slab_bytes(args.intermediate_size, args.hidden_size)};
    return enqueue(launch.stream, [slabs, &kernels](const TaskContext& context) {
      read_slabs(slabs, kernels, context.pool);
    });
  }
  const DotsFunctions& dots = probe_dots(arm);
  return enqueue(launch.stream, [args, &kernels, &dots](const TaskContext& context) {
    cpu::rows_gate_up(args, kernels, dots, context.pool);
  });
}

Status CpuBackend::rows_probe_down(memra_probe_arm arm, const memra_rows_down_args& args,
                                   const Launch& launch) {
  const RowsKernels& kernels = kernels_;
  if (arm == MEMRA_PROBE_STREAM) {
    const ReadSlabs slabs{args.ptrs, args.tokens * args.top_k, 2, 1,
                          numerics::slab_bytes(args.hidden_size, args.intermediate_size)};
    return enqueue(launch.stream, [slabs, &kernels](const TaskContext& context) {
      read_slabs(slabs, kernels, context.pool);
    });
  }
  const DotsFunctions& dots = probe_dots(arm);
  return enqueue(launch.stream, [args, &kernels, &dots](const TaskContext& context) {
    cpu::rows_down(args, kernels, dots, context.pool);
  });
}

// ---- Routing and grouped ----

Status CpuBackend::topk(const memra_moe_topk_args& args, const Launch& launch) {
  return enqueue(launch.stream, [args, &kernels = kernels_](const TaskContext& context) {
    cpu::topk(args, kernels.grouped, context.pool);
  });
}

Status CpuBackend::route_workspace(int64_t, int64_t n_local_experts, uint64_t* bytes) const {
  *bytes = cpu::route_workspace(n_local_experts);
  return MEMRA_OK;
}

Status CpuBackend::route(const memra_moe_route_args& args, const Launch& launch) {
  return enqueue(launch.stream, [args](const TaskContext&) { cpu::route(args); });
}

Status CpuBackend::gather_f16(const memra_moe_gather_f16_args& args, const Launch& launch) {
  return enqueue(launch.stream, [args, &kernels = kernels_](const TaskContext& context) {
    cpu::gather_f16(args, kernels.grouped, context.pool);
  });
}

Status CpuBackend::grouped_gemm_workspace(int64_t /*rows*/, int64_t /*n_experts*/,
                                          uint64_t* bytes) const {
  *bytes = 0;
  return MEMRA_OK;
}

Status CpuBackend::grouped_gemm(const memra_moe_grouped_gemm_args& args, const Launch& launch) {
  return enqueue(launch.stream, [args, &kernels = kernels_](const TaskContext& context) {
    cpu::grouped_gemm(args, kernels.grouped, context.pool);
  });
}

bool CpuBackend::plan_grouped(const GroupedShape&, GroupedPlan* plan) const {
  *plan = {.min_tokens = kGroupedMinTokens,
           .gate_up_kernel = kernels_.grouped.name,
           .down_kernel = kernels_.grouped.name};
  return true;
}

uint64_t CpuBackend::grouped_workspace(const GroupedShape& shape, int64_t tokens) const {
  return cpu::grouped_workspace(shape, tokens);
}

Status CpuBackend::grouped_layer(const GroupedLayerArgs& args, const Launch& launch) {
  return enqueue(launch.stream, [args, &kernels = kernels_](const TaskContext& context) {
    cpu::grouped_layer(args, kernels, context.pool);
  });
}

}  // namespace memra::cpu

namespace memra {

Status make_cpu_backend(const BackendConfig& config, std::shared_ptr<Backend>* backend) {
  const cpu::RowsKernels* kernels = &cpu::best_kernels();
  if (!config.cpu_simd.empty()) MEMRA_TRY(cpu::find_kernels(config.cpu_simd, &kernels));
  return cpu::CpuBackend::create(config, *kernels, backend);
}

}  // namespace memra
