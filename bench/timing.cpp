#include "timing.h"

#include <algorithm>

#include "replay.h"

namespace memra::bench {
namespace {

// `work` enqueues `launches` launches; one run of it warms caches and clocks.
template <typename Work>
Summary sample(const Session& session, int iters, int64_t launches, Work work) {
  const Stopwatch stopwatch(session);
  work();
  session.synchronize();
  std::vector<double> us;
  us.reserve(static_cast<size_t>(iters));
  for (int i = 0; i < iters; ++i)
    us.push_back(stopwatch.time_us(work) / static_cast<double>(launches));
  return summarize(std::move(us));
}

}  // namespace

std::vector<ArmTiming> time_arms(const Session& session, const DataSet& data,
                                 const Launcher& launcher, const std::vector<Arm>& arms,
                                 const Activation& activation, int iters, int reps,
                                 Progress* progress) {
  std::vector<ArmTiming> timings;
  for (const Arm& arm : arms) {
    progress->show(format("timing %zu of %zu: %s", timings.size() + 1, arms.size(),
                          std::string(arm.name).c_str()));
    const bool is_down = arm.stage == Stage::kDown;
    const int64_t copies = data.copies().of(is_down);
    const int64_t launches = std::max<int64_t>(reps, copies);
    const auto enqueue = [&] {
      for (int64_t i = 0; i < launches; ++i)
        launcher.launch(arm, i % copies, activation);
    };
    ArmTiming timing;
    timing.arm = arm;
    timing.bytes = data.launch_bytes(is_down);
    timing.stream = sample(session, iters, launches, enqueue);
    const Replay replay = {session.capture(enqueue), launches};
    timing.graph = sample(session, iters, launches, [&] { replay.enqueue(session); });
    session.synchronize();
    timings.push_back(timing);
  }
  return timings;
}

}  // namespace memra::bench
