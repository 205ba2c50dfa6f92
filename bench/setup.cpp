#include "setup.h"

#include "console.h"

namespace memra::bench {

std::string tool_and_version(const std::string& tool) {
  const uint32_t version = memra_version();
  return format("%s, memra %u.%u.%u", tool.c_str(), version / 10000, version / 100 % 100,
                version % 100);
}

void print_setup(std::FILE* out, const std::string& tool, const Session& session) {
  const memra_engine_properties& engine = session.properties();
  std::fprintf(out, "%s\n", tool_and_version(tool).c_str());
  if (session.on_cpu()) {
    std::fprintf(out, "device: CPU, %s, %d threads, %s\n", engine.device_name, engine.cpu_threads,
                 engine.simd);
    if (engine.fallback_reason[0] != '\0')
      std::fprintf(out, "no GPU: %s\n", engine.fallback_reason);
  } else {
    std::fprintf(out, "device: %s (CUDA device %d, compute capability %d.%d, %d multiprocessors)\n",
                 engine.device_name, engine.device, engine.compute_capability / 10,
                 engine.compute_capability % 10, engine.n_multiprocessors);
  }
}

}  // namespace memra::bench
