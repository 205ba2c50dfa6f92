// Two engines, on one device and on two.

#include "world.h"

namespace memra::cuda_test {
namespace {

class CudaPeers : public CudaTest {};

// Copies between engines of two devices, both ways, and recorded.
void copy_between(int first_device, int second_device) {
  constexpr uint64_t kBytes = (1 << 20) + 12;
  const Engine first = make_engine(first_device);
  const Engine second = make_engine(second_device);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  void* a = nullptr;
  void* b = nullptr;
  void* c = nullptr;
  ASSERT_MEMRA(memra_alloc(first.get(), kBytes, &a));
  ASSERT_MEMRA(memra_alloc(second.get(), kBytes, &b));
  ASSERT_MEMRA(memra_alloc(first.get(), kBytes, &c));
  memra_stream stream_a = nullptr;
  memra_stream stream_b = nullptr;
  ASSERT_MEMRA(memra_stream_create(first.get(), &stream_a));
  ASSERT_MEMRA(memra_stream_create(second.get(), &stream_b));
  memra_event* event = nullptr;
  ASSERT_MEMRA(memra_event_create(first.get(), &event));

  std::vector<uint8_t> host(kBytes);
  for (size_t i = 0; i < kBytes; ++i)
    host[i] = static_cast<uint8_t>(i * 7 + i / 251);
  EXPECT_MEMRA(memra_memcpy(first.get(), a, host.data(), kBytes, stream_a));
  EXPECT_MEMRA(memra_event_record(event, stream_a));
  EXPECT_MEMRA(memra_event_wait(second.get(), event, stream_b));
  EXPECT_MEMRA(memra_memcpy_engines(second.get(), b, first.get(), a, kBytes, stream_b));
  EXPECT_MEMRA(memra_stream_synchronize(second.get(), stream_b));

  EXPECT_MEMRA(memra_graph_begin(first.get(), stream_a));
  EXPECT_MEMRA(memra_memcpy_engines(first.get(), c, second.get(), b, kBytes, stream_a));
  memra_graph* graph = nullptr;
  ASSERT_MEMRA(memra_graph_end(first.get(), stream_a, &graph));
  EXPECT_MEMRA(memra_graph_launch(graph, stream_a));
  std::vector<uint8_t> back(kBytes, 0);
  EXPECT_MEMRA(memra_memcpy(first.get(), back.data(), c, kBytes, stream_a));
  EXPECT_MEMRA(memra_stream_synchronize(first.get(), stream_a));
  EXPECT_EQ(back, host);

  memra_graph_destroy(graph);
  memra_event_destroy(event);
  EXPECT_MEMRA(memra_free(first.get(), a));
  EXPECT_MEMRA(memra_free(second.get(), b));
  EXPECT_MEMRA(memra_free(first.get(), c));
}

TEST_F(CudaPeers, OfOneDevice) {
  copy_between(0, 0);
}

TEST_F(CudaPeers, OfTwoDevices) {
  if (device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  copy_between(0, 1);
  copy_between(1, 0);
  int current = -1;
  EXPECT_CUDA(cudaGetDevice(&current));
  EXPECT_EQ(current, 0);
}

uint64_t peers_of(const Engine& engine) {
  memra_engine_properties properties = MEMRA_ENGINE_PROPERTIES_INIT;
  EXPECT_MEMRA(memra_engine_info(engine.get(), &properties));
  return properties.peer_devices;
}

TEST_F(CudaPeers, OwnDeviceIsAPeer) {
  const Engine engine = make_engine(0);
  ASSERT_NE(engine, nullptr);
  EXPECT_NE(peers_of(engine) & 1U, 0U);
}

TEST_F(CudaPeers, SecondEngineDecidesHowCopiesGo) {
  if (device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  int out = 0;
  int in = 0;
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&out, 0, 1));
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&in, 1, 0));
  const bool direct = out != 0 && in != 0;
  const Engine first = make_engine(0);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(peers_of(first), 1U);
  const Engine second = make_engine(1);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(peers_of(first), direct ? 3U : 1U);
  EXPECT_EQ(peers_of(second), direct ? 3U : 2U);
}

// Memory pools have access rules of their own.
TEST_F(CudaPeers, CopyStreamOrderedMemory) {
  if (device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  constexpr uint64_t kBytes = 1 << 20;
  const Engine engines[] = {make_engine(0), make_engine(1)};
  void* memory[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(engines[i], nullptr);
    ASSERT_MEMRA(memra_alloc_async(engines[i].get(), kBytes, nullptr, &memory[i]));
    EXPECT_MEMRA(memra_memset(engines[i].get(), memory[i], 40 + i, kBytes, nullptr));
    EXPECT_MEMRA(memra_stream_synchronize(engines[i].get(), nullptr));
  }
  EXPECT_MEMRA(memra_memcpy_engines(engines[1].get(), memory[1], engines[0].get(), memory[0],
                                    kBytes, nullptr));
  std::vector<uint8_t> host(kBytes);
  EXPECT_MEMRA(memra_memcpy(engines[1].get(), host.data(), memory[1], kBytes, nullptr));
  EXPECT_MEMRA(memra_stream_synchronize(engines[1].get(), nullptr));
  EXPECT_EQ(host, std::vector<uint8_t>(kBytes, 40));
  for (int i = 0; i < 2; ++i)
    EXPECT_MEMRA(memra_free_async(engines[i].get(), memory[i], nullptr));
}

TEST_F(CudaPeers, EventsOfTwoDevicesTakeNoTimes) {
  if (device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  const Engine first = make_engine(0);
  const Engine second = make_engine(1);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  memra_event* start = nullptr;
  memra_event* end = nullptr;
  ASSERT_MEMRA(memra_event_create(first.get(), &start));
  ASSERT_MEMRA(memra_event_create(second.get(), &end));
  EXPECT_MEMRA(memra_event_record(start, nullptr));
  EXPECT_MEMRA(memra_event_record(end, nullptr));
  EXPECT_MEMRA(memra_event_synchronize(start));
  EXPECT_MEMRA(memra_event_synchronize(end));
  float milliseconds = 0.0f;
  EXPECT_EQ(memra_event_elapsed(start, end, &milliseconds), MEMRA_ERROR_INVALID_ARGUMENT);
  memra_event_destroy(start);
  memra_event_destroy(end);
}

}  // namespace
}  // namespace memra::cuda_test
