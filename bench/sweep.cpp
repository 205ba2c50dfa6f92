#include "sweep.h"

#include <algorithm>
#include <chrono>

#include "layer_calls.h"
#include "layer_stages.h"
#include "variants.h"

namespace memra::bench {
namespace {

// The quantisation of 64 values.
class HostLaunch {
 public:
  explicit HostLaunch(const Session& session)
      : session_(session),
        x_(session.device_memory(kColumns * sizeof(float))),
        q_(session.device_memory(kColumns)),
        d_(session.device_memory(kColumns * sizeof(float))) {
    session.fill(x_, 0);
  }
  void launch() const {
    memra_q8_1_args args = MEMRA_Q8_1_ARGS_INIT;
    args.x = x_.as();
    args.x_dtype = MEMRA_F32;
    args.x_stride = kColumns;
    args.rows = 1;
    args.columns = kColumns;
    args.q = q_.as<int8_t>();
    args.d = d_.as<float>();
    check(memra_quantize_q8_1(session_.engine(), &args, session_.stream()), "memra_quantize_q8_1");
  }

 private:
  static constexpr int64_t kColumns = 64;
  const Session& session_;
  Memory x_, q_, d_;
};

class Measurement {
 public:
  Measurement(const LayerCalls& calls, const Sampling& sampling, Progress* progress)
      : session_(calls.fixture().session()),
        calls_(calls),
        roof_(calls),
        sampling_(sampling),
        progress_(progress) {}

  void time_layer(SweepRow* row) const {
    const Replay roof = record_roof();
    const Replay layer = record_calls({});
    const Replay stable = record_calls({MEMRA_ROWS_AUTO, true});
    const std::vector<Summary> us = time_in_turn(session_, {&roof, &layer, &stable}, sampling_);
    row->roof = us[0];
    row->layer = us[1];
    row->stable = us[2];
  }

  // In turn, so that what drifts meets both alike.
  HostTiming time_host() const {
    const HostLaunch least(session_);
    std::vector<double> calls, launches;
    for (int i = 0; i < kHostSamples; ++i) {
      calls.push_back(host_us([&](int64_t call) { calls_.launch(call % calls_.count(), {}); }));
      launches.push_back(host_us([&](int64_t /*call*/) { least.launch(); }));
    }
    return {summarize(calls), summarize(launches)};
  }

  StageTiming time_stage(const LayerStages& stages, Stage stage, uint32_t variant) const {
    const auto stream = [&](bool dependent) {
      return record_all([&, dependent](int64_t call) { roof_.launch(call, stage, dependent); });
    };
    const auto kernel = [&](bool stable) {
      return record_all([&, stable](int64_t call) {
        stages.launch(call, stage, {variant, stable});
      });
    };
    const Replay replays[] = {stream(false), stream(true), kernel(false), kernel(true)};
    const std::vector<Summary> us =
        time_in_turn(session_, {&replays[0], &replays[1], &replays[2], &replays[3]}, sampling_);
    StageTiming timing;
    timing.stage = stage;
    timing.variant = variant;
    timing.bytes = stage == Stage::kDown ? calls_.down_bytes() : calls_.gate_up_bytes();
    timing.stream = us[0];
    timing.stream_dependent = us[1];
    timing.plain = us[2];
    timing.stable = us[3];
    return timing;
  }

  VariantSweep time_variants(const std::vector<uint32_t>& variants) const {
    VariantSweep sweep;
    std::vector<Replay> replays;
    for (const uint32_t variant : variants) {
      progress_->show("recording variant " + variant_name(variant));
      replays.push_back(record_calls({variant, false}));
    }
    std::vector<const Replay*> pointers;
    pointers.reserve(replays.size());
    for (const Replay& replay : replays)
      pointers.push_back(&replay);
    progress_->show(format("timing %zu variants in turn", variants.size()));
    const std::vector<Summary> us = time_in_turn(session_, pointers, sampling_);
    size_t fastest = 0;
    for (size_t i = 0; i < variants.size(); ++i) {
      sweep.all.push_back({variants[i], us[i]});
      if (us[i].median < us[fastest].median) fastest = i;
    }
    sweep.fastest = variants[fastest];
    const Replay automatic = record_calls({});
    const std::vector<Summary> pair =
        time_in_turn(session_, {&replays[fastest], &automatic}, sampling_);
    sweep.fastest_us = pair[0];
    sweep.auto_us = pair[1];
    return sweep;
  }

 private:
  // Fewer than any queue holds, so that none blocks.
  static constexpr int kHostCalls = 8, kHostSamples = 25;

  template <typename Enqueue>
  double host_us(const Enqueue& enqueue) const {
    using Clock = std::chrono::steady_clock;
    session_.synchronize();
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < kHostCalls; ++i)
      enqueue(i);
    const std::chrono::duration<double, std::micro> us = Clock::now() - begin;
    session_.synchronize();
    return us.count() / kHostCalls;
  }

  template <typename Enqueue>
  Replay record_all(Enqueue enqueue) const {
    return record_for(session_, calls_.count(), sampling_.min_us, enqueue);
  }
  Replay record_calls(const CallOptions& options) const {
    return record_all([&](int64_t call) { calls_.launch(call, options); });
  }
  Replay record_roof() const {
    return record_all([&](int64_t call) {
      roof_.launch(call, Stage::kGateUp, true);
      roof_.launch(call, Stage::kDown, true);
    });
  }

  const Session& session_;
  const LayerCalls& calls_;
  LayerRoof roof_;
  Sampling sampling_;
  Progress* progress_;
};

std::vector<uint32_t> listed_variants(const LayerFixture& fixture) {
  const memra_moe_layer_properties& properties = fixture.properties();
  return {properties.rows_variants, properties.rows_variants + properties.n_rows_variants};
}

void check_bits(const LayerCalls& calls, const std::vector<uint32_t>& variants) {
  const Bf16Bits y = calls.output(0, {});
  if (calls.output(0, {MEMRA_ROWS_AUTO, true}) != y)
    throw Failure("the bits with MEMRA_FLAG_INPUTS_STABLE differ from those without");
  for (const uint32_t variant : variants) {
    if (calls.output(0, {variant, false}) != y)
      throw Failure("the bits of variant " + variant_name(variant) + " differ from AUTO's");
  }
}

}  // namespace

std::vector<SweepRow> run_case(const Session& session, const SweepCase& sweep_case,
                               const Sampling& sampling, bool variants, Progress* progress) {
  progress->show(sweep_case.name + ": weights");
  const LayerFixture fixture(session, sweep_case.shape, sweep_case.activation);
  std::vector<SweepRow> rows;
  for (const int64_t tokens : sweep_case.tokens) {
    const std::string title =
        format("%s, %lld tokens", sweep_case.name.c_str(), static_cast<long long>(tokens));
    progress->show(title + ": outputs");
    const LayerCalls calls(fixture, tokens);
    const std::vector<uint32_t> explicit_variants =
        variants ? listed_variants(fixture) : std::vector<uint32_t>();
    calls.check_outputs();
    check_bits(calls, explicit_variants);

    SweepRow row;
    row.name = sweep_case.name;
    row.model = sweep_case.model;
    row.shape = calls.shape();
    row.activation = sweep_case.activation;
    row.calls = calls.count();
    row.unique_experts = calls.routing().mean_unique();
    row.gate_up_bytes = calls.gate_up_bytes();
    row.down_bytes = calls.down_bytes();
    row.repeat_bytes = calls.routing().repeat_bytes(calls.shape());
    if (const memra_rows_plan* plan = fixture.plan(tokens)) row.plan = *plan;

    const Measurement measurement(calls, sampling, progress);
    progress->show(title + ": roof and layer");
    measurement.time_layer(&row);
    row.host = measurement.time_host();
    if (sweep_case.stages) {
      progress->show(title + ": stages");
      const LayerStages stages(calls);
      // Without a plan AUTO is the stage's own, on activations in natural order.
      const bool listed = row.plan.has_value();
      row.stages = {
          measurement.time_stage(stages, Stage::kGateUp, listed ? row.plan->gate_up_variant : 0),
          measurement.time_stage(stages, Stage::kDown, listed ? row.plan->down_variant : 0)};
    }
    if (variants) row.variants = measurement.time_variants(explicit_variants);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace memra::bench
