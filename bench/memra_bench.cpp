// memra-bench: Google Benchmark over the stages and the whole layer of both paths. Times are the
// device's, of a graph replay, per launch; bytes are those of the weights, each expert once, and
// flops those of the products.
//
//   rows/STAGE.FORMAT.VARIANT/tokens:N    a stage
//   rows/layer/tokens:N                   memra_moe_rows, bf16 in and out
//   rows/layer/model:NAME/tokens:N        the same in the dimensions of a published model
//   grouped/STAGE.FORMAT/tokens:N         a stage, as the layer's call runs it
//   grouped/layer.FORMAT/tokens:N         memra_moe_grouped, bf16 in and out
//   grouped/layer/model:NAME/tokens:N     the same in the dimensions of a published model
//   moe/tokens:N                          memra_moe, which chooses the path
//
// Without --model the grouped path has 288 experts, 4096/640, and its routing is skewed; that of
// models is uniform.
//
// To compare two builds, run both with JSON out and give the files to compare.py, which comes with
// Google Benchmark (tools/compare.py in its sources, googlebenchmark-tools in some packages):
//
//   OPTIONS="--benchmark_filter=rows/layer --benchmark_repetitions=9 --benchmark_out_format=json"
//   old/bench/memra-bench $OPTIONS --benchmark_out=old.json
//   new/bench/memra-bench $OPTIONS --benchmark_out=new.json
//   compare.py benchmarks old.json new.json
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "arms.h"
#include "cli.h"
#include "dataset.h"
#include "grouped_calls.h"
#include "grouped_options.h"
#include "launcher.h"
#include "layer_calls.h"
#include "models.h"
#include "replay.h"

namespace memra::bench {
namespace {

constexpr int64_t kStageTokens[] = {1, 2, 4, 8, 16};
constexpr int64_t kLayerTokens[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int64_t kModelTokens[] = {1, 4};
constexpr int64_t kGroupedTokens[] = {64, 576, 4096};
constexpr int64_t kGroupedModelTokens[] = {512, 4096};
constexpr int64_t kMoeTokens[] = {1, 4, 16, 64, 256, 1024, 4096};
constexpr int64_t kCpuMaxTokens = 64;
constexpr int64_t kMinGpuLaunches = 100;
constexpr int64_t kGroupedBanks = 3;

// One iteration is one replay of a graph of many launches, so that its start does not count.
template <typename Enqueue>
void replay(benchmark::State& state, const Session& session, int64_t rotation, double bytes,
            Enqueue enqueue, int64_t min_gpu_launches = kMinGpuLaunches) {
  const int64_t min_launches = session.on_cpu() ? 1 : min_gpu_launches;
  const Replay replay = record(session, rotation, min_launches, enqueue);
  const Stopwatch stopwatch(session);
  replay.enqueue(session);
  for (auto _ : state) {
    const double us = stopwatch.time_us([&] { replay.enqueue(session); });
    state.SetIterationTime(us / 1e6 / static_cast<double>(replay.launches));
  }
  session.synchronize();
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

struct GroupedBenchmark {
  Activation activation;
  double skew = 1;
  memra_format format = MEMRA_NVFP4_V2;
  uint32_t stages = MEMRA_GROUPED_ALL;
  memra_path path = MEMRA_PATH_GROUPED;
};

// Makes what a benchmark needs when it comes to run, and keeps it for the next one of the same
// dimensions. What is not needed any more is freed first: two banks may not fit.
class Suite {
 public:
  explicit Suite(const Session& session) : session_(session) {}

  void run_stage(benchmark::State& state, const Arm& arm, const Shape& shape,
                 const Activation& activation) {
    prepare_data(shape, activation);
    const Launcher launcher(session_, *data_, false);
    const bool is_down = arm.stage == Stage::kDown;
    replay(state, session_, data_->copies().of(is_down), data_->launch_bytes(is_down),
           [&](int64_t copy) { launcher.launch(arm, copy, activation); });
  }

  // `shape` has the most tokens that the layer is used with.
  void run_layer(benchmark::State& state, Shape shape, const Activation& activation,
                 int64_t tokens) {
    shape.n_experts = usual_experts(shape, session_.on_cpu());
    prepare_layer(shape, activation);
    const LayerCalls calls(*layer_, tokens);
    const memra_rows_plan* plan = layer_->plan(tokens);
    state.SetLabel(format("%lld experts", static_cast<long long>(shape.n_experts)) +
                   (plan == nullptr
                        ? ""
                        : std::string(", ") + plan->gate_up_kernel + ", " + plan->down_kernel));
    replay(state, session_, calls.count(), calls.bytes(),
           [&](int64_t call) { calls.launch(call, {}); });
  }

  // Some of MEMRA_GROUPED_*, or a whole call by `path`. `shape` has the most tokens that the banks
  // are used with.
  void run_grouped(benchmark::State& state, const GroupedBenchmark& what, Shape shape,
                   int64_t tokens) {
    shape.n_experts = usual_experts(shape, session_.on_cpu());
    prepare_banks(shape, what.activation, what.format);
    const GroupedCalls calls(*banks_, tokens, what.skew);
    const memra_moe_layer_properties& layer = banks_->properties();
    const bool rows = what.path == MEMRA_PATH_AUTO && tokens < layer.grouped_min_tokens;
    state.SetLabel(
        format("%lld experts, ", static_cast<long long>(shape.n_experts)) +
        (rows ? std::string("rows")
              : std::string(layer.grouped_gate_up_kernel) + ", " + layer.grouped_down_kernel));
    // What a stage reads is made by those before it.
    const bool whole = what.stages == MEMRA_GROUPED_ALL;
    if (!whole) calls.launch_stages(0, what.stages - 1);
    const double share = whole ? 1 : what.stages == MEMRA_GROUPED_GATE_UP ? 2.0 / 3 : 1.0 / 3;
    replay(
        state, session_, whole ? calls.count() : banks_->count(), share * calls.bytes(),
        [&](int64_t call) {
          whole ? calls.launch(call, {what.path, false}) : calls.launch_stages(call, what.stages);
        },
        1);
    state.counters["flops"] =
        benchmark::Counter(share * calls.flops(), benchmark::Counter::kIsIterationInvariantRate);
  }

 private:
  void free_all() {
    banks_.reset();
    layer_.reset();
    data_.reset();
  }

  void prepare_banks(const Shape& shape, const Activation& activation, memra_format weight_format) {
    if (banks_ && banks_->shape() == shape && banks_->format() == weight_format &&
        banks_->fixture(0).activation() == activation)
      return;
    free_all();
    banks_ =
        std::make_unique<GroupedBanks>(session_, shape, activation, weight_format, kGroupedBanks);
  }

  void prepare_data(const Shape& shape, const Activation& activation) {
    if (data_ && data_->shape() == shape) return;
    free_all();
    // Large enough together for loads to come from memory.
    const double rotation = session_.on_cpu() ? 128e6 : 300e6;
    const auto experts = static_cast<double>(DataSet::count_unique_experts(shape));
    const auto copies = [&](Plane plane, double planes) {
      const double bytes = planes * experts * static_cast<double>(slab_bytes(shape, plane));
      return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(rotation / bytes)));
    };
    weights_ = make_synthetic_weights(shape);
    data_ = std::make_unique<DataSet>(session_, shape, *weights_,
                                      Copies{copies(kGate, 2), copies(kDown, 1)}, &progress_);
    // Down's input is what gate/up returns.
    Launcher(session_, *data_, false).launch(all_arms().front(), 0, activation);
    data_->requantize();
    progress_.clear();
  }

  void prepare_layer(const Shape& shape, const Activation& activation) {
    if (layer_ && layer_->shape() == shape && layer_->activation() == activation) return;
    free_all();
    layer_ = std::make_unique<LayerFixture>(session_, shape, activation);
  }

  const Session& session_;
  Progress progress_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<LayerFixture> layer_;
  std::unique_ptr<GroupedBanks> banks_;
};

void add(const std::string& name, const std::function<void(benchmark::State&)>& function) {
  const auto run = [function](benchmark::State& state) {
    try {
      function(state);
    } catch (const std::exception& error) {
      state.SkipWithError(error.what());
    }
  };
#ifndef __clang_analyzer__  // it does not see that the registry owns what its header allocates
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
#endif
}

struct Arguments {
  Shape shape;
  Activation activation;
  std::string model;
  EngineChoice engine;
};

std::string tokens_name(int64_t tokens) {
  return "/tokens:" + std::to_string(tokens);
}

template <size_t kCount>
void add_layer(Suite* suite, const std::string& name, Shape shape, const Activation& activation,
               const int64_t (&tokens_list)[kCount]) {
  shape.tokens = tokens_list[kCount - 1];
  for (const int64_t tokens : tokens_list) {
    add(name + tokens_name(tokens),
        [=](benchmark::State& state) { suite->run_layer(state, shape, activation, tokens); });
  }
}

// Calls on the CPU are kept to a second or so.
void add_grouped(Suite* suite, const std::string& name, const GroupedBenchmark& what, Shape shape,
                 std::span<const int64_t> tokens_list, bool on_cpu) {
  shape.tokens = on_cpu ? kCpuMaxTokens : tokens_list.back();
  for (const int64_t tokens : tokens_list) {
    if (on_cpu && tokens > kCpuMaxTokens) continue;
    add(name + tokens_name(tokens),
        [=](benchmark::State& state) { suite->run_grouped(state, what, shape, tokens); });
  }
}

void register_grouped(Suite* suite, const Arguments& arguments, bool on_cpu) {
  const bool reference = arguments.model.empty();
  const GroupedCase usual = grouped_cases({}, false).front();
  const Shape shape = reference ? usual.shape : arguments.shape;
  GroupedBenchmark whole;
  whole.activation = arguments.activation;
  if (reference) whole.activation.kind = MEMRA_SWIGLU;
  whole.skew = reference ? usual.skew : 1;
  for (const memra_format weight_format : {MEMRA_NVFP4_V2, MEMRA_NVFP4}) {
    whole.format = weight_format;
    const auto name = [&](const char* part) {
      return std::string("grouped/") + part + "." + format_name(weight_format);
    };
    GroupedBenchmark stage = whole;
    stage.stages = MEMRA_GROUPED_GATE_UP;
    add_grouped(suite, name("gate_up"), stage, shape, kGroupedTokens, on_cpu);
    stage.stages = MEMRA_GROUPED_DOWN;
    add_grouped(suite, name("down"), stage, shape, kGroupedTokens, on_cpu);
    add_grouped(suite, name("layer"), whole, shape, kGroupedTokens, on_cpu);
  }
  whole.format = MEMRA_NVFP4_V2;
  whole.path = MEMRA_PATH_AUTO;
  add_grouped(suite, "moe", whole, shape, kMoeTokens, on_cpu);
  for (const ModelShape& model : model_shapes()) {
    GroupedBenchmark layer;
    layer.activation = model.activation_options();
    add_grouped(suite, "grouped/layer/model:" + std::string(model.name), layer, model.shape(),
                on_cpu ? std::span(&kCpuMaxTokens, 1) : std::span(kGroupedModelTokens), on_cpu);
  }
}

void register_all(Suite* suite, const Arguments& arguments, bool on_cpu) {
  const Activation activation = arguments.activation;
  for (const int64_t tokens : kStageTokens) {
    Shape shape = arguments.shape;
    shape.tokens = tokens;
    for (const Arm& arm : all_arms()) {
      if (!arm.has_output()) continue;
      add("rows/" + std::string(arm.name) + tokens_name(tokens),
          [=](benchmark::State& state) { suite->run_stage(state, arm, shape, activation); });
    }
  }
  add_layer(suite, "rows/layer", arguments.shape, activation, kLayerTokens);
  for (const ModelShape& model : model_shapes()) {
    add_layer(suite, "rows/layer/model:" + std::string(model.name), model.shape(),
              model.activation_options(), kModelTokens);
  }
  register_grouped(suite, arguments, on_cpu);
}

void read_command_line(int argc, char** argv, CLI::App* app, Arguments* arguments) {
  app->footer("Options of Google Benchmark (--benchmark_filter=...) are understood as well.");
  app->add_option("--model", arguments->model, "dimensions of a published model (4096 -> 2048)");
  add_engine_options(app, &arguments->engine);
  app->parse(argc, argv);
  if (arguments->model.empty()) return;
  const ModelShape* model = find_model(arguments->model);
  if (model == nullptr) throw CLI::ValidationError("--model", "no model " + arguments->model);
  arguments->shape = model->shape();
  arguments->activation = model->activation_options();
}

int run(const Arguments& arguments) {
  const Session session(arguments.engine);
  benchmark::AddCustomContext("memra device", session.properties().device_name);
  Suite suite(session);
  register_all(&suite, arguments, session.on_cpu());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace memra::bench

int main(int argc, char** argv) {
  using namespace memra::bench;
  try {
    CLI::App app{"Benchmarks of memra's rows and grouped paths.", "memra-bench"};
    Arguments arguments;
    bool help = false;
    for (int i = 1; i < argc; ++i)
      help = help || std::string(argv[i]) == "--help";
    // Google Benchmark takes its own options out of argv; its --help would hide ours.
    if (!help) benchmark::Initialize(&argc, argv);
    try {
      read_command_line(argc, argv, &app, &arguments);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 2;
    }
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memra-bench: %s\n", error.what());
    return 1;
  }
}
