#include "grouped_outputs.cuh"
#include "grouped_ring.cuh"

namespace memra::cuda {

using Wide = GroupedShared<16, 3, 8>;

template <class Shared, class Fragment>
__global__ void __launch_bounds__(kGroupedThreads, 1)
    grouped_gate_up(const __grid_constant__ ProductParams params,
                    const __grid_constant__ ActivationOut out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t raw[];
  run_block<Shared, Fragment, ActivationRows, true>(raw, params,
                                                    GateUpTile<Shared, Fragment>{params, out});
#endif
}

template <class Shared, class Fragment, class Sink>
__global__ void __launch_bounds__(kGroupedThreads, 1)
    grouped_plane(const __grid_constant__ ProductParams params, const Sink sink) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t raw[];
  run_block<Shared, Fragment, AdjacentRows, false>(
      raw, params, PlaneTile<Shared, Fragment, Sink>{params, sink});
#endif
}
#ifdef ONE
template __global__ void grouped_gate_up<Wide, FragmentV2>(const __grid_constant__ ProductParams, const __grid_constant__ ActivationOut);
#endif
#ifdef TWO
template __global__ void grouped_plane<Wide, FragmentV2, PackedSink>(const __grid_constant__ ProductParams, const PackedSink);
#endif

}  // namespace memra::cuda
