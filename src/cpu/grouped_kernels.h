#pragma once

// The arithmetic of routing and of the grouped path for one instruction set, without threads or
// tables, as rows_kernels.h has it for rows. Here too all sets give the same bits: every output of
// a GEMM is one chain of fmas over k from 0 up, whatever the tiles.

#include <cstdint>

#include "memra.h"

namespace memra::cpu {

// A tile: tokens by outputs, k in blocks. Decoded weights of a block and a panel's rows stay in L1,
// the tokens of a block in L2.
inline constexpr std::int64_t kTileTokens = 64;
inline constexpr std::int64_t kTileOutputs = 64;
inline constexpr std::int64_t kTileDepth = 128;

// Rows [row_begin, row_begin + row_count) of a slab [rows, in] times columns [k_begin, k_begin +
// k_count) of some tokens, added to what acc holds. row_begin is a multiple of 8, row_count of 32
// up to kTileOutputs, k_begin of 64; k_count is 64 or 128.
struct MultiplyTile {
  const std::uint8_t* slab;
  memra_format format;
  std::int64_t rows, in;
  std::int64_t row_begin, row_count;
  std::int64_t k_begin, k_count;
  const float* z;  // [tokens, kTileDepth], alignment 64
  std::int64_t tokens;
  float* acc;  // [tokens, kTileOutputs], alignment 64
};

// Activations to f16 under one power of two.
struct NarrowRun {
  const void* x;
  memra_dtype x_dtype;
  std::int64_t count;
  std::uint16_t* z;
};
inline constexpr std::int8_t kNotFinite = -128;  // in the place of an exponent

// One token of memra_moe_topk.
struct TopkRow {
  const memra_moe_topk_args* args;
  std::int64_t token;
};

struct GroupedKernels {
  const char* name;
  void (*multiply)(const MultiplyTile& tile);
  // Returns the exponent, or kNotFinite: then all of z is 0.
  std::int8_t (*narrow)(const NarrowRun& run);
  // out = z * factor, exactly where the product is a normal float.
  void (*widen)(const std::uint16_t* z, float factor, float* out, std::int64_t count);
  void (*topk)(const TopkRow& row);
};

}  // namespace memra::cpu
