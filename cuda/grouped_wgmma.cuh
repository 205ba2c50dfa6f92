#pragma once

// The kernels of the grouped products on warpgroup matrix instructions, sm_90a. In code for other
// architectures they are empty, and their launch bounds say so (grouped_products.cu).

#include "grouped_kernels.h"
#include "grouped_outputs_gate_up.cuh"
#include "grouped_outputs_plane.cuh"
#include "grouped_ring.cuh"

namespace memra::cuda {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr int kWgmmaBounds = kGroupedThreads;
#else
inline constexpr int kWgmmaBounds = kAbsentBounds;
#endif

template <class Shared, class Fragments>
__global__ void __launch_bounds__(kWgmmaBounds, Shared::kResident)
    wgmma_gate_up(const __grid_constant__ ProductParams params,
                  const __grid_constant__ ActivationOut out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  MEMRA_DYNAMIC_SHARED(uint8_t, raw);
  run_block<Shared, Fragments, ActivationRows, true>(raw, params, GateUpTile<Shared>{params, out});
#endif
}

template <class Shared, class Fragments>
__global__ void __launch_bounds__(kWgmmaBounds, Shared::kResident)
    wgmma_plane(const __grid_constant__ ProductParams params,
                const __grid_constant__ PlaneOut out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  MEMRA_DYNAMIC_SHARED(uint8_t, raw);
  run_block<Shared, Fragments, AdjacentRows, false>(raw, params, PlaneTile<Shared>{params, out});
#endif
}

}  // namespace memra::cuda
