#pragma once

// The stages of the rows path as tasks: how they are cut over threads.

#include "backend.h"
#include "cpu/rows_kernels.h"
#include "cpu/thread_pool.h"
#include "memra.h"

namespace memra::cpu {

void prepare_pairs(const PreparePairsArgs& args);

void quantize_q8(const QuantizeQ8Args& args, const RowsKernels& kernels, ThreadPool& pool);
void q8_to_lane_major(const std::int8_t* q, std::int64_t rows, std::int64_t columns,
                      std::int8_t* out, ThreadPool& pool);

// `dots` are the kernels' own, or those of a probe.
void rows_gate_up(const memra_rows_gate_up_args& args, const RowsKernels& kernels,
                  const DotsFunctions& dots, ThreadPool& pool);
void rows_down(const memra_rows_down_args& args, const RowsKernels& kernels,
               const DotsFunctions& dots, ThreadPool& pool);

// Reads the slabs of the stage's tables: planes [first_plane, first_plane + planes) of each pair.
struct ReadSlabs {
  const void* const* ptrs;
  std::int64_t n_pairs;
  int first_plane, planes;
  std::int64_t slab_bytes;
};
void read_slabs(const ReadSlabs& slabs, const RowsKernels& kernels, ThreadPool& pool);

}  // namespace memra::cpu
