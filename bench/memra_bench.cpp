// memra-bench: Google Benchmark over the stages and the whole layer of the rows path. Times are the
// device's, of a graph replay, per launch; bytes are those of the weights, each expert once.
//
//   rows/STAGE.FORMAT.VARIANT/tokens:N    a stage
//   rows/layer/tokens:N                   memra_moe_rows, bf16 in and out
//   rows/layer/model:NAME/tokens:N        the same in the dimensions of a published model
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
#include <string>

#include "arms.h"
#include "cli.h"
#include "dataset.h"
#include "launcher.h"
#include "layer_calls.h"
#include "models.h"
#include "replay.h"

namespace memra::bench {
namespace {

constexpr int64_t kStageTokens[] = {1, 2, 4, 8, 16};
constexpr int64_t kLayerTokens[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int64_t kModelTokens[] = {1, 4};
constexpr int64_t kMinGpuLaunches = 100;

// One iteration is one replay of a graph of many launches, so that its start does not count.
template <typename Enqueue>
void replay(benchmark::State& state, const Session& session, int64_t rotation, double bytes,
            Enqueue enqueue) {
  const int64_t min_launches = session.on_cpu() ? 1 : kMinGpuLaunches;
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

 private:
  void prepare_data(const Shape& shape, const Activation& activation) {
    if (data_ && data_->shape() == shape) return;
    layer_.reset();
    data_.reset();
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
    data_.reset();
    layer_.reset();
    layer_ = std::make_unique<LayerFixture>(session_, shape, activation);
  }

  const Session& session_;
  Progress progress_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<LayerFixture> layer_;
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

void register_all(Suite* suite, const Arguments& arguments) {
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
  register_all(&suite, arguments);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace memra::bench

int main(int argc, char** argv) {
  using namespace memra::bench;
  try {
    CLI::App app{"Benchmarks of memra's rows path.", "memra-bench"};
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
