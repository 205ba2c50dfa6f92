// The sets of CPU kernels that can run here.
#pragma once

#include <vector>

#include "cpu/rows_paths.h"

namespace memra::cpu {

#if defined(MEMRA_CPU_X86)
// The source of kAvxVnniKernels compiled for AVX-512's encoding: its arithmetic runs on more
// machines.
extern const RowsKernels kAvxVnniAsAvx512Kernels;
#endif

inline std::vector<const RowsKernels*> kernel_sets() {
  std::vector<const RowsKernels*> sets;
  for (const RowsKernels* kernels : all_kernels()) {
    if (runs_here(*kernels)) sets.push_back(kernels);
  }
#if defined(MEMRA_CPU_X86)
  if (runs_here(kAvx512VnniKernels)) sets.push_back(&kAvxVnniAsAvx512Kernels);
#endif
  return sets;
}

}  // namespace memra::cpu
