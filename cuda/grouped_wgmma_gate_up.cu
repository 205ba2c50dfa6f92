#include "grouped_wgmma.cuh"

namespace memra::cuda {
namespace {

template <class Shared, class Fragment>
constexpr GroupedGateUpKernel entry(bool v2, const char* name) {
  return {ProductFamily::kWgmma,          v2, Shared::kUnits, kGroupedThreads, Shared::kBytes, name,
          wgmma_gate_up<Shared, Fragment>};
}

constexpr GroupedGateUpKernel kKernels[] = {
    entry<WideTiles, FragmentV2>(true, "grouped_gate_up_wgmma_v2"),
    entry<NarrowTiles, FragmentV2>(true, "grouped_gate_up_wgmma_v2_narrow"),
    entry<WideTiles, FragmentV1>(false, "grouped_gate_up_wgmma_v1"),
    entry<NarrowTiles, FragmentV1>(false, "grouped_gate_up_wgmma_v1_narrow"),
};

}  // namespace

std::span<const GroupedGateUpKernel> wgmma_gate_up_kernels() {
  return kKernels;
}

}  // namespace memra::cuda
