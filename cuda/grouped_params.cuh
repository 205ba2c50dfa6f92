#pragma once

// What the kernels of the grouped products are given.

#include <cstdint>

#include "grouped_tiles.cuh"
#include "numerics/activation.h"
#include "tensor_map.cuh"

namespace memra::cuda {

// A plane of the tables over experts.
struct ExpertPlane {
  const void* const* slabs;
  const float* scales;       // or null: all 1
  const float* const* bias;  // or null; a null entry is no bias
};

// Of a slab, for the copy engine (grouped_boxes.cuh): codes and scales of NVFP4_V2, or the rows of
// NVFP4_V1, which have both.
struct SlabMaps {
  TensorMap codes, scales;
};

struct ProductParams {
  ExpertPlane planes[2];  // gate and up, or one plane
  int64_t n_experts;
  TileList* list;
  int32_t counter;  // of TileList::next
  int32_t run;      // tiles of weight rows that follow one another over the same rows
  const uint16_t* z;
  const float* zs;  // or null where outputs are wanted without the rows' scales
  int64_t rows;     // of z and zs
  int64_t columns;  // of a slab
  int64_t outputs;  // rows of a slab
  SlabMaps maps;    // where the kernel has the copy engine read weights
};

// Gate and up: the activation's outputs as the rows of the next product (grouped_layout.cuh), each
// 16 of a row under an exponent of their own.
struct ActivationOut {
  uint16_t* act;
  int8_t* exponents;  // [n_parts(outputs), rows]
  numerics::Activation activation;
  numerics::ActivationParams params;
};

// One of the two.
struct PlaneOut {
  float* plain;      // [rows, outputs]
  uint32_t* packed;  // [rows, outputs / 2]: pairs of neighbouring outputs (grouped_pairs.cuh)
};

}  // namespace memra::cuda
