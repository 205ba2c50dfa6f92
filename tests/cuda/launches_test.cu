// What a layer call costs its host: kernels launched, and time beyond the driver's launch calls.

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "world.h"

namespace memra::cuda_test {
namespace {

constexpr int64_t kHidden = 1024, kIntermediate = 512, kExperts = 16, kTopK = 8, kMaxTokens = 64;

struct Parameters {
  char bytes[512];  // about what the layer's kernels take
};
constexpr int kSharedBytes = 100 << 10;  // likewise
__global__ void empty_kernel(const __grid_constant__ Parameters) {}

void launch_empty(cudaStream_t stream, const Parameters& parameters) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(264);
  config.blockDim = dim3(320);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_CUDA(cudaLaunchKernelEx(&config, empty_kernel, parameters));
}

// A layer of V2 banks, all code and scale bytes legal.
class LaunchesTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    int major = 0;
    ASSERT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (major < 9) GTEST_SKIP() << "the layer's short way needs compute capability 9.0";
    engine_ = make_engine();
    ASSERT_NE(engine_, nullptr);
    constexpr size_t kBank = kExperts * kHidden * kIntermediate * 9 / 16;
    bank_ = std::make_unique<DeviceBuffer>(kBank, 0x31);
    memra_bank bank = MEMRA_BANK_INIT;
    bank.format = MEMRA_NVFP4_V2;
    bank.base = bank_->as();
    memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
    desc.activation = MEMRA_SWIGLU;
    desc.hidden_size = kHidden;
    desc.intermediate_size = kIntermediate;
    desc.n_experts = kExperts;
    desc.top_k = kTopK;
    desc.max_tokens = kMaxTokens;
    desc.gate = desc.up = desc.down = &bank;
    ASSERT_MEMRA(memra_moe_layer_create(engine_.get(), &desc, &layer_));
    ASSERT_MEMRA(memra_moe_workspace_size(layer_, kMaxTokens, &workspace_bytes_));
    workspace_ = std::make_unique<DeviceBuffer>(workspace_bytes_);
    x_ = std::make_unique<DeviceBuffer>(kMaxTokens * kHidden * sizeof(float), 0);
    y_ = std::make_unique<DeviceBuffer>(kMaxTokens * kHidden * sizeof(float));
    weights_ = std::make_unique<DeviceBuffer>(kMaxTokens * kTopK * sizeof(float), 0);
    std::vector<int32_t> ids(kMaxTokens * kTopK);
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(i * 7 % kExperts);
    ids_ = std::make_unique<DeviceBuffer>(ids);
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    memra_moe_layer_destroy(layer_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  memra_status run(int64_t tokens) {
    memra_moe_args args = MEMRA_MOE_ARGS_INIT;
    args.tokens = tokens;
    args.x = x_->as();
    args.y = y_->as();
    args.topk_ids = ids_->as<int32_t>();
    args.topk_weights = weights_->as<float>();
    args.workspace = workspace_->as();
    args.workspace_bytes = workspace_bytes_;
    return memra_moe_rows(layer_, &args, stream_);
  }

  // Kernels of one call; fails where it enqueues anything else.
  size_t n_kernels(int64_t tokens) {
    EXPECT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    EXPECT_MEMRA(run(tokens));
    cudaGraph_t graph = nullptr;
    EXPECT_CUDA(cudaStreamEndCapture(stream_, &graph));
    size_t count = 0;
    EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    EXPECT_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      EXPECT_CUDA(cudaGraphNodeGetType(node, &type));
      EXPECT_EQ(type, cudaGraphNodeTypeKernel);
    }
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return count;
  }

  // The best of many batches, short enough that the stream's queue never fills.
  template <class Call>
  double microseconds_of(Call call) {
    constexpr int kBatches = 60, kCalls = 50;
    double best = 1e9;
    for (int batch = 0; batch < kBatches; ++batch) {
      EXPECT_CUDA(cudaStreamSynchronize(stream_));
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i)
        call();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count() / kCalls);
    }
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
    return best;
  }

  Engine engine_;
  std::unique_ptr<DeviceBuffer> bank_, workspace_, x_, y_, weights_, ids_;
  memra_moe_layer* layer_ = nullptr;
  uint64_t workspace_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

using CudaLaunches = LaunchesTest;

TEST_F(CudaLaunches, TwoForFewTokensThreeForMore) {
  for (const int64_t tokens : {1, 2, 3, 4})
    EXPECT_EQ(n_kernels(tokens), 2u) << tokens << " tokens";
  for (const int64_t tokens : {5, 8, 16, 33, 64})
    EXPECT_EQ(n_kernels(tokens), 3u) << tokens << " tokens";
}

TEST_F(CudaLaunches, HostTimeIsThatOfTheLaunches) {
  constexpr double kMostBeyond = 4;  // us; the aim is 1, the rest is for a busy machine
  ASSERT_CUDA(cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kSharedBytes));
  const Parameters parameters{};
  const double call = microseconds_of([&] { EXPECT_MEMRA(run(1)); });
  const double launches = microseconds_of([&] {
    launch_empty(stream_, parameters);
    launch_empty(stream_, parameters);
  });
  std::printf("a layer call of 2 launches takes its host %.2f us, 2 empty launches %.2f us\n", call,
              launches);
  EXPECT_LE(call - launches, kMostBeyond);
}

}  // namespace
}  // namespace memra::cuda_test
