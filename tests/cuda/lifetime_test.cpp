// Ends: in any order, after a device reset, and at exit.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "world.h"

namespace memra::cuda_test {
namespace {

class CudaLifetime : public CudaTest {};
using CudaLifetimeDeathTest = CudaLifetime;

struct Things {
  memra_stream stream = nullptr;
  memra_event* event = nullptr;
  memra_graph* graph = nullptr;
  void* memory = nullptr;

  void make(memra_engine* engine) {
    ASSERT_MEMRA(memra_stream_create(engine, &stream));
    ASSERT_MEMRA(memra_event_create(engine, &event));
    ASSERT_MEMRA(memra_alloc(engine, 4096, &memory));
    ASSERT_MEMRA(memra_graph_begin(engine, stream));
    ASSERT_MEMRA(memra_memset(engine, memory, 1, 4096, stream));
    ASSERT_MEMRA(memra_graph_end(engine, stream, &graph));
    ASSERT_MEMRA(memra_graph_launch(graph, stream));
    ASSERT_MEMRA(memra_event_record(event, stream));
  }
};

TEST_F(CudaLifetime, LayersEventsAndGraphsMayOutliveTheEngine) {
  Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  Things things;
  things.make(engine.get());
  Layer layer;
  ASSERT_MEMRA(layer.create(engine.get()));
  const std::vector<uint8_t> expected = layer.expected();
  engine.reset();
  layer.destroy();
  memra_graph_destroy(things.graph);
  memra_event_destroy(things.event);
  EXPECT_CUDA(cudaFree(things.memory));
  EXPECT_CUDA(cudaDeviceSynchronize());

  engine = make_engine();
  ASSERT_NE(engine, nullptr);
  ASSERT_MEMRA(layer.create(engine.get()));
  EXPECT_TRUE(is_informative(expected));
  EXPECT_EQ(layer.expected(), expected);
}

TEST_F(CudaLifetime, DestructionAfterADeviceReset) {
  Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  Things things;
  things.make(engine.get());
  auto layer = std::make_unique<Layer>();
  ASSERT_MEMRA(layer->create(engine.get()));
  ASSERT_CUDA(cudaDeviceReset());
  layer->forget_memory();
  EXPECT_NE(memra_free(engine.get(), things.memory), MEMRA_OK);
  memra_graph_destroy(things.graph);
  memra_event_destroy(things.event);
  layer.reset();
  engine.reset();

  // The device serves a new engine.
  engine = make_engine();
  ASSERT_NE(engine, nullptr);
  Layer next;
  ASSERT_MEMRA(next.create(engine.get()));
  EXPECT_TRUE(is_informative(next.expected()));
}

TEST_F(CudaLifetime, DestructionAfterAResetAndNewWorkOfTheCaller) {
  Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  Things things;
  things.make(engine.get());
  ASSERT_CUDA(cudaDeviceReset());
  // What the caller makes now may have the addresses that the engine's things had.
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  for (int i = 0; i < 16; ++i)
    buffers.push_back(std::make_unique<DeviceBuffer>(4096, i));
  std::vector<cudaStream_t> streams(16);
  for (cudaStream_t& stream : streams)
    ASSERT_CUDA(cudaStreamCreate(&stream));
  EXPECT_NE(memra_free(engine.get(), things.memory), MEMRA_OK);
  memra_graph_destroy(things.graph);
  memra_event_destroy(things.event);
  engine.reset();
  for (cudaStream_t stream : streams) {
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaStreamDestroy(stream));
  }
  for (int i = 0; i < 16; ++i)
    EXPECT_EQ(buffers[i]->bytes()[4095], i);
}

// A server that never destroys its engine, and one that does so in a static destructor, after the
// CUDA runtimes have been taken down.
struct AtExit {
  memra_engine* engine = nullptr;
  Things things;
  ~AtExit() {
    memra_graph_destroy(things.graph);
    memra_event_destroy(things.event);
    memra_engine_destroy(engine);
  }
};
AtExit at_exit;

TEST_F(CudaLifetimeDeathTest, LiveEnginesAtExit) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Engine engine = make_engine();
        Things things;
        things.make(engine.get());
        engine.release();
        std::exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetimeDeathTest, EnginesDestroyedByStaticDestructors) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        at_exit.engine = make_engine().release();
        at_exit.things.make(at_exit.engine);
        std::exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetime, CallsAndDestructionInAForkedChild) {
  Engine engine = make_engine();
  ASSERT_NE(engine, nullptr);
  Things things;
  things.make(engine.get());
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    const memra_status status = memra_alloc(engine.get(), 4096, &memory);
    memra_graph_destroy(things.graph);
    memra_event_destroy(things.event);
    memra_engine_destroy(engine.release());
    _exit(status == MEMRA_ERROR_FORKED ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int result = -1;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0);
  // The parent's are whole.
  EXPECT_MEMRA(memra_graph_launch(things.graph, things.stream));
  EXPECT_MEMRA(memra_stream_synchronize(engine.get(), things.stream));
  memra_graph_destroy(things.graph);
  memra_event_destroy(things.event);
  EXPECT_MEMRA(memra_free(engine.get(), things.memory));
}

}  // namespace
}  // namespace memra::cuda_test
