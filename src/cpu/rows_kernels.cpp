#include "cpu/rows_kernels.h"

#if defined(MEMRA_CPU_AVX2)
#include <cpuid.h>
#endif

#include "backend.h"
#include "cpu/slab_access.h"

namespace memra::cpu {
namespace {

constexpr WindowBytes make_window() {
  WindowBytes window{};
  std::uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::uint8_t>(state >> 24);
  };
  const auto next_scale = [&next] { return static_cast<std::uint8_t>(0x38 + next() % 8); };
  for (std::uint8_t& byte : window.codes)
    byte = next();
  for (std::uint8_t& byte : window.scales)
    byte = next_scale();
  std::int64_t place = 0;
  for (std::uint8_t& byte : window.blocks) {
    byte = place++ % nv::kV1BlockBytes < nv::kV1BlockScaleBytes ? next_scale() : next();
  }
  return window;
}

#if defined(MEMRA_CPU_AVX2)
bool has_avx2_fma_f16c() {
  // Not every compiler's builtin knows f16c. That the system saves the registers is part of avx2.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

}  // namespace

constexpr WindowBytes kWindow = make_window();

const RowsKernels& best_kernels() {
#if defined(MEMRA_CPU_AVX2)
  if (has_avx2_fma_f16c()) return kAvx2Kernels;
#endif
  return kPortableKernels;
}

}  // namespace memra::cpu

namespace memra {

const char* cpu_simd_paths() {
#if defined(MEMRA_CPU_AVX2)
  return "avx2 portable";
#else
  return "portable";
#endif
}

}  // namespace memra
