#include "parallel/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "inputs.h"

namespace memra::bench::parallel {
namespace {

// The grouped path's tolerance for a layer; and with sums rounded to bf16, once a rank and once on
// the way.
constexpr double kLimitF32 = 1e-3;
constexpr double kLimitBf16 = 1e-2;

double elapsed_us(const Event& start, const Event& end) {
  float milliseconds = 0;
  check(memra_event_elapsed(start.get(), end.get(), &milliseconds), "memra_event_elapsed");
  return 1e3 * static_cast<double>(milliseconds);
}

// Of every rank, then the largest of each sample.
std::vector<double> slowest(Group& group, const std::vector<double>& mine) {
  const auto* bytes = reinterpret_cast<const std::byte*>(mine.data());
  std::vector<double> most(mine.size());
  for (const Bytes& part : group.exchange(Bytes(bytes, bytes + mine.size() * sizeof(double)))) {
    for (size_t i = 0; i < most.size(); ++i) {
      double value = 0;
      std::memcpy(&value, part.data() + i * sizeof(double), sizeof(double));
      most[i] = std::max(most[i], value);
    }
  }
  return most;
}

double value_at(const Bytes& y, size_t index, memra_dtype dtype) {
  if (dtype == MEMRA_F32) {
    float value = 0;
    std::memcpy(&value, y.data() + 4 * index, sizeof(value));
    return static_cast<double>(value);
  }
  uint16_t bits = 0;
  std::memcpy(&bits, y.data() + 2 * index, sizeof(bits));
  return static_cast<double>(bf16_value(bits));
}

// Microseconds of a layer. The first one brings the ranks into step.
double time_us(const Session& session, ParallelLayer* layer, const Work& work, int layers) {
  const Event start = session.event();
  const Event end = session.event();
  layer->run(work, 1);
  layer->record(work, start);
  layer->run(work, layers);
  layer->record(work, end);
  layer->synchronize();
  return elapsed_us(start, end) / layers;
}

}  // namespace

OneDevice measure_one_device(Group& group, const LayerFixture* whole, const Session& session,
                             const Call& call, const Sampling& sampling) {
  OneDevice one;
  std::vector<double> us(static_cast<size_t>(sampling.iters));
  if (whole != nullptr) {
    const Memory x = call.upload_x(session, {0, call.shape.tokens});
    std::vector<int64_t> tokens(static_cast<size_t>(call.shape.tokens));
    std::iota(tokens.begin(), tokens.end(), 0);
    const LayerIo io = call.io(*whole, tokens, x.as());
    session.fill(io.y(), 0xFF);
    io.launch(call.path);
    one.y = session.download<std::byte>(io.y());
    const Event start = session.event();
    const Event end = session.event();
    for (double& value : us) {
      io.launch(call.path);
      check(memra_event_record(start.get(), session.stream()), "memra_event_record");
      for (int i = 0; i < sampling.layers; ++i)
        io.launch(call.path);
      check(memra_event_record(end.get(), session.stream()), "memra_event_record");
      session.synchronize();
      value = elapsed_us(start, end) / sampling.layers;
    }
  }
  one.y = group.exchange(one.y)[0];
  one.time_us = summarize(slowest(group, us));
  return one;
}

SplitTimes measure_split(Group& group, const Session& session, ParallelLayer* layer,
                         const OneDevice& one, const Sampling& sampling) {
  constexpr Work kWorks[] = {
      {.compute = true, .communicate = false},
      {.compute = false, .communicate = true},
      {.compute = true, .communicate = true},
  };
  std::vector<double> us[3];
  // In turn, so that what drifts meets all alike; the first round warms up.
  for (int i = -1; i < sampling.iters; ++i) {
    for (size_t w = 0; w < 3; ++w) {
      group.barrier();
      const double value = time_us(session, layer, kWorks[w], sampling.layers);
      if (i >= 0) us[w].push_back(value);
    }
  }
  for (std::vector<double>& values : us)
    values = slowest(group, values);
  std::vector<double> exposed;
  std::vector<double> speed_up;
  for (size_t i = 0; i < us[2].size(); ++i) {
    exposed.push_back(us[2][i] - us[0][i]);
    speed_up.push_back(one.time_us.median / us[2][i]);
  }
  return {summarize(us[0]), summarize(us[1]), summarize(us[2]), summarize(exposed),
          summarize(speed_up)};
}

Agreement compare(Group& group, const Session& session, ParallelLayer* layer, const Call& call,
                  const OneDevice& one) {
  session.fill(layer->y(), 0xFF);
  session.synchronize();
  layer->run({}, 1);
  layer->synchronize();
  const Bytes y = session.download<std::byte>(layer->y());
  const auto first = static_cast<size_t>(layer->tokens().begin * call.shape.hidden_size);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < y.size() / dtype_bytes(call.dtype); ++i) {
    const double wanted = value_at(one.y, first + i, call.dtype);
    const double difference = value_at(y, i, call.dtype) - wanted;
    error += difference * difference;
    norm += wanted * wanted;
  }
  struct Sums {
    double error, norm;
  };
  Agreement agreement;
  agreement.limit = call.dtype == MEMRA_F32 ? kLimitF32 : kLimitBf16;
  for (const Sums& sums : group.gather(Sums{error, norm})) {
    // A rank without a token has nothing to compare. NaN is the worst of all.
    if (sums.norm == 0 && sums.error == 0) continue;
    const double relative = std::sqrt(sums.error / sums.norm);
    agreement.is_live = agreement.is_live || std::isfinite(sums.norm);
    if (!(relative <= agreement.relative_l2)) agreement.relative_l2 = relative;
  }
  return agreement;
}

}  // namespace memra::bench::parallel
