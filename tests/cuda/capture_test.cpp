// Stream capture: first calls on a cold engine, and captures of others that must not break.

#include <functional>
#include <thread>

#include "world.h"

namespace memra::cuda_test {
namespace {

class Stream {
 public:
  Stream() { EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Records what `work` enqueues; the graph is run by replay().
class Recording {
 public:
  Recording(cudaStream_t stream, cudaStreamCaptureMode mode, const std::function<void()>& work)
      : stream_(stream) {
    EXPECT_CUDA(cudaStreamBeginCapture(stream, mode));
    work();
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph_));
    if (graph_ != nullptr) {
      EXPECT_CUDA(cudaGraphInstantiate(&exec_, graph_, 0));
    }
  }
  ~Recording() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  bool ok() const { return exec_ != nullptr; }
  size_t n_nodes() const {
    size_t count = 0;
    EXPECT_CUDA(cudaGraphGetNodes(graph_, nullptr, &count));
    return count;
  }
  void replay() const {
    EXPECT_CUDA(cudaGraphLaunch(exec_, stream_));
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

class CudaCapture : public CudaTest {};

TEST_F(CudaCapture, FirstCallOfAColdEngine) {
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
        cudaStreamCaptureModeRelaxed}) {
    const Engine engine = make_engine();
    ASSERT_NE(engine, nullptr);
    Layer layer;
    ASSERT_MEMRA(layer.create(engine.get()));
    const Stream stream;
    const Recording recording(stream, mode, [&] { EXPECT_MEMRA(layer.run(stream)); });
    ASSERT_TRUE(recording.ok());
    for (const int seed : {1, 2, 3}) {
      layer.set_activations(seed);
      layer.poison_output();
      recording.replay();
      const std::vector<uint8_t> replayed = layer.output();
      EXPECT_TRUE(is_informative(replayed));
      EXPECT_EQ(replayed, layer.expected());
    }
  }
}

TEST_F(CudaCapture, FirstConversionsOfAColdEngine) {
  constexpr int64_t kRows = 64, kColumns = 192, kExperts = 3;
  constexpr uint64_t kSlab = kRows * kColumns * 9 / 16;
  const Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  std::vector<float> values(kExperts * kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 1777) - 800.0f;
  const DeviceBuffer source(values), v1(kExperts * kSlab), v2(kExperts * kSlab),
      in_place(kExperts * kSlab), workspace(kSlab), scales(kExperts * sizeof(float)),
      report(sizeof(memra_weight_report)), result(values.size() * sizeof(float)),
      result_v2(values.size() * sizeof(float));

  const auto convert = [&](cudaStream_t stream) {
    memra_quantize_args quantize = MEMRA_QUANTIZE_ARGS_INIT;
    quantize.format = MEMRA_NVFP4;
    quantize.rows = kRows;
    quantize.columns = kColumns;
    quantize.n_experts = kExperts;
    quantize.src = source.as();
    quantize.compute_expert_scale = 1;
    quantize.dst = v1.as();
    quantize.expert_scales = scales.as<float>();
    quantize.report = report.as<memra_weight_report>();
    EXPECT_MEMRA(memra_quantize_nvfp4(engine.get(), &quantize, stream));
    memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
    repack.rows = kRows;
    repack.columns = kColumns;
    repack.n_experts = kExperts;
    repack.src = v1.as();
    repack.dst = v2.as();
    repack.report = report.as<memra_weight_report>();
    EXPECT_MEMRA(memra_repack_v2(engine.get(), &repack, stream));
    EXPECT_MEMRA(memra_memcpy(engine.get(), in_place.as(), v1.as(), kExperts * kSlab, stream));
    repack.src = in_place.as();
    repack.dst = in_place.as();
    repack.workspace = workspace.as();
    repack.workspace_bytes = kSlab;
    EXPECT_MEMRA(memra_repack_v2(engine.get(), &repack, stream));
    memra_dequantize_args dequantize = MEMRA_DEQUANTIZE_ARGS_INIT;
    dequantize.format = MEMRA_NVFP4;
    dequantize.rows = kRows;
    dequantize.columns = kColumns;
    dequantize.n_experts = kExperts;
    dequantize.src = v1.as();
    dequantize.expert_scales = scales.as<float>();
    dequantize.dst = result.as();
    EXPECT_MEMRA(memra_dequantize(engine.get(), &dequantize, stream));
    dequantize.format = MEMRA_NVFP4_V2;
    dequantize.src = in_place.as();
    dequantize.dst = result_v2.as();
    EXPECT_MEMRA(memra_dequantize(engine.get(), &dequantize, stream));
  };

  const Stream stream;
  const Recording recording(stream, cudaStreamCaptureModeGlobal, [&] { convert(stream); });
  ASSERT_TRUE(recording.ok());
  recording.replay();
  EXPECT_TRUE(is_informative(result.bytes()));
  EXPECT_EQ(result.bytes(), result_v2.bytes());
  EXPECT_EQ(v2.bytes(), in_place.bytes());
  memra_weight_report found;
  std::memcpy(&found, report.bytes().data(), sizeof(found));
  EXPECT_EQ(found.invalid_scales, 0u);
  EXPECT_EQ(found.first_expert, -1);
}

// Logits to gathered rows; so many pairs that sorting them takes two launches.
TEST_F(CudaCapture, FirstRoutingOfAColdEngine) {
  constexpr int64_t kTokens = 600, kExperts = 200, kTopK = 8, kColumns = 192;
  constexpr int64_t kPairs = kTokens * kTopK;
  const Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  std::vector<float> values(kTokens * kExperts);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 7919 % 1009) / 100.0f;
  uint64_t workspace_bytes = 0;
  ASSERT_MEMRA(
      memra_moe_route_workspace_size(engine.get(), kTokens, kTopK, kExperts, &workspace_bytes));
  const DeviceBuffer logits(values), ids(kPairs * 4), weights(kPairs * 4), n_active(4),
      active(kExperts * 4), offsets((kExperts + 1) * 4), order(kPairs * 4), inverse(kPairs * 4),
      workspace(workspace_bytes), z(kPairs * kColumns * 2), zs(kPairs * 4);
  const auto outputs = [&] {
    std::vector<std::vector<uint8_t>> all;
    for (const DeviceBuffer* buffer :
         {&ids, &weights, &n_active, &active, &offsets, &order, &inverse, &z, &zs})
      all.push_back(buffer->bytes());
    return all;
  };
  const auto enqueue = [&](cudaStream_t stream) {
    memra_moe_topk_args topk = MEMRA_MOE_TOPK_ARGS_INIT;
    topk.logits = logits.as();
    topk.tokens = kTokens;
    topk.n_experts = kExperts;
    topk.top_k = kTopK;
    topk.topk_ids = ids.as<int32_t>();
    topk.topk_weights = weights.as<float>();
    EXPECT_MEMRA(memra_moe_topk(engine.get(), &topk, stream));
    memra_moe_route_args route = MEMRA_MOE_ROUTE_ARGS_INIT;
    route.tokens = kTokens;
    route.top_k = kTopK;
    route.n_experts = kExperts;
    route.topk_ids = ids.as<int32_t>();
    route.n_active = n_active.as<int32_t>();
    route.active_experts = active.as<int32_t>();
    route.offsets = offsets.as<int32_t>();
    route.pair_order = order.as<int32_t>();
    route.inverse = inverse.as<int32_t>();
    route.workspace = workspace.as();
    route.workspace_bytes = workspace_bytes;
    EXPECT_MEMRA(memra_moe_route(engine.get(), &route, stream));
    memra_moe_gather_f16_args gather = MEMRA_MOE_GATHER_F16_ARGS_INIT;
    gather.x = logits.as();  // any floats will do
    gather.source_rows = kTokens;
    gather.rows = kPairs;
    gather.columns = kColumns;
    gather.z = z.as();
    gather.zs = zs.as<float>();
    gather.index = order.as<int32_t>();
    gather.top_k = kTopK;
    EXPECT_MEMRA(memra_moe_gather_f16(engine.get(), &gather, stream));
  };

  const Stream stream;
  const Recording recording(stream, cudaStreamCaptureModeGlobal, [&] { enqueue(stream); });
  ASSERT_TRUE(recording.ok());
  recording.replay();
  const auto replayed = outputs();
  EXPECT_TRUE(is_informative(weights.bytes()));
  for (const DeviceBuffer* buffer : {&ids, &weights, &order, &z, &zs})
    EXPECT_CUDA(cudaMemset(buffer->as(), 0xFF, buffer->bytes().size()));
  enqueue(nullptr);
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(replayed, outputs());
}

// Everything that is not enqueued on a stream, from one thread.
void manage() {
  const Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  void* memory = nullptr;
  EXPECT_MEMRA(memra_alloc(engine.get(), 1 << 20, &memory));
  void* host = nullptr;
  EXPECT_MEMRA(memra_alloc_host(engine.get(), 1 << 16, &host));
  memra_stream stream = nullptr;
  EXPECT_MEMRA(memra_stream_create(engine.get(), &stream));
  memra_event* event = nullptr;
  EXPECT_MEMRA(memra_event_create(engine.get(), &event));
  EXPECT_MEMRA(memra_memset(engine.get(), memory, 0, 1 << 20, stream));
  EXPECT_MEMRA(memra_event_record(event, stream));
  EXPECT_MEMRA(memra_event_synchronize(event));
  EXPECT_MEMRA(memra_stream_synchronize(engine.get(), stream));
  EXPECT_MEMRA(memra_stream_query(engine.get(), stream));
  memra_event_destroy(event);
  EXPECT_MEMRA(memra_stream_destroy(engine.get(), stream));
  EXPECT_MEMRA(memra_free_host(engine.get(), host));
  EXPECT_MEMRA(memra_free(engine.get(), memory));
}

TEST_F(CudaCapture, OfAnotherThreadSurvivesCreationAndManagement) {
  const Stream stream;
  const DeviceBuffer buffer(64);
  Layer layer;  // its buffers, before the capture
  const Recording recording(stream, cudaStreamCaptureModeGlobal, [&] {
    EXPECT_CUDA(cudaMemsetAsync(buffer.as(), 1, 32, stream));
    std::thread([&] {
      manage();
      // Layer creation copies tables to the device.
      const Engine engine = make_engine();
      ASSERT_NE(engine, nullptr);
      EXPECT_MEMRA(layer.create(engine.get()));
      layer.destroy();
    }).join();
    EXPECT_CUDA(cudaMemsetAsync(buffer.as<char>() + 32, 2, 32, stream));
  });
  ASSERT_TRUE(recording.ok());
  EXPECT_EQ(recording.n_nodes(), 2u);
  recording.replay();
  EXPECT_EQ(buffer.bytes()[0], 1);
  EXPECT_EQ(buffer.bytes()[63], 2);
}

TEST_F(CudaCapture, OfTheSameThreadSurvivesCreationAndManagement) {
  const Stream stream;
  const DeviceBuffer buffer(64);
  const Recording recording(stream, cudaStreamCaptureModeGlobal, [&] {
    EXPECT_CUDA(cudaMemsetAsync(buffer.as(), 1, 32, stream));
    manage();
    EXPECT_CUDA(cudaMemsetAsync(buffer.as<char>() + 32, 2, 32, stream));
  });
  ASSERT_TRUE(recording.ok());
  EXPECT_EQ(recording.n_nodes(), 2u);
}

TEST_F(CudaCapture, ModeOfTheThreadIsPutBack) {
  const Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  const cudaStreamCaptureMode original = mode;
  manage();
  ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(original, cudaStreamCaptureModeGlobal);
}

TEST_F(CudaCapture, WaitingForTheCapturedStreamIsAnErrorThatLeavesTheCapture) {
  const Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  const Stream stream;
  const DeviceBuffer buffer(64);
  const Recording recording(stream, cudaStreamCaptureModeGlobal, [&] {
    EXPECT_MEMRA(memra_memset(engine.get(), buffer.as(), 3, 64, stream));
    EXPECT_EQ(memra_stream_synchronize(engine.get(), stream), MEMRA_ERROR_INVALID_STATE);
    EXPECT_EQ(memra_stream_query(engine.get(), stream), MEMRA_ERROR_INVALID_STATE);
  });
  ASSERT_TRUE(recording.ok());
  recording.replay();
  EXPECT_EQ(buffer.bytes()[63], 3);
}

}  // namespace
}  // namespace memra::cuda_test
