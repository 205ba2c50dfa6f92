#include "grouped_wgmma.cuh"

namespace memra::cuda {
namespace {

template <class Shared, class Fragments>
constexpr GroupedPlaneKernel entry(const char* name) {
  return product_kernel<Shared, Fragments>(name, wgmma_plane<Shared, Fragments>, kGroupedThreads,
                                           Shared::kZBlocks,
                                           WeightProducers<Shared, Fragments>::kMaps);
}

constexpr GroupedPlaneKernel kKernels[] = {
    entry<WidePlane, SetsV2>("grouped_plane_wgmma_v2"),
    entry<NarrowPlane, SetsV2>("grouped_plane_wgmma_v2_narrow"),
    entry<WideRowsPlane, SetsV1>("grouped_plane_wgmma_v1"),
    entry<NarrowRowsPlane, SetsV1>("grouped_plane_wgmma_v1_narrow"),
    entry<DirectPlane, SetsV1>("grouped_plane_wgmma_v1_direct"),
};

}  // namespace

std::span<const GroupedPlaneKernel> wgmma_plane_kernels() {
  return kKernels;
}

}  // namespace memra::cuda
