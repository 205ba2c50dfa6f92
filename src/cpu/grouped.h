#pragma once

// Routing and the grouped path as tasks: how they are cut over threads.

#include "backend.h"
#include "cpu/grouped_kernels.h"
#include "cpu/rows_kernels.h"
#include "cpu/thread_pool.h"
#include "memra.h"

namespace memra::cpu {

void topk(const memra_moe_topk_args& args, const GroupedKernels& kernels, ThreadPool& pool);

std::uint64_t route_workspace(std::int64_t n_local_experts);
void route(const memra_moe_route_args& args);

// On the CPU z is row-major, in the order of the columns.
void gather_f16(const memra_moe_gather_f16_args& args, const GroupedKernels& kernels,
                ThreadPool& pool);

void grouped_gemm(const memra_moe_grouped_gemm_args& args, const GroupedKernels& kernels,
                  ThreadPool& pool);

std::uint64_t grouped_workspace(const GroupedShape& shape, std::int64_t tokens);
void grouped_layer(const GroupedLayerArgs& args, const RowsKernels& kernels, ThreadPool& pool);

}  // namespace memra::cpu
