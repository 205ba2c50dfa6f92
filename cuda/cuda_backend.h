#pragma once

// The CUDA backend: host code only. Kernels and their launches are in rows.h, grouped.h,
// stages.h, weights.h.

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend.h"
#include "context.h"
#include "device.h"
#include "exchange.h"
#include "peers.h"

namespace memra::cuda {

class CudaBackend final : public Backend, private PeerDevice {
 public:
  static Status create(const BackendConfig& config, std::shared_ptr<Backend>* backend);
  ~CudaBackend() override;

  memra_backend kind() const override { return MEMRA_BACKEND_CUDA; }
  int32_t device() const override { return device_.ordinal; }
  void describe(memra_engine_properties& properties) const override;
  void shutdown() override;

  Status alloc(uint64_t bytes, void** ptr) override;
  Status free(void* ptr) override;
  Status alloc_async(uint64_t bytes, memra_stream stream, void** ptr) override;
  Status free_async(void* ptr, memra_stream stream) override;
  Status alloc_host(uint64_t bytes, void** ptr) override;
  Status free_host(void* ptr) override;
  Status memcpy_async(void* dst, const void* src, uint64_t bytes, memra_stream stream) override;
  Status memset_async(void* dst, int32_t value, uint64_t bytes, memra_stream stream) override;
  Status memcpy_from(Backend& src_backend, void* dst, const void* src, uint64_t bytes,
                     memra_stream stream) override;
  Status upload(void* dst, const void* src, uint64_t bytes) override;

  Status stream_create(memra_stream* stream) override;
  Status stream_destroy(memra_stream stream) override;
  Status stream_query(memra_stream stream) override;
  Status stream_synchronize(memra_stream stream) override;
  Status event_create(std::unique_ptr<Event>* event) override;
  Status stream_wait_event(memra_stream stream, Event& event) override;
  Status graph_begin(memra_stream stream) override;
  Status graph_end(memra_stream stream, std::unique_ptr<Graph>* graph) override;

  Status repack_v2(const memra_repack_args& args, memra_stream stream) override;
  Status import_nvfp4(const memra_import_args& args, memra_stream stream) override;
  Status quantize_nvfp4(const memra_quantize_args& args, memra_stream stream) override;
  Status dequantize(const memra_dequantize_args& args, memra_stream stream) override;

  RowsChoice choose_rows(const RowsShape& shape, int64_t tokens) const override;
  const char* gate_up_kernel_name(const RowsShape& shape, uint32_t variant) const override;
  const char* down_kernel_name(const RowsShape& shape, uint32_t variant) const override;
  Status prepare_pairs(const PreparePairsArgs& args, const Launch& launch) override;
  Status quantize_q8(const QuantizeQ8Args& args, const Launch& launch) override;
  Status q8_to_lane_major(const int8_t* q, int64_t rows, int64_t columns, int8_t* out,
                          memra_stream stream) override;
  Status rows_gate_up(const memra_rows_gate_up_args& args, const Launch& launch) override;
  Status rows_down(const memra_rows_down_args& args, const Launch& launch) override;
  Status rows_layer(const RowsLayerArgs& args, const Launch& launch, bool* taken) override;
  Status rows_probe_gate_up(memra_probe_arm arm, const memra_rows_gate_up_args& args,
                            const Launch& launch) override;
  Status rows_probe_down(memra_probe_arm arm, const memra_rows_down_args& args,
                         const Launch& launch) override;

  Status topk(const memra_moe_topk_args& args, const Launch& launch) override;
  Status route_workspace(int64_t n_pairs, int64_t n_local_experts, uint64_t* bytes) const override;
  Status route(const memra_moe_route_args& args, const Launch& launch) override;
  Status gather_f16(const memra_moe_gather_f16_args& args, const Launch& launch) override;
  Status grouped_gemm_workspace(int64_t rows, int64_t n_experts, uint64_t* bytes) const override;
  Status grouped_gemm(const memra_moe_grouped_gemm_args& args, const Launch& launch) override;
  bool plan_grouped(const GroupedShape& shape, GroupedPlan* plan) const override;
  uint64_t grouped_workspace(const GroupedShape& shape, int64_t tokens) const override;
  Status grouped_layer(const GroupedLayerArgs& args, const Launch& launch) override;

 private:
  explicit CudaBackend(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  Status read_device(int ordinal);
  Status load_kernels(bool dependent_launch);
  // INVALID_STATE where the stream is being captured, so that the capture itself survives.
  Status not_capturing(memra_stream stream) const;
  Status not_reset() const;
  // Stream-ordered memory.
  Status make_pool();
  int ordinal() const override { return device_.ordinal; }
  bool reach(PeerDevice& other) override;

  std::shared_ptr<Context> context_;
  Device device_;
  std::string name_;
  uint64_t memory_bytes_ = 0;
  cudaStream_t upload_stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;  // null where the device has no pools
  Exchanges exchanges_;

  std::mutex mutex_;  // guards what follows
  std::vector<cudaStream_t> streams_;
};

}  // namespace memra::cuda
