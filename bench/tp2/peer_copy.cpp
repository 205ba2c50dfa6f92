#include "tp2/peer_copy.h"

#include "replay.h"

namespace memra::bench::tp2 {
namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr int kSamples = 9;

}  // namespace

PeerCopy measure_peer_copy(const Ranks& ranks) {
  const Session& source = ranks[0];
  const Session& target = ranks[1];
  const Memory from = source.device_memory(kBytes);
  const Memory to = target.device_memory(kBytes);
  source.fill(from, 1);
  source.synchronize();
  const auto copy = [&] {
    check(memra_memcpy_engines(target.engine(), to.as(), source.engine(), from.as(), kBytes,
                               target.stream()),
          "memra_memcpy_engines");
  };
  const Stopwatch stopwatch(target);
  stopwatch.time_us(copy);
  std::vector<double> us;
  us.reserve(kSamples);
  for (int i = 0; i < kSamples; ++i)
    us.push_back(stopwatch.time_us(copy));
  return {static_cast<double>(kBytes), summarize(std::move(us))};
}

}  // namespace memra::bench::tp2
