// memra-bench: Google Benchmark over the stages and the whole layer of the rows path, for 1 to 16
// tokens. Times are the device's, of a graph replay, per launch; bytes are those of the weights.
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
#include "layer_fixture.h"
#include "models.h"

namespace memra::bench {
namespace {

constexpr int64_t kTokens[] = {1, 2, 4, 8, 16};

// One iteration is one replay of a graph of `launches` launches.
template <typename Enqueue>
void replay(benchmark::State& state, const Session& session, int64_t launches, double bytes,
            Enqueue enqueue) {
  const Graph graph = session.capture(enqueue);
  const Event start = session.event();
  const Event end = session.event();
  const auto run = [&] {
    check(memra_graph_launch(graph.get(), session.stream()), "memra_graph_launch");
  };
  run();
  session.synchronize();
  for (auto _ : state) {
    check(memra_event_record(start.get(), session.stream()), "memra_event_record");
    run();
    check(memra_event_record(end.get(), session.stream()), "memra_event_record");
    check(memra_event_synchronize(end.get()), "memra_event_synchronize");
    float milliseconds = 0;
    check(memra_event_elapsed(start.get(), end.get(), &milliseconds), "memra_event_elapsed");
    state.SetIterationTime(static_cast<double>(milliseconds) / 1e3 / static_cast<double>(launches));
  }
  session.synchronize();
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

// Makes what a benchmark needs when it comes to run; keeps it for the next one of the same tokens.
class Suite {
 public:
  Suite(const Session& session, const Shape& shape, const Activation& activation)
      : session_(session), shape_(shape), activation_(activation) {}

  void run_stage(benchmark::State& state, const Arm& arm, int64_t tokens) {
    prepare_data(tokens);
    const Launcher launcher(session_, *data_, false);
    const bool is_down = arm.stage == Stage::kDown;
    const int64_t copies = data_->copies().of(is_down);
    replay(state, session_, copies, data_->launch_bytes(is_down), [&] {
      for (int64_t copy = 0; copy < copies; ++copy)
        launcher.launch(arm, copy, activation_);
    });
  }

  void run_layer(benchmark::State& state, int64_t tokens) {
    prepare_layer(tokens);
    replay(state, session_, layer_->batches(), layer_->launch_bytes(), [&] {
      for (int batch = 0; batch < layer_->batches(); ++batch)
        layer_->launch(batch);
    });
  }

 private:
  Shape shape_of(int64_t tokens) const {
    Shape shape = shape_;
    shape.tokens = tokens;
    return shape;
  }

  void prepare_data(int64_t tokens) {
    if (data_ && data_->shape().tokens == tokens) return;
    layer_.reset();
    data_.reset();
    const Shape shape = shape_of(tokens);
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
    Launcher(session_, *data_, false).launch(all_arms().front(), 0, activation_);
    data_->requantize();
    progress_.clear();
  }

  void prepare_layer(int64_t tokens) {
    if (layer_ && layer_tokens_ == tokens) return;
    data_.reset();
    layer_.reset();
    const int batches = session_.on_cpu() ? 2 : 16;
    layer_ = std::make_unique<LayerFixture>(session_, shape_of(tokens), activation_, batches);
    layer_tokens_ = tokens;
  }

  const Session& session_;
  Shape shape_;
  Activation activation_;
  Progress progress_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<LayerFixture> layer_;
  int64_t layer_tokens_ = 0;
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

void register_all(Suite* suite) {
  for (const int64_t tokens : kTokens) {
    for (const Arm& arm : all_arms()) {
      if (!arm.has_output()) continue;
      add("rows/" + std::string(arm.name) + "/tokens:" + std::to_string(tokens),
          [suite, arm, tokens](benchmark::State& state) { suite->run_stage(state, arm, tokens); });
    }
  }
  for (const int64_t tokens : kTokens) {
    add("rows/layer/tokens:" + std::to_string(tokens),
        [suite, tokens](benchmark::State& state) { suite->run_layer(state, tokens); });
  }
}

struct Arguments {
  Shape shape;
  Activation activation;
  std::string model;
  EngineChoice engine;
};

void read_command_line(int argc, char** argv, CLI::App* app, Arguments* arguments) {
  app->footer("Options of Google Benchmark (--benchmark_filter=...) are understood as well.");
  app->add_option("--model", arguments->model, "dimensions of a published model (4096 -> 2048)");
  add_engine_options(app, &arguments->engine);
  app->parse(argc, argv);
  if (arguments->model.empty()) return;
  const ModelShape* model = find_model(arguments->model);
  if (model == nullptr) throw CLI::ValidationError("--model", "no model " + arguments->model);
  arguments->shape = {model->hidden_size, model->intermediate_size, model->n_experts, model->top_k,
                      1};
  arguments->activation = {model->activation, model->limit > 0 ? model->limit : 7.0F, model->alpha};
}

int run(const Arguments& arguments) {
  const Session session(arguments.engine);
  benchmark::AddCustomContext("memra device", session.properties().device_name);
  Suite suite(session, arguments.shape, arguments.activation);
  register_all(&suite);
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
