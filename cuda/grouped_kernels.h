#pragma once

// The matrix kernels of the grouped path as data: dispatch looks them up, loading iterates over
// them.

#include <cstddef>
#include <cstdint>
#include <span>

#include "grouped_tiles.cuh"

namespace memra::cuda {

struct ActivationOut;
struct PlaneOut;
struct ProductParams;

enum class ProductFamily { kMma, kWgmma };

// By which maps a kernel has the copy engine read weights (grouped_boxes.cuh): of strips of
// NVFP4_V2, of rows of NVFP4_V1.
enum class WeightMaps { kNone, kStrips, kRows };

inline constexpr int kMmaTileUnits = 8;

// The launch bounds of a kernel in code for an architecture that does not have its instructions.
inline constexpr int kAbsentBounds = 32;

// Gate and up may differ in format; then there are narrow tiles alone. Of kernels of one format and
// width those with maps come first.
template <class Out>
struct ProductKernel {
  bool first_v2, second_v2;  // of the tile's two sets
  int32_t max_units;         // the widest tile
  int32_t z_blocks;  // of activations, that neighbouring tiles of weight rows may share; 0: none
  int32_t resident;  // on an SM at once
  WeightMaps maps;
  int32_t threads;
  size_t shared_bytes;
  const char* name;
  void (*kernel)(ProductParams, Out);
};
template <class Shared, class Fragments, class Out>
constexpr ProductKernel<Out> product_kernel(const char* name, void (*kernel)(ProductParams, Out),
                                            int32_t threads, int32_t z_blocks, WeightMaps maps) {
  return {Fragments::kFirstV2,
          Fragments::kSecondV2,
          Shared::kUnits,
          z_blocks,
          Shared::kResident,
          maps,
          threads,
          Shared::kBytes,
          name,
          kernel};
}
using GroupedGateUpKernel = ProductKernel<ActivationOut>;
using GroupedPlaneKernel = ProductKernel<PlaneOut>;

std::span<const GroupedGateUpKernel> wgmma_gate_up_kernels();
std::span<const GroupedPlaneKernel> wgmma_plane_kernels();
std::span<const GroupedGateUpKernel> mma_gate_up_kernels();
std::span<const GroupedPlaneKernel> mma_plane_kernels();

}  // namespace memra::cuda
