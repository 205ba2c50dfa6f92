#include "grouped_wgmma.cuh"

namespace memra::cuda {
namespace {

template <class Shared, class Fragments>
constexpr GroupedGateUpKernel entry(const char* name) {
  return {Fragments::kFirstV2,
          Fragments::kSecondV2,
          Shared::kUnits,
          kGroupedThreads,
          Shared::kBytes,
          name,
          wgmma_gate_up<Shared, Fragments>};
}

constexpr GroupedGateUpKernel kKernels[] = {
    entry<WideTiles, SetsV2>("grouped_gate_up_wgmma_v2"),
    entry<NarrowTiles, SetsV2>("grouped_gate_up_wgmma_v2_narrow"),
    entry<WideTiles, SetsV1>("grouped_gate_up_wgmma_v1"),
    entry<NarrowTiles, SetsV1>("grouped_gate_up_wgmma_v1_narrow"),
    entry<NarrowTiles, SetsV1V2>("grouped_gate_up_wgmma_v1_v2"),
    entry<NarrowTiles, SetsV2V1>("grouped_gate_up_wgmma_v2_v1"),
};

}  // namespace

std::span<const GroupedGateUpKernel> wgmma_gate_up_kernels() {
  return kKernels;
}

}  // namespace memra::cuda
