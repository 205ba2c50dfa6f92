#pragma once

// Conversions of weights as tasks.

#include "cpu/thread_pool.h"
#include "memra.h"

namespace memra::cpu {

void repack_v2(const memra_repack_args& args, ThreadPool& pool);
void import_nvfp4(const memra_import_args& args, ThreadPool& pool);
void quantize_nvfp4(const memra_quantize_args& args, ThreadPool& pool);
void dequantize(const memra_dequantize_args& args, ThreadPool& pool);

// Plain copies and fills, over all threads where they are large.
void copy_bytes(void* dst, const void* src, std::uint64_t bytes, ThreadPool& pool);
void fill_bytes(void* dst, std::int32_t value, std::uint64_t bytes, ThreadPool& pool);

}  // namespace memra::cpu
