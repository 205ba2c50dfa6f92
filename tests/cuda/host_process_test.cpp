// What belongs to the caller: its current device and context, and its pending CUDA errors.

#include <cuda.h>
#include <dlfcn.h>

#include <thread>

#include "world.h"

namespace memra::cuda_test {
namespace {

class CudaHost : public CudaTest {};

CUcontext current_context() {
  using GetCurrent = CUresult (*)(CUcontext*);
  static const auto get_current = reinterpret_cast<GetCurrent>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuCtxGetCurrent"));
  CUcontext context = nullptr;
  EXPECT_EQ(get_current(&context), CUDA_SUCCESS);
  return context;
}

// One of everything, refused calls included.
void use_everything(int device) {
  const Engine engine = make_engine(device);
  ASSERT_NE(engine, nullptr);
  void* memory = nullptr;
  EXPECT_MEMRA(memra_alloc(engine.get(), 4096, &memory));
  void* impossible = nullptr;
  EXPECT_EQ(memra_alloc(engine.get(), uint64_t{1} << 60, &impossible), MEMRA_ERROR_OUT_OF_MEMORY);
  memra_stream stream = nullptr;
  EXPECT_MEMRA(memra_stream_create(engine.get(), &stream));
  EXPECT_MEMRA(memra_memset(engine.get(), memory, 1, 4096, stream));
  memra_event* event = nullptr;
  EXPECT_MEMRA(memra_event_create(engine.get(), &event));
  EXPECT_MEMRA(memra_event_record(event, stream));
  EXPECT_MEMRA(memra_graph_begin(engine.get(), stream));
  EXPECT_MEMRA(memra_memset(engine.get(), memory, 2, 4096, stream));
  memra_graph* graph = nullptr;
  EXPECT_MEMRA(memra_graph_end(engine.get(), stream, &graph));
  EXPECT_MEMRA(memra_graph_launch(graph, stream));
  EXPECT_MEMRA(memra_stream_synchronize(engine.get(), stream));
  memra_graph_destroy(graph);
  memra_event_destroy(event);
  EXPECT_MEMRA(memra_stream_destroy(engine.get(), stream));
  EXPECT_MEMRA(memra_free(engine.get(), memory));
}

TEST_F(CudaHost, CurrentDeviceAndContextStay) {
  // Make the runtime's context current in this thread.
  ASSERT_CUDA(cudaFree(nullptr));
  const CUcontext before = current_context();
  ASSERT_NE(before, nullptr);
  for (int device = 0; device < device_count(); ++device) {
    use_everything(device);
    EXPECT_EQ(current_context(), before);
    int current = -1;
    EXPECT_CUDA(cudaGetDevice(&current));
    EXPECT_EQ(current, 0);
  }
}

TEST_F(CudaHost, ThreadsWithoutContextStayWithoutOne) {
  std::thread([] {
    EXPECT_EQ(current_context(), nullptr);
    use_everything(0);
    EXPECT_EQ(current_context(), nullptr);
  }).join();
}

TEST_F(CudaHost, PendingErrorsStay) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, size_t{1} << 60), cudaErrorMemoryAllocation);
  use_everything(0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST_F(CudaHost, OurFailuresAreNotTheCallersErrors) {
  cudaGetLastError();
  use_everything(0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace memra::cuda_test
