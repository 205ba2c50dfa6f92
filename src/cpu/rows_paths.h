#pragma once

// The sets of kernels that this library holds, and which of them run here.

#include <span>
#include <string_view>

#include "cpu/rows_kernels.h"
#include "status.h"

namespace memra::cpu {

// Best first; the last runs everywhere.
std::span<const RowsKernels* const> all_kernels();
// Whether this processor and its system run a set of all_kernels().
bool runs_here(const RowsKernels& kernels);
// The best that runs here.
const RowsKernels& best_kernels();
// By the name that engine properties say; UNSUPPORTED where it does not run here.
Status find_kernels(std::string_view simd, const RowsKernels** kernels);

}  // namespace memra::cpu
