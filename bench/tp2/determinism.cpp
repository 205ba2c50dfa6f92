#include "tp2/determinism.h"

#include <algorithm>
#include <functional>

#include "inputs.h"
#include "layer_io.h"

namespace memra::bench::tp2 {
namespace {

using Bits = std::vector<uint32_t>;

// Work and the outputs that it must write whole.
struct Work {
  std::string name;
  std::vector<const Memory*> outputs;
  std::function<void()> enqueue;
};

Bits run(const Work& work, const Scenario& scenario) {
  const Session& session = scenario.rank(0).session();
  for (const Memory* output : work.outputs)
    session.fill(*output, 0xFF);
  if (scenario.options().determinism_concurrent != 0) {
    const Rank& other = scenario.rank(1);
    other.gather(other.resident());
    for (const Plane plane : {kGate, kUp, kDown})
      other.multiply(plane);
  }
  work.enqueue();
  Bits bits;
  for (const Memory* output : work.outputs) {
    const Bits part = session.download<uint32_t>(*output);
    bits.insert(bits.end(), part.begin(), part.end());
  }
  return bits;
}

}  // namespace

int DeterminismCase::differing() const {
  return static_cast<int>(std::count_if(repetitions.begin(), repetitions.end(),
                                        [](const OutputCounts& c) { return c.differing > 0; }));
}

bool DeterminismCase::is_vacuous() const {
  return std::any_of(repetitions.begin(), repetitions.end(),
                     [](const OutputCounts& c) { return c.is_degenerate(); });
}

std::string DeterminismCase::verdict() const {
  if (differing() > 0) return "NOT DETERMINISTIC";
  return is_vacuous() ? "VACUOUS" : "DETERMINISTIC, live";
}

std::vector<DeterminismCase> check_determinism(const Scenario& scenario) {
  const Rank& rank = scenario.rank(0);
  const LayerFixture& fixture = rank.fixture();
  const auto io = [&](int64_t tokens) {
    Shape shape = fixture.shape();
    shape.tokens = tokens;
    const auto first = rank.ids().begin();
    return LayerIo(fixture, {.ids = {first, first + shape.n_pairs()},
                             .weights = random_router_weights(shape),
                             .x = rank.resident().x});
  };
  std::vector<Work> works = {
      {"gate GEMM", {&rank.output(kGate)}, [&] { rank.multiply(kGate); }},
      {"chain",
       {&rank.output(kGate), &rank.output(kUp), &rank.output(kDown)},
       [&] { rank.chain(rank.resident(), nullptr); }},
  };
  const LayerIo grouped = io(fixture.shape().tokens);
  const LayerIo rows = io(std::min(fixture.shape().tokens, fixture.properties().rows_max_tokens));
  works.push_back({"layer, grouped", {&grouped.y()}, [&] { grouped.launch(MEMRA_PATH_GROUPED); }});
  works.push_back({"layer, rows", {&rows.y()}, [&] { rows.launch(MEMRA_PATH_ROWS); }});

  rank.gather(rank.resident());
  std::vector<DeterminismCase> cases;
  for (const Work& work : works) {
    DeterminismCase result;
    result.name = work.name;
    const Bits first = run(work, scenario);
    for (int i = 1; i < kRepetitions; ++i)
      result.repetitions.push_back(count_outputs(run(work, scenario), first));
    cases.push_back(std::move(result));
  }
  scenario.synchronize();
  return cases;
}

}  // namespace memra::bench::tp2
