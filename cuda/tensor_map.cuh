#pragma once

// Maps by which the copy engine finds boxes of a tensor in memory, sm_90 and later.

#include <cstdint>

namespace memra::cuda {

// A tensor of words of 4 bytes, dimension 0 innermost. Of boxes that reach beyond it the rest is
// zeroes.
struct TensorShape {
  static constexpr int kMostDims = 5;
  // In dimension 0 boxes begin and end at multiples of them: others are an illegal instruction.
  static constexpr int kChunkBytes = 16;

  int n_dims;
  uint64_t words[kMostDims];        // of each dimension
  uint64_t strides[kMostDims - 1];  // of dimension 1 and further, in bytes: multiples of 16
  uint32_t box[kMostDims];
  // Chunk c of 16 bytes of line l of 128 goes to c ^ l % 8; boxes are one line wide then.
  bool swizzled;
};

// As a kernel is given it.
struct alignas(64) TensorMap {
  uint8_t bytes[128];
};

}  // namespace memra::cuda
