#include "tp2/ranks.h"

#include <algorithm>

#include "console.h"

namespace memra::bench::tp2 {
namespace {

std::unique_ptr<Session> open(memra_backend backend, int device, int threads) {
  return std::make_unique<Session>(EngineChoice{backend, device, threads});
}

// On device 1, or on device 0 where there is no other.
std::unique_ptr<Session> open_second() {
  try {
    return open(MEMRA_BACKEND_CUDA, 1, 0);
  } catch (const Failure& failure) {
    if (failure.status() != MEMRA_ERROR_NO_DEVICE) throw;
    return open(MEMRA_BACKEND_CUDA, 0, 0);
  }
}

}  // namespace

bool Ranks::share_device() const {
  return !on_cpu() && sessions[0]->properties().device == sessions[1]->properties().device;
}

std::string Ranks::copy_path() const {
  if (on_cpu() || share_device()) return "memory";
  const uint64_t peers = sessions[0]->properties().peer_devices;
  return (peers >> sessions[1]->properties().device & 1U) != 0 ? "P2P" : "staged";
}

Ranks open_ranks(const Options& options) {
  Ranks ranks;
  const int first = options.devices.empty() ? 0 : options.devices[0];
  ranks.sessions[0] = open(options.backend, first, options.threads);
  if (ranks.on_cpu()) {
    if (!options.devices.empty()) throw Failure("--devices: the ranks run on the CPU");
    const int half = std::max(1, ranks[0].properties().cpu_threads / kRanks);
    for (std::unique_ptr<Session>& session : ranks.sessions)
      session = open(options.backend, 0, half);
  } else {
    ranks.sessions[1] =
        options.devices.empty() ? open_second() : open(MEMRA_BACKEND_CUDA, options.devices[1], 0);
    // The pair's copies were decided when the second engine came.
    ranks.sessions[0]->refresh();
  }
  return ranks;
}

std::string describe(const Ranks& ranks) {
  const memra_engine_properties& first = ranks[0].properties();
  const memra_engine_properties& second = ranks[1].properties();
  if (ranks.on_cpu()) {
    return format("ranks: two CPU engines with %d thread%s each (%s, %s)", first.cpu_threads,
                  first.cpu_threads == 1 ? "" : "s", first.device_name, first.simd);
  }
  if (ranks.share_device()) {
    return format("ranks: both on CUDA device %d (%s)", first.device, first.device_name);
  }
  return format("ranks: CUDA devices %d (%s) and %d (%s), copies between them %s", first.device,
                first.device_name, second.device, second.device_name,
                ranks.copy_path() == "P2P" ? "by P2P" : "staged through the host");
}

}  // namespace memra::bench::tp2
