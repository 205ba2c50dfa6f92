#include "grouped_wgmma.cuh"

namespace memra::cuda {
namespace {

template <class Shared, class Fragment>
constexpr GroupedPlaneKernel entry(bool v2, const char* name) {
  return {ProductFamily::kWgmma,        v2, Shared::kUnits, kGroupedThreads, Shared::kBytes, name,
          wgmma_plane<Shared, Fragment>};
}

constexpr GroupedPlaneKernel kKernels[] = {
    entry<WideTiles, FragmentV2>(true, "grouped_plane_wgmma_v2"),
    entry<NarrowTiles, FragmentV2>(true, "grouped_plane_wgmma_v2_narrow"),
    entry<WideTiles, FragmentV1>(false, "grouped_plane_wgmma_v1"),
    entry<NarrowTiles, FragmentV1>(false, "grouped_plane_wgmma_v1_narrow"),
};

}  // namespace

std::span<const GroupedPlaneKernel> wgmma_plane_kernels() {
  return kKernels;
}

}  // namespace memra::cuda
