// Engines on the CPU through the ABI: their life, the host's floating-point mode, threads.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/device_problem.h"
#include "conformance/engine.h"
#include "conformance/problems.h"
#include "cpu/cpu_backend.h"
#include "cpu/event.h"
#include "cpu/machine.h"
#include "cpu/rows_paths.h"
#include "cpu_support.h"
#include "memra.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define MEMRA_TSAN 1
#endif

namespace memra::cpu {
namespace {

namespace ref = memra::reference;
using memra::test::DeviceProblem;
using memra::test::Engine;
using memra::test::ok;

memra_engine_options cpu_options(int32_t threads) {
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = MEMRA_BACKEND_CPU;
  options.cpu_threads = threads;
  return options;
}

std::ptrdiff_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// A thread that was joined may be listed for a moment.
bool threads_come_back_to(std::ptrdiff_t count) {
  for (int i = 0; i < 200 && threads_of_process() > count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return threads_of_process() <= count;
}

ref::ProblemSpec small_spec() {
  ref::ProblemSpec spec;
  spec.hidden = 320;
  spec.intermediate = 192;
  spec.tokens = 4;
  spec.bias = true;
  return spec;
}

TEST(CpuEngine, ThousandLiveAndDie) {
  // A sanitizer starts a thread of its own beside the first one of a process.
  { const Engine first(cpu_options(2)); }
  const std::ptrdiff_t before = threads_of_process();
  for (int i = 0; i < 1000; ++i) {
    const memra_engine_options options = cpu_options(1 + i % 3);
    memra_engine* engine = nullptr;
    ASSERT_TRUE(ok(memra_engine_create(&options, &engine)));
    unsigned char byte = 0;
    memra_stream stream = nullptr;
    if (i % 2 != 0) {
      ASSERT_TRUE(ok(memra_stream_create(engine, &stream)));
    }
    ASSERT_TRUE(ok(memra_memset(engine, &byte, 5, 1, stream)));
    // Destroying the engine waits for the stream that was not destroyed.
    if (i % 2 == 0) {
      ASSERT_TRUE(ok(memra_stream_synchronize(engine, nullptr)));
    }
    memra_engine_destroy(engine);
    ASSERT_EQ(byte, 5);
  }
  EXPECT_TRUE(threads_come_back_to(before));
}

TEST(CpuEngine, ThousandStreamsEventsAndGraphs) {
  Engine engine(cpu_options(2));
  const std::ptrdiff_t before = threads_of_process();
  for (int i = 0; i < 1000; ++i) {
    unsigned char byte = 0;
    memra_stream stream = nullptr;
    memra_event* event = nullptr;
    memra_graph* graph = nullptr;
    ASSERT_TRUE(ok(memra_stream_create(engine.get(), &stream)));
    ASSERT_TRUE(ok(memra_event_create(engine.get(), &event)));
    ASSERT_TRUE(ok(memra_graph_begin(engine.get(), stream)));
    ASSERT_TRUE(ok(memra_memset(engine.get(), &byte, 7, 1, stream)));
    ASSERT_TRUE(ok(memra_graph_end(engine.get(), stream, &graph)));
    ASSERT_EQ(byte, 0);
    ASSERT_TRUE(ok(memra_graph_launch(graph, stream)));
    ASSERT_TRUE(ok(memra_event_record(event, stream)));
    ASSERT_TRUE(ok(memra_event_synchronize(event)));
    ASSERT_EQ(byte, 7);
    ASSERT_TRUE(ok(memra_stream_destroy(engine.get(), stream)));
    memra_graph_destroy(graph);
    memra_event_destroy(event);
  }
  EXPECT_TRUE(threads_come_back_to(before));
}

TEST(CpuEngine, Describes) {
  Engine engine(cpu_options(3));
  const memra_engine_properties& properties = engine.properties();
  EXPECT_EQ(properties.cpu_threads, 3);
  EXPECT_EQ(properties.device, 0);
  EXPECT_EQ(properties.compute_capability, 0);
  EXPECT_EQ(properties.dependent_launch, 0);
  EXPECT_GT(properties.memory_bytes, uint64_t{1} << 20);
  EXPECT_STRNE(properties.device_name, "");
  EXPECT_STREQ(properties.simd, best_kernels().simd);
  EXPECT_EQ(Engine(cpu_options(0)).properties().cpu_threads, usable_processors());
  memra_build_properties build = MEMRA_BUILD_PROPERTIES_INIT;
  ASSERT_TRUE(ok(memra_build_info(&build)));
  EXPECT_NE(std::string(build.simd).find(properties.simd), std::string::npos);
}

TEST(CpuEngine, Memory) {
  Engine engine(cpu_options(1));
  for (const uint64_t bytes : {1, 255, 256, 100000, 5000001}) {
    void* device = nullptr;
    void* host = nullptr;
    void* ordered = nullptr;
    ASSERT_TRUE(ok(memra_alloc(engine.get(), bytes, &device)));
    ASSERT_TRUE(ok(memra_alloc_host(engine.get(), bytes, &host)));
    ASSERT_TRUE(ok(memra_alloc_async(engine.get(), bytes, engine.stream(), &ordered)));
    for (void* const ptr : {device, host, ordered}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % MEMRA_WORKSPACE_ALIGNMENT, 0u);
      EXPECT_TRUE(ok(memra_memset(engine.get(), ptr, 1, bytes, engine.stream())));
    }
    EXPECT_TRUE(ok(memra_free_async(engine.get(), ordered, engine.stream())));
    engine.synchronize();
    EXPECT_TRUE(ok(memra_free(engine.get(), device)));
    EXPECT_TRUE(ok(memra_free_host(engine.get(), host)));
  }
  void* ptr = &engine;
  for (const uint64_t bytes : {uint64_t{1} << 62, ~uint64_t{0}}) {
    EXPECT_TRUE(memra::test::fails_with(memra_alloc(engine.get(), bytes, &ptr),
                                        MEMRA_ERROR_OUT_OF_MEMORY,
                                        {std::to_string(bytes).c_str()}));
  }
}

TEST(CpuEngine, GraphsHoldNoAllocations) {
  Engine engine(cpu_options(1));
  ASSERT_TRUE(ok(memra_graph_begin(engine.get(), engine.stream())));
  void* ptr = nullptr;
  EXPECT_EQ(memra_alloc_async(engine.get(), 64, engine.stream(), &ptr), MEMRA_ERROR_UNSUPPORTED);
  memra_graph* graph = nullptr;
  ASSERT_TRUE(ok(memra_graph_end(engine.get(), engine.stream(), &graph)));
  memra_graph_destroy(graph);
}

TEST(CpuEngine, StreamsOfOthersAreRefused) {
  Engine engine(cpu_options(1)), other(cpu_options(1));
  unsigned char byte = 3;
  EXPECT_TRUE(memra::test::fails_with(memra_memset(engine.get(), &byte, 9, 1, other.stream()),
                                      MEMRA_ERROR_INVALID_ARGUMENT, {"stream"}));
  EXPECT_TRUE(memra::test::fails_with(memra_memset(engine.get(), &byte, 9, 1, &byte),
                                      MEMRA_ERROR_INVALID_ARGUMENT, {"stream"}));
  EXPECT_EQ(byte, 3);
}

TEST(CpuEngine, ThreadsDoNotChangeBits) {
  for (const memra::test::Formats& formats : {memra::test::v1(), memra::test::v2()}) {
    const auto solved = memra::test::solve(small_spec());
    for (const int threads : {1, 2, 3}) {
      Engine engine(cpu_options(threads));
      const DeviceProblem problem(engine, solved->in(formats));
      for (const std::uint32_t variant : problem.variants()) {
        memra::test::Call call;
        call.variant = variant;
        problem.run(call);
        ASSERT_TRUE(problem.check(call, solved->result)) << threads << " threads";
      }
    }
  }
}

#if defined(__SSE__)
// Flush-to-zero, denormals-are-zero and rounding upwards while it lives.
class StrangeMode {
 public:
  StrangeMode() { _mm_setcsr(kMode); }
  ~StrangeMode() { _mm_setcsr(saved_); }
  StrangeMode(const StrangeMode&) = delete;
  StrangeMode& operator=(const StrangeMode&) = delete;

  static constexpr unsigned kMode = 0x1F80 | 0x8000 | 0x0040 | 0x4000;

 private:
  const unsigned saved_ = _mm_getcsr();
};

TEST(CpuEngine, TheHostsFloatingPointModeChangesNothing) {
  // Router weights near the smallest floats make outputs that a flush would change; the rounding
  // changes nearly all.
  ref::MoeProblem tiny = ref::make_problem(small_spec());
  for (std::size_t p = 0; p < 2 * static_cast<std::size_t>(tiny.top_k); ++p) {
    tiny.weights[p] = p % 2 != 0 ? 3e-39f : -2e-38f;
  }
  const auto solved = memra::test::solve("tiny router weights", std::move(tiny));
  std::size_t subnormal = 0;
  for (const float y : solved->result.y_f32) {
    const std::uint32_t magnitude = ref::bits_of(y) & 0x7FFFFFFFu;
    subnormal += magnitude != 0 && magnitude < 0x00800000u ? 1 : 0;
  }
  EXPECT_GT(subnormal, 100u) << "nothing here could be flushed";

  std::unique_ptr<Engine> engine;
  {
    const StrangeMode mode;
    engine = std::make_unique<Engine>(cpu_options(3));
  }
  const DeviceProblem problem(*engine, solved->in(memra::test::v2()));
  for (int i = 0; i < 5; ++i) {
    const memra::test::Call call;
    problem.reset();
    {
      const StrangeMode mode;
      ASSERT_TRUE(ok(problem.enqueue(call, engine->stream())));
      engine->synchronize();
      EXPECT_EQ(_mm_getcsr() & ~0x3Fu, StrangeMode::kMode);
    }
    ASSERT_TRUE(problem.check(call, solved->result));
  }
}
#endif

TEST(CpuEngine, ThreadsShareOneEngineAndLayer) {
  Engine engine(cpu_options(2));
  const auto solved = memra::test::solve(small_spec());
  const DeviceProblem problem(engine, solved->in(memra::test::v2()));
  const memra::test::Call call;
  problem.run(call);
  const std::vector<std::uint8_t> expected = problem.y();
  std::vector<std::thread> threads;
  std::array<bool, 4> same{};
  for (std::size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      memra_stream stream = nullptr;
      bool good = memra_stream_create(engine.get(), &stream) == MEMRA_OK;
      memra_moe_args args = problem.args(call);
      std::vector<std::uint8_t> y(expected.size() + 64);
      void* workspace = nullptr;
      good = good && memra_alloc(engine.get(), args.workspace_bytes, &workspace) == MEMRA_OK;
      auto* const aligned = y.data() + (64 - reinterpret_cast<std::uintptr_t>(y.data()) % 64) % 64;
      args.y = aligned;
      args.workspace = workspace;
      args.invalid_ids = nullptr;
      for (int i = 0; i < 50 && good; ++i) {
        std::memset(aligned, 0xFF, expected.size());
        good = memra_moe_rows(problem.layer(), &args, stream) == MEMRA_OK &&
               memra_stream_synchronize(engine.get(), stream) == MEMRA_OK &&
               std::memcmp(aligned, expected.data(), expected.size()) == 0;
      }
      memra_free(engine.get(), workspace);
      memra_stream_destroy(engine.get(), stream);
      same[t] = good;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const bool good : same)
    EXPECT_TRUE(good);
}

TEST(CpuEngine, ReplaysSeeNewContents) {
  Engine engine(cpu_options(2));
  std::vector<int> src(1000, 1), middle(1000), dst(1000);
  const uint64_t bytes = src.size() * sizeof(int);
  ASSERT_TRUE(ok(memra_graph_begin(engine.get(), engine.stream())));
  ASSERT_TRUE(ok(memra_memcpy(engine.get(), middle.data(), src.data(), bytes, engine.stream())));
  ASSERT_TRUE(ok(memra_memcpy(engine.get(), dst.data(), middle.data(), bytes, engine.stream())));
  memra_graph* graph = nullptr;
  ASSERT_TRUE(ok(memra_graph_end(engine.get(), engine.stream(), &graph)));
  for (int round = 1; round <= 3; ++round) {
    src.assign(src.size(), round);
    ASSERT_TRUE(ok(memra_graph_launch(graph, engine.stream())));
    engine.synchronize();
    EXPECT_EQ(dst, src);
  }
  memra_graph_destroy(graph);
}

// What the ABI refuses, a destructor may still meet: nothing of it may wait in a forked child.
TEST(CpuEngine, DestructionInAForkedChildDoesNotHang) {
#if defined(MEMRA_TSAN)
  GTEST_SKIP() << "the thread sanitizer does not follow into a fork";
#endif
  std::shared_ptr<Backend> backend;
  ASSERT_EQ(CpuBackend::create({}, best_kernels(), &backend), MEMRA_OK);
  memra_stream stream = nullptr;
  ASSERT_EQ(backend->stream_create(&stream), MEMRA_OK);
  std::unique_ptr<Event> event;
  ASSERT_EQ(backend->event_create(&event), MEMRA_OK);
  std::unique_ptr<Graph> graph;
  ASSERT_EQ(backend->graph_begin(stream), MEMRA_OK);
  ASSERT_EQ(event->record(stream), MEMRA_OK);
  ASSERT_EQ(backend->graph_end(stream, &graph), MEMRA_OK);
  // The stream waits for the event, and the default stream's worker sleeps.
  std::vector<std::uint8_t> bytes(1 << 22);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(backend->memset_async(bytes.data(), i, bytes.size(), nullptr), MEMRA_OK);
  }
  ASSERT_EQ(event->record(nullptr), MEMRA_OK);
  ASSERT_EQ(backend->stream_wait_event(stream, *event), MEMRA_OK);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    backend->shutdown();
    graph.reset();
    event.reset();
    backend.reset();
    _exit(42);
  }
  int state = 0;
  pid_t ended = 0;
  for (int i = 0; i < 2000 && ended == 0; ++i) {
    ended = waitpid(child, &state, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &state, 0);
  }
  EXPECT_EQ(ended, child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42);
  backend->shutdown();
}

TEST(CpuEngine, ProbesRunAndKeepToTheirOutput) {
  Engine engine(cpu_options(2));
  constexpr int64_t kHidden = 320, kIntermediate = 192, kPairs = 4;
  ref::Random random(1);
  const ref::Slab slab =
      ref::random_slab(random, ref::Format::kV2, kIntermediate, kHidden, ref::ScaleCodes::kAll);
  const ref::Slab down_slab =
      ref::random_slab(random, ref::Format::kV2, kHidden, kIntermediate, ref::ScaleCodes::kAll);
  alignas(64) std::array<const void*, 3 * kPairs> ptrs;
  ptrs.fill(slab.bytes.data());
  for (std::size_t p = 2 * kPairs; p < ptrs.size(); ++p)
    ptrs[p] = down_slab.bytes.data();
  ptrs[1] = nullptr;
  const std::vector<float> scales(3 * kPairs, 1.0f), d(kPairs * kHidden / 32, 1.0f);
  const std::vector<int8_t> q(kPairs * kHidden, 3);
  std::vector<float> out(kPairs * kIntermediate + 16, 7.0f), y(2 * kHidden + 16, 7.0f);
  memra_rows_gate_up_args gate_up = MEMRA_ROWS_GATE_UP_ARGS_INIT;
  gate_up.tokens = 2;
  gate_up.top_k = 2;
  gate_up.hidden_size = kHidden;
  gate_up.intermediate_size = kIntermediate;
  gate_up.gate_format = gate_up.up_format = MEMRA_NVFP4_V2;
  gate_up.ptrs = ptrs.data();
  gate_up.scales = scales.data();
  gate_up.q = q.data();
  gate_up.d = d.data();
  gate_up.out = out.data();
  memra_rows_down_args down = MEMRA_ROWS_DOWN_ARGS_INIT;
  down.tokens = 2;
  down.top_k = 2;
  down.intermediate_size = kIntermediate;
  down.hidden_size = kHidden;
  down.format = MEMRA_NVFP4_V2;
  down.ptrs = ptrs.data();
  down.scales = scales.data();
  down.q = q.data();
  down.d = d.data();
  down.y = y.data();
  for (const memra_probe_arm arm :
       {MEMRA_PROBE_LOADONLY, MEMRA_PROBE_MATHONLY, MEMRA_PROBE_STREAM}) {
    memra_rows_probe_args probe = MEMRA_ROWS_PROBE_ARGS_INIT;
    probe.arm = arm;
    probe.gate_up = &gate_up;
    EXPECT_TRUE(ok(memra_moe_rows_probe(engine.get(), &probe, engine.stream())));
    probe.gate_up = nullptr;
    probe.down = &down;
    EXPECT_TRUE(ok(memra_moe_rows_probe(engine.get(), &probe, engine.stream())));
  }
  engine.synchronize();
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(out[kPairs * kIntermediate + i], 7.0f);
    EXPECT_EQ(y[2 * kHidden + i], 7.0f);
  }
}

}  // namespace
}  // namespace memra::cpu
