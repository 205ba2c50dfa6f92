#include "cpu/rows_paths.h"

#if defined(MEMRA_CPU_X86)
#include <cpuid.h>
#endif

#include "backend.h"

namespace memra::cpu {
namespace {

constexpr const RowsKernels* kAll[] = {
#if defined(MEMRA_CPU_X86)
    &kAvx512VnniKernels, &kAvxVnniKernels, &kAvx2Kernels,
#elif defined(MEMRA_CPU_ARM64)
    &kNeonKernels,
#endif
    &kPortableKernels};

#if defined(MEMRA_CPU_X86)
// Not every compiler's builtin knows f16c and avxvnni. That the system saves the registers is part
// of what the builtins say.
bool has_avx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool has_avx_vnni() {
  constexpr unsigned kAvxVnniBit = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kAvxVnniBit) != 0;
}

bool has_avx512_vnni() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

std::span<const RowsKernels* const> all_kernels() {
  return kAll;
}

bool runs_here([[maybe_unused]] const RowsKernels& kernels) {
#if defined(MEMRA_CPU_X86)
  if (&kernels == &kAvx512VnniKernels) return has_avx512_vnni();
  if (&kernels == &kAvxVnniKernels) return has_avx_vnni();
  if (&kernels == &kAvx2Kernels) return has_avx2();
#endif
  return true;  // the rest is what every processor of the kind has
}

const RowsKernels& best_kernels() {
  for (const RowsKernels* kernels : kAll) {
    if (runs_here(*kernels)) return *kernels;
  }
  return kPortableKernels;
}

Status find_kernels(std::string_view simd, const RowsKernels** kernels) {
  for (const RowsKernels* candidate : kAll) {
    if (simd != candidate->simd || !runs_here(*candidate)) continue;
    *kernels = candidate;
    return MEMRA_OK;
  }
  Failure failure(MEMRA_ERROR_UNSUPPORTED);
  failure << "CPU path " << simd << ": this processor runs";
  for (const RowsKernels* candidate : kAll) {
    if (runs_here(*candidate)) failure << " " << candidate->simd;
  }
  return failure;
}

}  // namespace memra::cpu

namespace memra {

const char* cpu_simd_paths() {
#if defined(MEMRA_CPU_X86)
  return "avx512-vnni avx-vnni avx2 portable";
#elif defined(MEMRA_CPU_ARM64)
  return "neon portable";
#else
  return "portable";
#endif
}

}  // namespace memra
