#include "cpu/rows_kernels.h"

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
  for (std::uint8_t& byte : window.codes) byte = next();
  for (std::uint8_t& byte : window.scales) byte = next_scale();
  for (std::size_t i = 0; i < window.blocks.size(); ++i) {
    const bool is_scale = i % nv::kV1BlockBytes < nv::kV1BlockScaleBytes;
    window.blocks[i] = is_scale ? next_scale() : next();
  }
  return window;
}

}  // namespace

constexpr WindowBytes kWindow = make_window();

const RowsKernels& best_kernels() {
#if defined(MEMRA_CPU_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    return kAvx2Kernels;
  }
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
