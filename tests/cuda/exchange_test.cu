// Blocks that talk to each other through memory.
#include "exchange.cuh"

#include <algorithm>
#include <vector>

#include "world.h"

namespace memra::cuda {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceBuffer;

constexpr unsigned kBlocks = 40;

__global__ void leave_kernel(Exchange* e) {
  if (threadIdx.x == 0) leave(*e);
}

// Each block sends a packet and takes that of the block before it, `rounds` times over.
__global__ void pass_kernel(Exchange* e, uint32_t* sums, int rounds) {
  const uint32_t tag = load_tag(*e), block = blockIdx.x, blocks = gridDim.x;
  uint32_t sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const uint32_t at = i * blocks + block;
    store_packet(e->packets + at, block, sum, at, tag);
    const uint32_t from = i * blocks + (block + blocks - 1) % blocks;
    Packet packet;
    do {
      packet = load_packet(e->packets + from);
    } while (packet.tag != tag);
    sum = packet.data[0] + 3 * packet.data[1] + packet.data[2];
  }
  sums[block] = sum;
  leave(*e);
}

// All blocks write, meet, and read what the others have written.
__global__ void meet_kernel(Exchange* e, uint32_t* values, uint32_t* wrong) {
  for (int barrier = 0; barrier < 3; ++barrier) {
    values[barrier * gridDim.x + blockIdx.x] = blockIdx.x + barrier + 1;
    grid_arrive(&e->arrived[barrier]);
    grid_wait(&e->arrived[barrier]);
    for (unsigned i = 0; i < gridDim.x; ++i) {
      if (values[barrier * gridDim.x + i] != i + barrier + 1) atomicAdd(wrong, 1u);
    }
  }
  leave(*e);
}

class CudaExchange : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_CUDA(cudaStreamCreate(&stream_));
    ASSERT_EQ(exchanges_.create(stream_), MEMRA_OK);
    exchange_ = exchanges_.of(this);
    ASSERT_NE(exchange_, nullptr);
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    exchanges_.destroy(stream_);
    cudaStreamDestroy(stream_);
  }

  // The exchange as it lies on the device.
  Exchange read() {
    Exchange here;
    EXPECT_CUDA(cudaMemcpy(&here, exchange_, sizeof(here), cudaMemcpyDeviceToHost));
    return here;
  }
  void run_together(const void* kernel, void** args) {
    EXPECT_CUDA(cudaLaunchCooperativeKernel(kernel, dim3(kBlocks), dim3(1), args, 0, stream_));
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }

  Exchanges exchanges_;
  Exchange* exchange_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(CudaExchange, OneForEachWorkspaceAndNoneBeyond) {
  std::vector<Exchange*> seen = {exchange_};
  for (size_t i = 1; i < Exchanges::kCount; ++i) {
    Exchange* e = exchanges_.of(reinterpret_cast<const void*>(256 * i));
    ASSERT_NE(e, nullptr) << i;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), e), 0) << i;
    EXPECT_EQ(exchanges_.of(reinterpret_cast<const void*>(256 * i)), e);
    seen.push_back(e);
  }
  EXPECT_EQ(exchanges_.of(reinterpret_cast<const void*>(256 * Exchanges::kCount)), nullptr);
  EXPECT_EQ(exchanges_.of(this), exchange_);
}

TEST_F(CudaExchange, PacketsArriveWholeLaunchAfterLaunch) {
  int rounds = 50;
  static_assert(50 * kBlocks <= Exchange::kPackets);
  DeviceBuffer sums(kBlocks * sizeof(uint32_t));
  uint32_t* out = sums.as<uint32_t>();
  std::vector<uint32_t> expected(kBlocks, 0);
  for (int i = 0; i < rounds; ++i) {
    std::vector<uint32_t> next(kBlocks);
    for (uint32_t b = 0; b < kBlocks; ++b) {
      const uint32_t from = (b + kBlocks - 1) % kBlocks;
      next[b] = from + 3 * expected[from] + i * kBlocks + from;
    }
    expected.swap(next);
  }
  for (uint32_t launch = 1; launch <= 100; ++launch) {
    ASSERT_CUDA(cudaMemset(out, 0xFF, kBlocks * sizeof(uint32_t)));
    void* args[] = {&exchange_, &out, &rounds};
    run_together(reinterpret_cast<const void*>(pass_kernel), args);
    std::vector<uint32_t> got(kBlocks);
    ASSERT_CUDA(cudaMemcpy(got.data(), out, kBlocks * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    ASSERT_EQ(got, expected) << "launch " << launch;
    const Exchange after = read();
    ASSERT_EQ(after.tag, launch + 1);
    ASSERT_EQ(after.left, 0u);
  }
}

TEST_F(CudaExchange, BarriersShowWhatAllHaveWritten) {
  DeviceBuffer values(3 * kBlocks * sizeof(uint32_t)), wrong(sizeof(uint32_t), 0);
  uint32_t *v = values.as<uint32_t>(), *w = wrong.as<uint32_t>();
  for (int launch = 0; launch < 50; ++launch) {
    ASSERT_CUDA(cudaMemset(v, 0, 3 * kBlocks * sizeof(uint32_t)));
    void* args[] = {&exchange_, &v, &w};
    run_together(reinterpret_cast<const void*>(meet_kernel), args);
    const Exchange after = read();
    for (const uint32_t arrived : after.arrived)
      ASSERT_EQ(arrived, 0u);
  }
  uint32_t n_wrong = 1;
  ASSERT_CUDA(cudaMemcpy(&n_wrong, w, sizeof(n_wrong), cudaMemcpyDeviceToHost));
  EXPECT_EQ(n_wrong, 0u);
}

TEST_F(CudaExchange, TagsBeginAnewAfterTheLast) {
  Exchange before = read();
  before.tag = 0xFFFFFFFFu;
  for (uint32_t i = 0; i < Exchange::kPackets; ++i)
    before.packets[i].tag = i == 0 ? 1 : 0xFFFFFFFFu - i % 2;
  ASSERT_CUDA(cudaMemcpy(exchange_, &before, sizeof(before), cudaMemcpyHostToDevice));
  leave_kernel<<<kBlocks, 32, 0, stream_>>>(exchange_);
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  const Exchange after = read();
  EXPECT_EQ(after.tag, 1u);
  for (const Packet& packet : after.packets)
    ASSERT_EQ(packet.tag, 0u);
}

}  // namespace
}  // namespace memra::cuda
