#include "reading.h"

#include <algorithm>

#include "console.h"

namespace memra::bench {
namespace {

// Within this factor of reading the bytes an arm is at the roof; nothing can be far below it.
constexpr double kRoof = 1.10;
constexpr double kBelowRoof = 0.85;
// A half of the kernel that alone takes this share of the whole explains it.
constexpr double kAlone = 0.90;

template <typename Predicate>
const ArmTiming* find(const std::vector<ArmTiming>& timings, Stage stage, Predicate predicate) {
  for (const ArmTiming& timing : timings) {
    if (timing.arm.stage == stage && predicate(timing.arm)) return &timing;
  }
  return nullptr;
}

Reading read(const ArmTiming& whole, const ArmTiming& stream, const ArmTiming* load,
             const ArmTiming* math) {
  const double us = whole.graph.median;
  const double of_stream = us / stream.graph.median;
  const double load_share = load != nullptr ? load->graph.median / us : 0;
  const double math_share = math != nullptr ? math->graph.median / us : 0;

  Reading reading;
  reading.arm = whole.arm.name;
  reading.text = format("%.2f of stream", of_stream);
  if (load != nullptr) reading.text += format(", loads alone %.2f of it", load_share);
  if (math != nullptr) reading.text += format(", math alone %.2f of it", math_share);
  if (of_stream < kBelowRoof) {
    reading.verdict = "unclear";
    reading.text += "; faster than reading its bytes: another process disturbs, or a cache helps";
  } else if (of_stream <= kRoof) {
    reading.verdict = "at the roof";
  } else if (load == nullptr || math == nullptr) {
    reading.verdict = "above the roof";
    reading.text += "; loadonly and mathonly would tell why";
  } else {
    reading.verdict = load_share >= math_share ? "access pattern" : "instruction stream";
    if (std::max(load_share, math_share) < kAlone) {
      reading.text += "; neither alone explains it: loads and math overlap poorly";
    }
  }
  return reading;
}

}  // namespace

const ArmTiming* find_baseline(const std::vector<ArmTiming>& timings, Stage stage) {
  return find(timings, stage, [](const Arm& arm) { return arm.is_baseline; });
}

const ArmTiming* find_stream(const std::vector<ArmTiming>& timings, Stage stage) {
  return find(timings, stage, [](const Arm& arm) { return arm.kind == Kind::kStream; });
}

std::vector<Reading> read_timings(const std::vector<ArmTiming>& timings) {
  std::vector<Reading> readings;
  for (const ArmTiming& timing : timings) {
    const Arm& whole = timing.arm;
    const ArmTiming* stream = find_stream(timings, whole.stage);
    if (!whole.has_output() || stream == nullptr) continue;
    const auto half = [&](Kind kind) {
      return find(timings, whole.stage, [&](const Arm& arm) {
        return arm.kind == kind && arm.format == whole.format && arm.variant == whole.variant;
      });
    };
    const ArmTiming* load = half(Kind::kLoadOnly);
    const ArmTiming* math = half(Kind::kMathOnly);
    if (!whole.is_baseline && load == nullptr && math == nullptr) continue;
    readings.push_back(read(timing, *stream, load, math));
  }
  return readings;
}

}  // namespace memra::bench
