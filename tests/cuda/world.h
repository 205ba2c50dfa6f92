// A host process that uses CUDA itself, with a small layer to run.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "memra.h"

#define EXPECT_CUDA(call) EXPECT_EQ((call), cudaSuccess) << #call
#define ASSERT_CUDA(call) ASSERT_EQ((call), cudaSuccess) << #call
#define EXPECT_MEMRA(call) EXPECT_EQ((call), MEMRA_OK) << memra_last_error()
#define ASSERT_MEMRA(call) ASSERT_EQ((call), MEMRA_OK) << memra_last_error()

namespace memra::cuda_test {

inline int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

// Tests that need a GPU derive from this.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
    ASSERT_CUDA(cudaSetDevice(0));
  }
};

struct EngineDeleter {
  void operator()(memra_engine* engine) const { memra_engine_destroy(engine); }
};
using Engine = std::unique_ptr<memra_engine, EngineDeleter>;

// NULL after a failure, which the test then reports.
inline Engine make_engine(int device = 0) {
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = MEMRA_BACKEND_CUDA;
  options.device = device;
  memra_engine* engine = nullptr;
  EXPECT_EQ(memra_engine_create(&options, &engine), MEMRA_OK) << memra_last_error();
  return Engine(engine);
}

// Device memory of the caller's own.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes, int poison = 0xFF) : bytes_(bytes) {
    EXPECT_CUDA(cudaMalloc(&data_, bytes));
    EXPECT_CUDA(cudaMemset(data_, poison, bytes));
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
  template <typename T>
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size() * sizeof(T)) {
    EXPECT_CUDA(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice));
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) cudaFree(data_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> host(bytes_);
    EXPECT_CUDA(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    return host;
  }
  // The memory went with a device reset.
  void forget() { data_ = nullptr; }

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

// One small layer and one call of it.
class Layer {
 public:
  static constexpr int64_t kHidden = 128;
  static constexpr int64_t kIntermediate = 64;
  static constexpr int64_t kExperts = 4;
  static constexpr int64_t kTopK = 2;
  static constexpr int64_t kTokens = 3;

  Layer()
      : bank_(random_bank()),
        x_(random_activations(1)),
        ids_(std::vector<int32_t>{0, 3, 2, 1, 3, 3}),
        weights_(std::vector<float>{0.25f, 0.75f, 0.5f, 0.5f, 1.0f, -0.5f}),
        y_(kTokens * kHidden * sizeof(float)),
        workspace_(1 << 20) {}
  ~Layer() { memra_moe_layer_destroy(layer_); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  memra_status create(memra_engine* engine) {
    memra_bank bank = MEMRA_BANK_INIT;
    bank.format = MEMRA_NVFP4;
    bank.base = bank_.as();
    memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
    desc.activation = MEMRA_SWIGLU;
    desc.hidden_size = kHidden;
    desc.intermediate_size = kIntermediate;
    desc.n_experts = kExperts;
    desc.top_k = kTopK;
    desc.max_tokens = kTokens;
    desc.gate = &bank;
    desc.up = &bank;
    desc.down = &bank;
    return memra_moe_layer_create(engine, &desc, &layer_);
  }

  memra_status run(memra_stream stream) {
    memra_moe_args args = MEMRA_MOE_ARGS_INIT;
    args.tokens = kTokens;
    args.x = x_.as();
    args.y = y_.as();
    args.topk_ids = ids_.as<int32_t>();
    args.topk_weights = weights_.as<float>();
    args.workspace = workspace_.as();
    args.workspace_bytes = 1 << 20;
    return memra_moe_rows(layer_, &args, stream);
  }

  void set_activations(int seed) {
    const std::vector<float> x = random_activations(seed);
    EXPECT_CUDA(cudaMemcpy(x_.as(), x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  void poison_output() {
    EXPECT_CUDA(cudaMemset(y_.as(), 0xFF, kTokens * kHidden * sizeof(float)));
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
  std::vector<uint8_t> output() const { return y_.bytes(); }

  // What a new run on the default stream gives.
  std::vector<uint8_t> expected() {
    poison_output();
    EXPECT_MEMRA(run(nullptr));
    EXPECT_CUDA(cudaDeviceSynchronize());
    return output();
  }

  void destroy() {
    memra_moe_layer_destroy(layer_);
    layer_ = nullptr;
  }
  void forget_memory() {
    for (DeviceBuffer* buffer : {&bank_, &x_, &ids_, &weights_, &y_, &workspace_}) {
      buffer->forget();
    }
  }

 private:
  static uint32_t next(uint32_t* state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
  }
  // Random codes under scales of 0.25.
  static std::vector<uint8_t> random_bank() {
    std::vector<uint8_t> bank(kExperts * kHidden * kIntermediate * 9 / 16);
    uint32_t state = 7;
    for (size_t i = 0; i < bank.size(); ++i) {
      bank[i] = i % 36 < 4 ? uint8_t{0x28} : static_cast<uint8_t>(next(&state));
    }
    return bank;
  }
  static std::vector<float> random_activations(int seed) {
    std::vector<float> x(kTokens * kHidden);
    uint32_t state = static_cast<uint32_t>(seed);
    for (float& value : x)
      value = static_cast<float>(next(&state) % 2001) / 1000.0f - 1.0f;
    return x;
  }

  DeviceBuffer bank_, x_, ids_, weights_, y_, workspace_;
  memra_moe_layer* layer_ = nullptr;
};

// A comparison of outputs that are all zero or all NaN proves nothing.
inline bool is_informative(const std::vector<uint8_t>& output) {
  std::vector<float> values(output.size() / sizeof(float));
  std::memcpy(values.data(), output.data(), output.size());
  int n_useful = 0;
  for (const float value : values)
    n_useful += value != 0.0f && value == value ? 1 : 0;
  return n_useful > static_cast<int>(values.size()) / 2;
}

}  // namespace memra::cuda_test
