#include "grouped_wgmma.cuh"

namespace memra::cuda {
namespace {

template <class Shared, class Fragments>
constexpr GroupedGateUpKernel entry(const char* name) {
  return product_kernel<Shared, Fragments>(name, wgmma_gate_up<Shared, Fragments>, kGroupedThreads,
                                           Shared::kZBlocks,
                                           WeightProducers<Shared, Fragments>::kMaps);
}

constexpr GroupedGateUpKernel kKernels[] = {
    entry<WideGateUp, SetsV2>("grouped_gate_up_wgmma_v2"),
    entry<NarrowGateUp, SetsV2>("grouped_gate_up_wgmma_v2_narrow"),
    entry<WideRowsGateUp, SetsV1>("grouped_gate_up_wgmma_v1"),
    entry<NarrowRowsGateUp, SetsV1>("grouped_gate_up_wgmma_v1_narrow"),
    entry<DirectGateUp, SetsV1>("grouped_gate_up_wgmma_v1_direct"),
    entry<MixedGateUp, SetsV1V2>("grouped_gate_up_wgmma_v1_v2"),
    entry<MixedGateUp, SetsV2V1>("grouped_gate_up_wgmma_v2_v1"),
};

}  // namespace

std::span<const GroupedGateUpKernel> wgmma_gate_up_kernels() {
  return kKernels;
}

}  // namespace memra::cuda
