#include "cuda_backend.h"

#include <algorithm>
#include <cstring>

#include "event_graph.h"
#include "grouped.h"
#include "grouped_products.h"
#include "path_table.h"
#include "rows.h"
#include "stages.h"
#include "weights.h"

// Everything below runs in the device's primary context.
#define MEMRA_CUDA_ENTER()             \
  const ContextGuard guard(*context_); \
  MEMRA_TRY(guard.status())

namespace memra::cuda {
namespace {

cudaStream_t as_stream(memra_stream stream) {
  return static_cast<cudaStream_t>(stream);
}

template <size_t kSize>
void copy_text(char (&dst)[kSize], std::string_view text) {
  const size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(dst, text.data(), size);
  std::memset(dst + size, 0, kSize - size);
}

}  // namespace

// ---- Life

Status CudaBackend::create(const BackendConfig& config, std::shared_ptr<Backend>* backend) {
  const Driver* driver = nullptr;
  MEMRA_TRY(load_driver(&driver));
  const RelaxedCapture relaxed(*driver);
  std::shared_ptr<Context> context;
  MEMRA_TRY(Context::create(*driver, config.device, &context));
  const ContextGuard guard(*context);
  MEMRA_TRY(guard.status());

  std::shared_ptr<CudaBackend> made(new CudaBackend(context));
  MEMRA_TRY(made->read_device(config.device));
  const Status status = made->load_kernels(config.dependent_launch);
  if (status == MEMRA_ERROR_NO_KERNEL_IMAGE) {
    const Device& device = made->device_;
    return fail(MEMRA_ERROR_NO_KERNEL_IMAGE)
           << "device " << device.ordinal << " (" << made->name_ << ") has compute capability "
           << device.compute_capability / 10 << "." << device.compute_capability % 10
           << "; the library holds machine code or PTX for " << cuda_archs() << " only";
  }
  MEMRA_TRY(status);
  MEMRA_CUDA_TRY(cudaStreamCreateWithFlags(&made->upload_stream_, cudaStreamNonBlocking));
  MEMRA_TRY(made->exchanges_.create(made->upload_stream_));
  MEMRA_TRY(made->make_pool());
  Peers::of_process().add(*made);
  *backend = std::move(made);
  return MEMRA_OK;
}

Status CudaBackend::read_device(int ordinal) {
  cudaDeviceProp properties{};
  MEMRA_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
  device_.driver = &context_->driver();
  device_.ordinal = ordinal;
  device_.compute_capability = 10 * properties.major + properties.minor;
  device_.n_multiprocessors = properties.multiProcessorCount;
  device_.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  device_.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
  name_ = properties.name;
  memory_bytes_ = properties.totalGlobalMem;
  return MEMRA_OK;
}

Status CudaBackend::load_kernels(bool dependent_launch) {
  int ptx_version = 0;
  MEMRA_TRY(stages_pairs_load(&ptx_version));
  MEMRA_TRY(stages_q8_load());
  MEMRA_TRY(weights_report_load());
  MEMRA_TRY(weights_repack_load());
  MEMRA_TRY(weights_import_load());
  MEMRA_TRY(weights_quantize_load());
  MEMRA_TRY(weights_dequantize_load());
  MEMRA_TRY(topk_load());
  MEMRA_TRY(route_load());
  MEMRA_TRY(gather_f16_load());
  MEMRA_TRY(sum_slots_load());
  MEMRA_TRY(products_load(&device_));
  // Kernels compiled for less than sm_90 do not wait for their predecessor themselves, whatever the
  // device is.
  device_.dependent_launch =
      dependent_launch && device_.compute_capability >= 90 && ptx_version >= 90;
  return rows_load(device_);
}

Status CudaBackend::make_pool() {
  int supported = 0;
  MEMRA_CUDA_TRY(
      cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device_.ordinal));
  if (supported == 0) return MEMRA_OK;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device_.ordinal;
  MEMRA_CUDA_TRY(cudaMemPoolCreate(&pool_, &properties));
  // Freed memory stays in the pool: by default every wait of the host gives it back to the system,
  // and the next allocation takes a millisecond. And a stream is never made to wait for another one
  // so that it may have that one's memory.
  uint64_t keep = UINT64_MAX;
  MEMRA_CUDA_TRY(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
  int off = 0;
  MEMRA_CUDA_TRY(cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &off));
  return MEMRA_OK;
}

bool CudaBackend::reach(PeerDevice& other) {
  const auto& peer = static_cast<const CudaBackend&>(other);
  const ContextGuard guard(*context_);
  const RelaxedCapture relaxed(context_->driver());
  int possible = 0;
  if (!guard.ok() ||
      cudaDeviceCanAccessPeer(&possible, device_.ordinal, peer.device_.ordinal) != cudaSuccess) {
    return false;
  }
  if (possible == 0) return false;
  // Already enabled, by the caller for one, is as good.
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer.device_.ordinal, 0);
  if (enabled != cudaSuccess && enabled != cudaErrorPeerAccessAlreadyEnabled) return false;
  if (peer.pool_ == nullptr) return true;
  // Pools do not follow the context's access.
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = device_.ordinal;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  return cudaMemPoolSetAccess(peer.pool_, &access, 1) == cudaSuccess;
}

CudaBackend::~CudaBackend() {
  Peers::of_process().remove(*this);
  shutdown();
  if (upload_stream_ == nullptr || !context_->intact()) return;
  const ContextGuard guard(*context_);
  const RelaxedCapture relaxed(context_->driver());
  if (!guard.ok()) return;
  exchanges_.destroy(upload_stream_);
  cudaStreamDestroy(upload_stream_);
  // What is still allocated from it lives on until it is freed.
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

void CudaBackend::shutdown() {
  std::vector<cudaStream_t> streams;
  {
    const std::lock_guard lock(mutex_);
    streams.swap(streams_);
  }
  if (streams.empty() || !context_->intact()) return;
  const ContextGuard guard(*context_);
  if (!guard.ok()) return;
  const RelaxedCapture relaxed(context_->driver());
  for (cudaStream_t stream : streams) {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

void CudaBackend::describe(memra_engine_properties& properties) const {
  properties.backend = MEMRA_BACKEND_CUDA;
  properties.device = device_.ordinal;
  properties.compute_capability = device_.compute_capability;
  properties.n_multiprocessors = device_.n_multiprocessors;
  properties.cpu_threads = 0;
  properties.driver_version = context_->driver().version;
  properties.runtime_version = CUDART_VERSION;
  properties.dependent_launch = device_.dependent_launch ? 1 : 0;
  properties.l2_bytes = device_.l2_bytes;
  properties.memory_bytes = memory_bytes_;
  properties.peer_devices = Peers::of_process().of(*this);
  copy_text(properties.device_name, name_);
  copy_text(properties.simd, "");
}

Status CudaBackend::not_reset() const {
  if (context_->intact()) return MEMRA_OK;
  return fail(MEMRA_ERROR_CUDA) << "device " << device_.ordinal
                                << " was reset after the engine was created";
}

// ---- Memory

Status CudaBackend::alloc(uint64_t bytes, void** ptr) {
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_CUDA_TRY(cudaMalloc(ptr, bytes));
  return MEMRA_OK;
}

Status CudaBackend::free(void* ptr) {
  // After a reset the address may be another's.
  MEMRA_TRY(not_reset());
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_CUDA_TRY(cudaFree(ptr));
  return MEMRA_OK;
}

Status CudaBackend::alloc_async(uint64_t bytes, memra_stream stream, void** ptr) {
  MEMRA_CUDA_ENTER();
  if (pool_ == nullptr) return fail(MEMRA_ERROR_UNSUPPORTED) << "the device has no memory pools";
  MEMRA_CUDA_TRY(cudaMallocFromPoolAsync(ptr, bytes, pool_, as_stream(stream)));
  return MEMRA_OK;
}

Status CudaBackend::free_async(void* ptr, memra_stream stream) {
  MEMRA_CUDA_ENTER();
  MEMRA_CUDA_TRY(cudaFreeAsync(ptr, as_stream(stream)));
  return MEMRA_OK;
}

Status CudaBackend::alloc_host(uint64_t bytes, void** ptr) {
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_CUDA_TRY(cudaHostAlloc(ptr, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
  return MEMRA_OK;
}

Status CudaBackend::free_host(void* ptr) {
  MEMRA_TRY(not_reset());
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_CUDA_TRY(cudaFreeHost(ptr));
  return MEMRA_OK;
}

Status CudaBackend::memcpy_async(void* dst, const void* src, uint64_t bytes, memra_stream stream) {
  MEMRA_CUDA_ENTER();
  MEMRA_CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, as_stream(stream)));
  return MEMRA_OK;
}

Status CudaBackend::memset_async(void* dst, int32_t value, uint64_t bytes, memra_stream stream) {
  MEMRA_CUDA_ENTER();
  MEMRA_CUDA_TRY(cudaMemsetAsync(dst, value & 0xFF, bytes, as_stream(stream)));
  return MEMRA_OK;
}

Status CudaBackend::memcpy_from(Backend& src_backend, void* dst, const void* src, uint64_t bytes,
                                memra_stream stream) {
  const auto& peer = static_cast<CudaBackend&>(src_backend);
  if (peer.device_.ordinal == device_.ordinal) return memcpy_async(dst, src, bytes, stream);
  MEMRA_CUDA_ENTER();
  // Straight where the devices reach each other, and otherwise staged, by CUDA.
  MEMRA_CUDA_TRY(cudaMemcpyPeerAsync(dst, device_.ordinal, src, peer.device_.ordinal, bytes,
                                     as_stream(stream)));
  return MEMRA_OK;
}

Status CudaBackend::upload(void* dst, const void* src, uint64_t bytes) {
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, upload_stream_));
  MEMRA_CUDA_TRY(cudaStreamSynchronize(upload_stream_));
  return MEMRA_OK;
}

// ---- Streams, events, graphs

Status CudaBackend::not_capturing(memra_stream stream) const {
  // The default stream is never captured, and asking it can break a capture elsewhere.
  if (stream == nullptr) return MEMRA_OK;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MEMRA_CUDA_TRY(cudaStreamIsCapturing(as_stream(stream), &status));
  if (status == cudaStreamCaptureStatusNone) return MEMRA_OK;
  return fail(MEMRA_ERROR_INVALID_STATE) << "the stream is being captured";
}

Status CudaBackend::stream_create(memra_stream* stream) {
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  const std::lock_guard lock(mutex_);
  streams_.reserve(streams_.size() + 1);
  cudaStream_t made = nullptr;
  MEMRA_CUDA_TRY(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  streams_.push_back(made);
  *stream = made;
  return MEMRA_OK;
}

Status CudaBackend::stream_destroy(memra_stream stream) {
  MEMRA_TRY(not_reset());
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(streams_.begin(), streams_.end(), as_stream(stream));
    if (found == streams_.end()) {
      return fail(MEMRA_ERROR_INVALID_ARGUMENT)
             << "stream " << static_cast<const void*>(stream)
             << " is not a live stream of memra_stream_create on this engine";
    }
    MEMRA_TRY(not_capturing(stream));
    streams_.erase(found);
  }
  const cudaError_t waited = cudaStreamSynchronize(as_stream(stream));
  const cudaError_t destroyed = cudaStreamDestroy(as_stream(stream));
  if (waited != cudaSuccess) return cuda_failure(waited, "cudaStreamSynchronize");
  if (destroyed != cudaSuccess) return cuda_failure(destroyed, "cudaStreamDestroy");
  return MEMRA_OK;
}

Status CudaBackend::stream_query(memra_stream stream) {
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_TRY(not_capturing(stream));
  const cudaError_t error = cudaStreamQuery(as_stream(stream));
  if (error == cudaErrorNotReady) return MEMRA_NOT_READY;
  return error == cudaSuccess ? MEMRA_OK : cuda_failure(error, "cudaStreamQuery");
}

Status CudaBackend::stream_synchronize(memra_stream stream) {
  MEMRA_CUDA_ENTER();
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_TRY(not_capturing(stream));
  MEMRA_CUDA_TRY(cudaStreamSynchronize(as_stream(stream)));
  return MEMRA_OK;
}

Status CudaBackend::event_create(std::unique_ptr<Event>* event) {
  return CudaEvent::create(context_, event);
}

Status CudaBackend::stream_wait_event(memra_stream stream, Event& event) {
  const auto& waited_for = static_cast<CudaEvent&>(event);
  if (!waited_for.recorded()) return MEMRA_OK;
  MEMRA_CUDA_ENTER();
  MEMRA_CUDA_TRY(cudaStreamWaitEvent(as_stream(stream), waited_for.handle(), 0));
  return MEMRA_OK;
}

Status CudaBackend::graph_begin(memra_stream stream) {
  MEMRA_CUDA_ENTER();
  MEMRA_TRY(not_capturing(stream));
  MEMRA_CUDA_TRY(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal));
  return MEMRA_OK;
}

Status CudaBackend::graph_end(memra_stream stream, std::unique_ptr<Graph>* graph) {
  MEMRA_CUDA_ENTER();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MEMRA_CUDA_TRY(cudaStreamIsCapturing(as_stream(stream), &status));
  if (status == cudaStreamCaptureStatusNone) {
    return fail(MEMRA_ERROR_INVALID_STATE) << "no recording was begun on the stream";
  }
  // Ends the capture whether or not it succeeds.
  cudaGraph_t source = nullptr;
  MEMRA_CUDA_TRY(cudaStreamEndCapture(as_stream(stream), &source));
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> owner(source, cudaGraphDestroy);
  const RelaxedCapture relaxed(context_->driver());
  return CudaGraph::create(context_, source, graph);
}

// ---- Weights

Status CudaBackend::repack_v2(const memra_repack_args& args, memra_stream stream) {
  MEMRA_CUDA_ENTER();
  return cuda::repack_v2(device_, args, stream);
}

Status CudaBackend::import_nvfp4(const memra_import_args& args, memra_stream stream) {
  MEMRA_CUDA_ENTER();
  return cuda::import_nvfp4(device_, args, stream);
}

Status CudaBackend::quantize_nvfp4(const memra_quantize_args& args, memra_stream stream) {
  MEMRA_CUDA_ENTER();
  return cuda::quantize_nvfp4(device_, args, stream);
}

Status CudaBackend::dequantize(const memra_dequantize_args& args, memra_stream stream) {
  MEMRA_CUDA_ENTER();
  return cuda::dequantize(device_, args, stream);
}

// ---- Rows

RowsChoice CudaBackend::choose_rows(const RowsShape& shape, int64_t tokens) const {
  return cuda::choose_rows(device_, shape, tokens);
}

const char* CudaBackend::gate_up_kernel_name(const RowsShape& shape, uint32_t variant) const {
  return cuda::gate_up_kernel_name(device_, shape, variant);
}

const char* CudaBackend::down_kernel_name(const RowsShape& shape, uint32_t variant) const {
  return cuda::down_kernel_name(device_, shape, variant);
}

Status CudaBackend::prepare_pairs(const PreparePairsArgs& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::prepare_pairs(device_, args, launch);
}

Status CudaBackend::quantize_q8(const QuantizeQ8Args& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::quantize_q8(device_, args, launch);
}

Status CudaBackend::q8_to_lane_major(const int8_t* q, int64_t rows, int64_t columns, int8_t* out,
                                     memra_stream stream) {
  MEMRA_CUDA_ENTER();
  return cuda::q8_to_lane_major(device_, q, rows, columns, out, stream);
}

Status CudaBackend::rows_gate_up(const memra_rows_gate_up_args& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::rows_gate_up(device_, RowsArm::kServed, args, launch);
}

Status CudaBackend::rows_layer(const RowsLayerArgs& args, const Launch& launch, bool* taken) {
  *taken = false;
  if (!rows_layer_fits(device_, args)) return MEMRA_OK;
  Exchange* exchange = exchanges_.of(args.workspace);
  if (exchange == nullptr) return MEMRA_OK;
  MEMRA_CUDA_ENTER();
  return cuda::rows_layer(device_, args, exchange, launch, taken);
}

Status CudaBackend::rows_down(const memra_rows_down_args& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::rows_down(device_, RowsArm::kServed, args, launch);
}

namespace {

RowsArm rows_arm(memra_probe_arm arm) {
  switch (arm) {
    case MEMRA_PROBE_LOADONLY:
      return RowsArm::kLoadOnly;
    case MEMRA_PROBE_MATHONLY:
      return RowsArm::kMathOnly;
    default:
      return RowsArm::kStream;
  }
}

}  // namespace

Status CudaBackend::rows_probe_gate_up(memra_probe_arm arm, const memra_rows_gate_up_args& args,
                                       const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::rows_gate_up(device_, rows_arm(arm), args, launch);
}

Status CudaBackend::rows_probe_down(memra_probe_arm arm, const memra_rows_down_args& args,
                                    const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::rows_down(device_, rows_arm(arm), args, launch);
}

// ---- Routing and grouped

Status CudaBackend::topk(const memra_moe_topk_args& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::topk(device_, args, launch);
}

Status CudaBackend::route_workspace(int64_t n_pairs, int64_t n_local_experts,
                                    uint64_t* bytes) const {
  *bytes = cuda::route_workspace(n_pairs, n_local_experts);
  return MEMRA_OK;
}

Status CudaBackend::route(const memra_moe_route_args& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::route(device_, args, launch);
}

Status CudaBackend::gather_f16(const memra_moe_gather_f16_args& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::gather_f16(device_, args, launch);
}

Status CudaBackend::grouped_gemm_workspace(int64_t rows, int64_t n_experts, uint64_t* bytes) const {
  if (!device_.grouped) return lacks("memra_moe_grouped_gemm");
  *bytes = tile_plans_size(rows, n_experts);
  return MEMRA_OK;
}

Status CudaBackend::grouped_gemm(const memra_moe_grouped_gemm_args& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::grouped_gemm(device_, args, launch);
}

bool CudaBackend::plan_grouped(const GroupedShape& shape, GroupedPlan* plan) const {
  if (!device_.grouped) return false;
  const auto table =
      path_table(all_v2(shape.gate_format, shape.up_format, shape.down_format), shape.hidden_size);
  plan->min_tokens = path_rule(table, shape.n_experts, shape.top_k).min_tokens;
  plan->gate_up_kernel =
      gate_up_product_name(device_, shape.gate_format, shape.up_format, shape.hidden_size);
  plan->down_kernel = plane_product_name(device_, shape.down_format, shape.intermediate_size);
  return true;
}

uint64_t CudaBackend::grouped_workspace(const GroupedShape& shape, int64_t tokens) const {
  return grouped_layer_workspace(shape, tokens);
}

Status CudaBackend::grouped_layer(const GroupedLayerArgs& args, const Launch& launch) {
  MEMRA_CUDA_ENTER();
  return cuda::grouped_layer(device_, args, launch);
}

}  // namespace memra::cuda

namespace memra {

Status make_cuda_backend(const BackendConfig& config, std::shared_ptr<Backend>* backend) {
  return cuda::CudaBackend::create(config, backend);
}

int32_t cuda_runtime_version() {
  return CUDART_VERSION;
}

const char* cuda_archs() {
  return MEMRA_CUDA_ARCHS;
}

}  // namespace memra
