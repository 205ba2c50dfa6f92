// The kernels of the grouped products on warp matrix instructions. In code for sm_90a, which has
// better ones, they are empty, and their launch bounds say so (grouped_products.cu).

#include "grouped_kernels.h"
#include "grouped_mma_block.cuh"
#include "grouped_outputs_gate_up.cuh"
#include "grouped_outputs_plane.cuh"

namespace memra::cuda {
namespace {

// Fits the 99 KiB that a block may have on sm_86, 89 and 120.
using Tiles = GroupedShared<kMmaTileUnits, 2, 2, true>;
static_assert(Tiles::kBytes <= 99 * 1024);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr int kBounds = kAbsentBounds;
#else
constexpr int kBounds = kGroupedConsumers;
#define MEMRA_HAS_MMA 1
#endif

template <class Fragments>
__global__ void __launch_bounds__(kBounds, 1)
    mma_gate_up(const __grid_constant__ ProductParams params,
                const __grid_constant__ ActivationOut out) {
#ifdef MEMRA_HAS_MMA
  MEMRA_DYNAMIC_SHARED(uint8_t, raw);
  run_mma_block<Tiles, Fragments, ActivationRows, true>(raw, params,
                                                        GateUpTile<Tiles>{params, out});
#endif
}

template <class Fragments>
__global__ void __launch_bounds__(kBounds, 1)
    mma_plane(const __grid_constant__ ProductParams params, const __grid_constant__ PlaneOut out) {
#ifdef MEMRA_HAS_MMA
  MEMRA_DYNAMIC_SHARED(uint8_t, raw);
  run_mma_block<Tiles, Fragments, AdjacentRows, false>(raw, params, PlaneTile<Tiles>{params, out});
#endif
}

// Neighbouring tiles do not share activations.
template <class Fragments>
constexpr GroupedGateUpKernel gate_up(const char* name) {
  return product_kernel<Tiles, Fragments>(name, mma_gate_up<Fragments>, kGroupedConsumers, 0,
                                          WeightMaps::kNone);
}
template <class Fragments>
constexpr GroupedPlaneKernel plane(const char* name) {
  return product_kernel<Tiles, Fragments>(name, mma_plane<Fragments>, kGroupedConsumers, 0,
                                          WeightMaps::kNone);
}

constexpr GroupedGateUpKernel kGateUp[] = {
    gate_up<SetsV2>("grouped_gate_up_mma_v2"),
    gate_up<SetsV1>("grouped_gate_up_mma_v1"),
    gate_up<SetsV1V2>("grouped_gate_up_mma_v1_v2"),
    gate_up<SetsV2V1>("grouped_gate_up_mma_v2_v1"),
};
constexpr GroupedPlaneKernel kPlane[] = {
    plane<SetsV2>("grouped_plane_mma_v2"),
    plane<SetsV1>("grouped_plane_mma_v1"),
};

}  // namespace

std::span<const GroupedGateUpKernel> mma_gate_up_kernels() {
  return kGateUp;
}
std::span<const GroupedPlaneKernel> mma_plane_kernels() {
  return kPlane;
}

}  // namespace memra::cuda
