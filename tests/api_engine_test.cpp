// Engines: options, environment, fallback, log, order of destruction, fork.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "api_entries.h"
#include "memra.h"

namespace memra::api_test {
namespace {

// Sets a variable for one scope. The library reads the environment in memra_engine_create alone, in
// this thread.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~Variable() { unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe)
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class Engine {
 public:
  explicit Engine(memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT) {
    status = memra_engine_create(&options, &handle);
    if (status == MEMRA_OK) memra_engine_info(handle, &info);
  }
  ~Engine() { memra_engine_destroy(handle); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  memra_engine* handle = nullptr;
  memra_status status;
  memra_engine_properties info = MEMRA_ENGINE_PROPERTIES_INIT;
};

memra_engine_options cpu_options() {
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = MEMRA_BACKEND_CPU;
  return options;
}

bool error_has(const char* text) {
  return std::string(memra_last_error()).find(text) != std::string::npos;
}

TEST(ApiEngine, Cpu) {
  memra_engine_options options = cpu_options();
  options.cpu_threads = 2;
  const Engine engine(options);
  ASSERT_EQ(engine.status, MEMRA_OK) << memra_last_error();
  EXPECT_EQ(engine.info.backend, MEMRA_BACKEND_CPU);
  EXPECT_EQ(engine.info.cpu_threads, 2);
  EXPECT_EQ(engine.info.device, 0);
  EXPECT_EQ(engine.info.compute_capability, 0);
  EXPECT_STRNE(engine.info.simd, "");
  EXPECT_STREQ(engine.info.fallback_reason, "");
}

TEST(ApiEngine, AutoWithoutGpuTakesTheCpuAndSaysWhy) {
  memra_bank_bytes(0, 0, 0, 0, nullptr, nullptr);
  const std::string before = memra_last_error();
  memra_engine* engine = nullptr;
  ASSERT_EQ(memra_engine_create(nullptr, &engine), MEMRA_OK) << memra_last_error();
  memra_engine_properties info = MEMRA_ENGINE_PROPERTIES_INIT;
  ASSERT_EQ(memra_engine_info(engine, &info), MEMRA_OK);
  memra_engine_destroy(engine);
  EXPECT_EQ(memra_last_error(), before) << "a success must not leave a text";
  if (info.backend == MEMRA_BACKEND_CUDA) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(info.backend, MEMRA_BACKEND_CPU);
  EXPECT_STRNE(info.fallback_reason, "");
}

TEST(ApiEngine, CudaWithoutGpuIsAnError) {
  if (Engine().info.backend == MEMRA_BACKEND_CUDA) GTEST_SKIP() << "there is a GPU";
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = MEMRA_BACKEND_CUDA;
  memra_engine* engine = reinterpret_cast<memra_engine*>(&options);
  const memra_status status = memra_engine_create(&options, &engine);
  EXPECT_EQ(engine, nullptr);
  EXPECT_TRUE(status == MEMRA_ERROR_NO_DEVICE || status == MEMRA_ERROR_DRIVER_TOO_OLD ||
              status == MEMRA_ERROR_NO_KERNEL_IMAGE)
      << memra_status_string(status);
  EXPECT_STRNE(memra_last_error(), "");
}

TEST(ApiEngine, EnvironmentSetsDefaults) {
  const Variable backend("MEMRA_BACKEND", "cpu");
  const Variable threads("MEMRA_CPU_THREADS", "1");
  const Engine engine;
  ASSERT_EQ(engine.status, MEMRA_OK) << memra_last_error();
  EXPECT_EQ(engine.info.backend, MEMRA_BACKEND_CPU);
  EXPECT_EQ(engine.info.cpu_threads, 1);
  EXPECT_STREQ(engine.info.fallback_reason, "") << "the CPU was asked for";
}

// Every path that the build names either runs, and says so, or is refused by its name.
TEST(ApiEngine, EnvironmentChoosesTheCpuPath) {
  memra_build_properties build = MEMRA_BUILD_PROPERTIES_INIT;
  ASSERT_EQ(memra_build_info(&build), MEMRA_OK);
  EXPECT_STREQ(build.simd, MEMRA_TEST_CPU_PATHS) << "ctest runs the conformance suite over these";
  std::istringstream paths(build.simd);
  int running = 0;
  for (std::string path; paths >> path;) {
    const Variable simd("MEMRA_CPU_SIMD", path.c_str());
    const Engine engine(cpu_options());
    if (engine.status == MEMRA_OK) {
      EXPECT_EQ(engine.info.simd, path);
      ++running;
    } else {
      EXPECT_EQ(engine.status, MEMRA_ERROR_UNSUPPORTED);
      EXPECT_TRUE(error_has(path.c_str())) << memra_last_error();
      EXPECT_TRUE(error_has("portable")) << memra_last_error();
    }
  }
  EXPECT_GE(running, 1);
}

TEST(ApiEngine, OptionsOverrideTheEnvironment) {
  const Variable backend("MEMRA_BACKEND", "cuda");
  const Variable threads("MEMRA_CPU_THREADS", "1");
  memra_engine_options options = cpu_options();
  options.cpu_threads = 2;
  const Engine engine(options);
  ASSERT_EQ(engine.status, MEMRA_OK) << memra_last_error();
  EXPECT_EQ(engine.info.backend, MEMRA_BACKEND_CPU);
  EXPECT_EQ(engine.info.cpu_threads, 2);
}

TEST(ApiEngine, UnreadableVariablesAreErrors) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"MEMRA_BACKEND", {"", "gpu", "CPU", "cpu "}},
      {"MEMRA_CPU_THREADS", {"", "-1", "two", "4x", " 4", "0x4", "99999999999999999999", "4097"}},
      {"MEMRA_CPU_SIMD", {"", "avx", "AVX2", "portable ", "avx2 portable"}},
      {"MEMRA_LOG", {"", "debug", "3"}},
      {"MEMRA_MOE_VROWS_ILP", {"", "2", "yes", "-1"}},
      {"MEMRA_MOE_VROWS_ORD", {"on"}},
      {"MEMRA_MOE_VROWS_DEDUP_ORDER", {"10"}},
      {"MEMRA_MOE_VROWS_PACK", {"true"}},
  };
  for (const auto& [name, values] : cases) {
    for (const char* value : values) {
      SCOPED_TRACE(std::string(name) + "=\"" + value + "\"");
      const Variable variable(name, value);
      const Engine engine(cpu_options());
      EXPECT_EQ(engine.status, MEMRA_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(engine.handle, nullptr);
      EXPECT_TRUE(error_has(name)) << memra_last_error();
    }
  }
}

TEST(ApiEngine, EnvironmentIsReadOnlyAtCreation) {
  World world;
  ASSERT_TRUE(world.ok());
  const Variable backend("MEMRA_BACKEND", "nonsense");
  const Variable ilp("MEMRA_MOE_VROWS_ILP", "nonsense");
  for (const Entry& entry : all_entries(world)) {
    if (entry.name == "memra_engine_create") continue;
    EXPECT_EQ(entry.call(entry.valid.data()), MEMRA_OK) << entry.name << ": " << memra_last_error();
  }
}

// The first plan of a layer in a format, on an engine made now.
memra_rows_plan first_plan(memra_format format, uint32_t rows_variant) {
  memra_engine_options options = cpu_options();
  options.cpu_threads = 1;
  options.rows_variant = rows_variant;
  const Engine engine(options);
  EXPECT_EQ(engine.status, MEMRA_OK) << memra_last_error();
  World world(format);
  const memra_moe_layer_desc desc = world.layer_desc();
  memra_moe_layer* layer = nullptr;
  memra_moe_layer_properties info{};
  info.struct_size = sizeof(info);
  EXPECT_EQ(memra_moe_layer_create(engine.handle, &desc, &layer), MEMRA_OK) << memra_last_error();
  EXPECT_EQ(memra_moe_layer_info(layer, &info), MEMRA_OK);
  EXPECT_EQ(info.n_rows_plans > 0, true);
  memra_moe_layer_destroy(layer);
  return info.rows_plans[0];
}

TEST(ApiEngine, DefaultVariant) {
  const uint32_t variant = MEMRA_ROWS_ILP | MEMRA_ROWS_PACK;
  memra_rows_plan plan = first_plan(MEMRA_NVFP4, variant);
  EXPECT_EQ(plan.gate_up_variant, variant);
  EXPECT_EQ(plan.down_variant, variant);
  plan = first_plan(MEMRA_NVFP4_V2, MEMRA_ROWS_LANE_MAJOR);
  EXPECT_EQ(plan.gate_up_variant, static_cast<uint32_t>(MEMRA_ROWS_LANE_MAJOR));
  // A layer that does not accept it has what it has without it.
  plan = first_plan(MEMRA_NVFP4, MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_PACK);
  const memra_rows_plan undefined = first_plan(MEMRA_NVFP4, MEMRA_ROWS_AUTO);
  EXPECT_EQ(plan.gate_up_variant, undefined.gate_up_variant);
  EXPECT_EQ(plan.down_variant, undefined.down_variant);
}

TEST(ApiEngine, EnvironmentActsOnAuto) {
  struct Case {
    const char* name;
    uint32_t bit;
  };
  for (const Case& c :
       {Case{"MEMRA_MOE_VROWS_ILP", MEMRA_ROWS_ILP}, Case{"MEMRA_MOE_VROWS_ORD", MEMRA_ROWS_ORD},
        Case{"MEMRA_MOE_VROWS_DEDUP_ORDER", MEMRA_ROWS_DEDUP_ORDER},
        Case{"MEMRA_MOE_VROWS_PACK", MEMRA_ROWS_PACK}}) {
    SCOPED_TRACE(c.name);
    for (const memra_format format : {MEMRA_NVFP4, MEMRA_NVFP4_V2}) {
      {
        const Variable on(c.name, "1");
        const memra_rows_plan plan = first_plan(format, MEMRA_ROWS_AUTO);
        EXPECT_NE(plan.gate_up_variant & c.bit, 0u);
        EXPECT_NE(plan.down_variant & c.bit, 0u);
        // The engine's option wins.
        EXPECT_EQ(first_plan(format, MEMRA_ROWS_PLAIN).gate_up_variant,
                  static_cast<uint32_t>(MEMRA_ROWS_PLAIN));
      }
      const Variable off(c.name, "0");
      const memra_rows_plan plan = first_plan(format, MEMRA_ROWS_AUTO);
      EXPECT_EQ(plan.gate_up_variant & c.bit, 0u);
      EXPECT_EQ(plan.down_variant & c.bit, 0u);
    }
  }
}

// Whatever the environment prefers, a stage called with AUTO runs: no order, natural activations.
TEST(ApiEngine, StagesWithAutoUnderEveryPreference) {
  for (const char* name : {"MEMRA_MOE_VROWS_ORD", "MEMRA_MOE_VROWS_DEDUP_ORDER"}) {
    const Variable preference(name, "1");
    World world(MEMRA_NVFP4_V2);
    ASSERT_TRUE(world.ok());
    memra_rows_gate_up_args args = world.gate_up_args();
    args.order = nullptr;
    EXPECT_EQ(world.finish(memra_moe_rows_gate_up(world.engine, &args, nullptr)), MEMRA_OK)
        << memra_last_error();
  }
}

// The engine's default may be lane-major, but a stage called with AUTO reads activations in natural
// order: the bits are those of an explicit variant.
TEST(ApiEngine, StagesWithAutoNeverAssumeLaneMajor) {
  World plain(MEMRA_NVFP4_V2);
  ASSERT_TRUE(plain.ok());
  for (std::size_t i = 0; i < plain.q.size(); ++i) {
    plain.q.as<int8_t>()[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  }
  for (std::size_t i = 0; i < plain.slabs.size(); ++i) {
    plain.slabs.as<unsigned char>()[i] = static_cast<unsigned char>(i * 29 % 0x7F);
  }
  memra_engine_options options = cpu_options();
  options.rows_variant = MEMRA_ROWS_LANE_MAJOR;
  const Engine lane_major(options);
  ASSERT_EQ(lane_major.status, MEMRA_OK);

  memra_rows_gate_up_args args = plain.gate_up_args();
  args.variant = MEMRA_ROWS_PLAIN;
  ASSERT_EQ(plain.finish(memra_moe_rows_gate_up(plain.engine, &args, nullptr)), MEMRA_OK);
  Memory by_default(kPairs * kIntermediate * sizeof(float), Memory::kPoison);
  args.variant = MEMRA_ROWS_AUTO;
  args.out = by_default.as<float>();
  ASSERT_EQ(memra_moe_rows_gate_up(lane_major.handle, &args, nullptr), MEMRA_OK);
  ASSERT_EQ(memra_stream_synchronize(lane_major.handle, nullptr), MEMRA_OK);
  EXPECT_EQ(std::memcmp(by_default.as(), plain.act.as(), by_default.size()), 0);

  // The comparison means something: lane-major of the same bytes is another result.
  args.variant = MEMRA_ROWS_LANE_MAJOR;
  ASSERT_EQ(memra_moe_rows_gate_up(lane_major.handle, &args, nullptr), MEMRA_OK);
  ASSERT_EQ(memra_stream_synchronize(lane_major.handle, nullptr), MEMRA_OK);
  EXPECT_NE(std::memcmp(by_default.as(), plain.act.as(), by_default.size()), 0);
}

using Lines = std::vector<std::pair<int32_t, std::string>>;

void keep_line(int32_t level, const char* text, void* lines) {
  static_cast<Lines*>(lines)->emplace_back(level, text);
}

TEST(ApiEngine, Log) {
  Lines lines;
  memra_engine_options options = cpu_options();
  options.log = keep_line;
  options.log_user = &lines;
  {
    const Engine engine(options);
    memra_alloc(engine.handle, 8, nullptr);
    EXPECT_TRUE(lines.empty()) << "off is the default";
  }
  options.log_level = MEMRA_LOG_INFO;
  {
    const Engine engine(options);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].first, MEMRA_LOG_INFO);
    EXPECT_NE(lines[0].second.find("CPU"), std::string::npos);
    memra_alloc(engine.handle, 8, nullptr);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[1].first, MEMRA_LOG_ERROR);
    EXPECT_EQ(lines[1].second, memra_last_error());
  }
  lines.clear();
  options.log_level = 0;
  const Variable level("MEMRA_LOG", "info");
  const Engine engine(options);
  EXPECT_EQ(lines.size(), 1u);
  for (const auto& [severity, text] : lines) {
    EXPECT_EQ(text.find('\n'), std::string::npos) << severity;
  }
}

TEST(ApiEngine, HandlesMayOutliveTheEngine) {
  for (const bool engine_first : {false, true}) {
    World world;
    ASSERT_TRUE(world.ok());
    memra_engine* engine = nullptr;
    const memra_engine_options options = cpu_options();
    ASSERT_EQ(memra_engine_create(&options, &engine), MEMRA_OK);
    const memra_moe_layer_desc desc = world.layer_desc();
    memra_moe_layer* layer = nullptr;
    memra_event* event = nullptr;
    memra_graph* graph = nullptr;
    memra_stream stream = nullptr;
    memra_stream forgotten = nullptr;
    ASSERT_EQ(memra_moe_layer_create(engine, &desc, &layer), MEMRA_OK);
    ASSERT_EQ(memra_event_create(engine, &event), MEMRA_OK);
    ASSERT_EQ(memra_stream_create(engine, &stream), MEMRA_OK);
    ASSERT_EQ(memra_stream_create(engine, &forgotten), MEMRA_OK);
    ASSERT_EQ(memra_graph_begin(engine, stream), MEMRA_OK);
    ASSERT_EQ(memra_memset(engine, world.y.as(), 0, 64, stream), MEMRA_OK);
    ASSERT_EQ(memra_graph_end(engine, stream, &graph), MEMRA_OK) << memra_last_error();
    ASSERT_EQ(memra_event_record(event, stream), MEMRA_OK);
    ASSERT_EQ(memra_stream_destroy(engine, stream), MEMRA_OK);
    if (engine_first) memra_engine_destroy(engine);
    memra_graph_destroy(graph);
    memra_event_destroy(event);
    memra_moe_layer_destroy(layer);
    if (!engine_first) memra_engine_destroy(engine);
  }
}

TEST(ApiEngine, Events) {
  const Engine engine(cpu_options());
  const Engine other(cpu_options());
  memra_event* start = nullptr;
  memra_event* end = nullptr;
  ASSERT_EQ(memra_event_create(engine.handle, &start), MEMRA_OK);
  ASSERT_EQ(memra_event_create(other.handle, &end), MEMRA_OK);
  float time = -1.0f;
  EXPECT_EQ(memra_event_query(start), MEMRA_OK) << "never recorded";
  EXPECT_EQ(memra_event_elapsed(start, end, &time), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_has("start was never recorded"));
  ASSERT_EQ(memra_event_record(start, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_event_elapsed(start, end, &time), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_has("end was never recorded"));
  EXPECT_EQ(time, -1.0f);
  ASSERT_EQ(memra_event_synchronize(start), MEMRA_OK);
  EXPECT_EQ(memra_event_wait(other.handle, start, nullptr), MEMRA_OK);
  ASSERT_EQ(memra_event_record(end, nullptr), MEMRA_OK);
  ASSERT_EQ(memra_event_synchronize(end), MEMRA_OK);
  EXPECT_EQ(memra_event_elapsed(start, end, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(memra_event_elapsed(start, end, &time), MEMRA_OK) << memra_last_error();
  EXPECT_GE(time, 0.0f);
  memra_event_destroy(start);
  memra_event_destroy(end);
}

TEST(ApiEngine, Memory) {
  const Engine engine(cpu_options());
  void* ptr = &ptr;
  ASSERT_EQ(memra_alloc(engine.handle, 0, &ptr), MEMRA_OK);
  EXPECT_EQ(ptr, nullptr);
  ASSERT_EQ(memra_alloc(engine.handle, 1, &ptr), MEMRA_OK);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % MEMRA_WORKSPACE_ALIGNMENT, 0u);
  EXPECT_EQ(memra_free(engine.handle, ptr), MEMRA_OK);
  EXPECT_EQ(memra_free(engine.handle, nullptr), MEMRA_OK);
  for (const uint64_t huge : {UINT64_MAX, UINT64_MAX - 255, uint64_t{1} << 62}) {
    void* kept = &ptr;
    EXPECT_EQ(memra_alloc(engine.handle, huge, &kept), MEMRA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(kept, &ptr);
  }
}

// Everything a child may try after a fork; returns the number of the first call that misbehaves.
int calls_in_child(World& world, memra_event* event, memra_graph* graph, memra_stream stream) {
  int number = 0;
  const auto refused = [&](memra_status status) {
    ++number;
    return status == MEMRA_ERROR_FORKED && memra_last_error()[0] != '\0';
  };
  for (const Entry& entry : all_entries(world)) {
    if (entry.name == "memra_engine_create") continue;
    if (!refused(entry.call(entry.valid.data()))) return number;
  }
  void* ptr = nullptr;
  uint64_t bytes = 0;
  float time = 0.0f;
  memra_event* other_event = nullptr;
  memra_graph* other_graph = nullptr;
  memra_engine_properties info = MEMRA_ENGINE_PROPERTIES_INIT;
  memra_moe_layer_properties layer_info{};
  layer_info.struct_size = sizeof(layer_info);
  const bool all = refused(memra_alloc(world.engine, 8, &ptr)) &&
                   refused(memra_free(world.engine, nullptr)) &&
                   refused(memra_memcpy(world.engine, nullptr, nullptr, 0, nullptr)) &&
                   refused(memra_memset(world.engine, nullptr, 0, 0, nullptr)) &&
                   refused(memra_stream_create(world.engine, &ptr)) &&
                   refused(memra_stream_query(world.engine, stream)) &&
                   refused(memra_stream_synchronize(world.engine, nullptr)) &&
                   refused(memra_stream_destroy(world.engine, stream)) &&
                   refused(memra_event_create(world.engine, &other_event)) &&
                   refused(memra_event_record(event, stream)) &&
                   refused(memra_event_query(event)) && refused(memra_event_synchronize(event)) &&
                   refused(memra_event_elapsed(event, event, &time)) &&
                   refused(memra_graph_begin(world.engine, stream)) &&
                   refused(memra_graph_end(world.engine, stream, &other_graph)) &&
                   refused(memra_graph_launch(graph, stream)) &&
                   refused(memra_engine_info(world.engine, &info)) &&
                   refused(memra_moe_layer_info(world.layer, &layer_info)) &&
                   refused(memra_moe_workspace_size(world.layer, 1, &bytes));
  if (!all) return number;
  memra_graph_destroy(graph);
  memra_event_destroy(event);
  memra_moe_layer_destroy(world.layer);
  memra_engine_destroy(world.engine);
  return 0;
}

TEST(ApiEngine, CallsInAForkedChildAreErrorsAndDoNotHang) {
  World world;
  ASSERT_TRUE(world.ok());
  memra_event* event = nullptr;
  memra_graph* graph = nullptr;
  memra_stream stream = nullptr;
  ASSERT_EQ(memra_event_create(world.engine, &event), MEMRA_OK);
  ASSERT_EQ(memra_stream_create(world.engine, &stream), MEMRA_OK);
  ASSERT_EQ(memra_graph_begin(world.engine, stream), MEMRA_OK);
  ASSERT_EQ(memra_graph_end(world.engine, stream, &graph), MEMRA_OK);

  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    _exit(calls_in_child(world, event, graph, stream));
  }
  int outcome = -1;
  ASSERT_EQ(waitpid(child, &outcome, 0), child);
  ASSERT_TRUE(WIFEXITED(outcome)) << "signal " << WTERMSIG(outcome);
  EXPECT_EQ(WEXITSTATUS(outcome), 0) << "number of the call that was not refused";

  // The parent is not disturbed.
  const memra_moe_args args = world.moe_args();
  EXPECT_EQ(world.finish(memra_moe_rows(world.layer, &args, nullptr)), MEMRA_OK);
  memra_graph_destroy(graph);
  memra_event_destroy(event);
}

}  // namespace
}  // namespace memra::api_test
