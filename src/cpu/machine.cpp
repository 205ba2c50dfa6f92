#include "cpu/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>
#include <thread>

namespace memra::cpu {
namespace {

std::uint64_t positive_sysconf(int name) {
  const long value = sysconf(name);
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

}  // namespace

int usable_processors() {
  // The kernel refuses masks smaller than its own, so the size is found by trial.
  for (int processors = 1024; processors <= 1 << 20; processors *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(processors));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(processors));
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string processor_name() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/cpuinfo", "re"),
                                                             std::fclose);
  char buffer[512];
  while (file != nullptr && std::fgets(buffer, sizeof buffer, file.get()) != nullptr) {
    std::string_view line(buffer);
    if (!line.starts_with("model name")) continue;
    line.remove_prefix(std::min(line.find(':'), line.size() - 1) + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    while (!line.empty() && (line.back() == '\n' || line.back() == ' '))
      line.remove_suffix(1);
    if (!line.empty()) return std::string(line);
  }
  return "unknown processor";
}

std::uint64_t memory_bytes() {
  return positive_sysconf(_SC_PHYS_PAGES) * positive_sysconf(_SC_PAGESIZE);
}

std::uint64_t l2_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  return positive_sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  return 0;
#endif
}

}  // namespace memra::cpu
