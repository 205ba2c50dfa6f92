// Streams, events and graphs beside the CUDA runtime's own.

#include "world.h"

namespace memra::cuda_test {
namespace {

constexpr size_t kBytes = 1 << 24;

class CudaStreams : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    engine_ = make_engine();
    ASSERT_NE(engine_, nullptr);
    ASSERT_MEMRA(memra_stream_create(engine_.get(), &stream_));
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_MEMRA(memra_stream_destroy(engine_.get(), stream_));
    }
  }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_); }

  Engine engine_;
  memra_stream stream_ = nullptr;
};

TEST_F(CudaStreams, OfTheLibraryAreCudaStreams) {
  const DeviceBuffer buffer(kBytes);
  unsigned flags = 0;
  ASSERT_CUDA(cudaStreamGetFlags(stream(), &flags));
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
  ASSERT_CUDA(cudaMemsetAsync(buffer.as(), 1, kBytes, stream()));
  ASSERT_MEMRA(memra_memset(engine_.get(), buffer.as(), 0x102, kBytes / 2, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream()));
  const std::vector<uint8_t> bytes = buffer.bytes();
  EXPECT_EQ(bytes[0], 2);
  EXPECT_EQ(bytes[kBytes / 2 - 1], 2);
  EXPECT_EQ(bytes[kBytes / 2], 1);
}

TEST_F(CudaStreams, OfTheCallerOrderOurWork) {
  Layer layer;
  ASSERT_MEMRA(layer.create(engine_.get()));
  const std::vector<uint8_t> expected = layer.expected();
  EXPECT_TRUE(is_informative(expected));
  cudaStream_t own = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
  for (cudaStream_t each : {own, stream(), cudaStreamLegacy, cudaStreamPerThread}) {
    layer.poison_output();
    EXPECT_MEMRA(layer.run(each));
    EXPECT_CUDA(cudaStreamSynchronize(each));
    EXPECT_EQ(layer.output(), expected);
  }
  EXPECT_CUDA(cudaStreamDestroy(own));
}

TEST_F(CudaStreams, OfOthersAreNotDestroyed) {
  cudaStream_t own = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&own));
  EXPECT_EQ(memra_stream_destroy(engine_.get(), own), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_CUDA(cudaStreamQuery(own));
  EXPECT_CUDA(cudaStreamDestroy(own));
}

TEST_F(CudaStreams, EventsTakeTimes) {
  const DeviceBuffer buffer(kBytes);
  memra_event* start = nullptr;
  memra_event* end = nullptr;
  ASSERT_MEMRA(memra_event_create(engine_.get(), &start));
  ASSERT_MEMRA(memra_event_create(engine_.get(), &end));
  float milliseconds = -1.0f;
  EXPECT_MEMRA(memra_event_query(start));
  EXPECT_MEMRA(memra_event_synchronize(start));
  EXPECT_MEMRA(memra_event_wait(engine_.get(), start, stream_));
  EXPECT_EQ(memra_event_elapsed(start, end, &milliseconds), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_MEMRA(memra_event_record(start, stream_));
  EXPECT_EQ(memra_event_elapsed(start, end, &milliseconds), MEMRA_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < 100; ++i) {
    EXPECT_MEMRA(memra_memset(engine_.get(), buffer.as(), i, kBytes, stream_));
  }
  EXPECT_MEMRA(memra_event_record(end, stream_));
  EXPECT_MEMRA(memra_event_synchronize(end));
  EXPECT_MEMRA(memra_event_query(end));
  EXPECT_MEMRA(memra_event_elapsed(start, end, &milliseconds));
  EXPECT_GT(milliseconds, 0.0f);
  EXPECT_LT(milliseconds, 1000.0f);
  memra_event_destroy(start);
  memra_event_destroy(end);
}

TEST_F(CudaStreams, GraphsReplayAndAFailedRecordingLeavesTheStreamUsable) {
  const DeviceBuffer buffer(64);
  ASSERT_MEMRA(memra_graph_begin(engine_.get(), stream_));
  EXPECT_EQ(memra_graph_begin(engine_.get(), stream_), MEMRA_ERROR_INVALID_STATE);
  EXPECT_MEMRA(memra_memset(engine_.get(), buffer.as(), 5, 64, stream_));
  memra_graph* graph = nullptr;
  ASSERT_MEMRA(memra_graph_end(engine_.get(), stream_, &graph));
  ASSERT_CUDA(cudaStreamSynchronize(stream()));
  EXPECT_EQ(buffer.bytes()[0], 0xFF);
  EXPECT_MEMRA(memra_graph_launch(graph, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream()));
  EXPECT_EQ(buffer.bytes()[0], 5);
  memra_graph_destroy(graph);

  // A fork that never joins.
  memra_stream side = nullptr;
  memra_event* forked = nullptr;
  ASSERT_MEMRA(memra_stream_create(engine_.get(), &side));
  ASSERT_MEMRA(memra_event_create(engine_.get(), &forked));
  ASSERT_MEMRA(memra_graph_begin(engine_.get(), stream_));
  EXPECT_MEMRA(memra_event_record(forked, stream_));
  EXPECT_MEMRA(memra_event_wait(engine_.get(), forked, side));
  EXPECT_MEMRA(memra_memset(engine_.get(), buffer.as(), 6, 64, side));
  graph = reinterpret_cast<memra_graph*>(this);  // must be overwritten
  EXPECT_EQ(memra_graph_end(engine_.get(), stream_, &graph), MEMRA_ERROR_INVALID_STATE);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(memra_graph_end(engine_.get(), stream_, &graph), MEMRA_ERROR_INVALID_STATE);
  EXPECT_MEMRA(memra_memset(engine_.get(), buffer.as(), 7, 64, stream_));
  EXPECT_MEMRA(memra_stream_synchronize(engine_.get(), stream_));
  EXPECT_EQ(buffer.bytes()[0], 7);
  memra_event_destroy(forked);
  EXPECT_MEMRA(memra_stream_destroy(engine_.get(), side));
}

TEST_F(CudaStreams, AllocationsInStreamOrder) {
  void* memory = nullptr;
  ASSERT_MEMRA(memra_alloc_async(engine_.get(), kBytes, stream_, &memory));
  EXPECT_MEMRA(memra_memset(engine_.get(), memory, 9, kBytes, stream_));
  std::vector<uint8_t> host(kBytes);
  EXPECT_CUDA(cudaMemcpyAsync(host.data(), memory, kBytes, cudaMemcpyDeviceToHost, stream()));
  EXPECT_MEMRA(memra_free_async(engine_.get(), memory, stream_));
  EXPECT_MEMRA(memra_stream_synchronize(engine_.get(), stream_));
  EXPECT_EQ(host[kBytes - 1], 9);
}

// Pinned host memory is device memory to every entry.
TEST_F(CudaStreams, PinnedMemoryServesKernels) {
  constexpr int64_t kColumns = 64;
  void* memory = nullptr;
  ASSERT_MEMRA(memra_alloc_host(engine_.get(), 4096, &memory));
  auto* x = static_cast<float*>(memory);
  auto* d = x + 256;
  auto* q = reinterpret_cast<int8_t*>(x + 512);
  for (int64_t i = 0; i < kColumns; ++i)
    x[i] = static_cast<float>(i - 31);
  std::memset(d, 0xFF, 2 * sizeof(float));
  memra_q8_1_args args = MEMRA_Q8_1_ARGS_INIT;
  args.x = x;
  args.rows = 1;
  args.columns = kColumns;
  args.q = q;
  args.d = d;
  EXPECT_MEMRA(memra_quantize_q8_1(engine_.get(), &args, stream_));
  EXPECT_MEMRA(memra_stream_synchronize(engine_.get(), stream_));
  EXPECT_EQ(d[0], 31.0f / 127.0f);
  EXPECT_EQ(q[0], -127);
  EXPECT_EQ(d[1], 32.0f / 127.0f);
  EXPECT_EQ(q[63], 127);
  EXPECT_MEMRA(memra_free_host(engine_.get(), memory));
}

}  // namespace
}  // namespace memra::cuda_test
