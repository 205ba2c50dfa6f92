// The sum over slots of packed pair outputs.

#include "grouped_pairs.cuh"
#include "grouped_sum.cuh"

namespace memra::cuda {
namespace sum {

struct PackedOutputs {
  using Source = const uint32_t*;
  static constexpr int kBatch = 8;
  uint4 words;

  __device__ void load(Source source, const SumSlotsArgs& p, int64_t place, int64_t column) {
    words =
        load_streaming(reinterpret_cast<const uint4*>(source + (place * p.columns + column) / 2));
  }
  __device__ void widen(float (&x)[kColumns]) const {
    static_assert(kColumns == 8);
    const uint32_t pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const OutputPair pair = unpack_outputs(pairs[i]);
      x[2 * i] = pair.first;
      x[2 * i + 1] = pair.second;
    }
  }
};

}  // namespace sum

Status sum_slots(const Device& device, const SumSlotsArgs& args, const uint32_t* packed,
                 const Launch& launch) {
  return sum::sum_slots<sum::PackedOutputs>(device, args, packed, launch);
}

Status sum_slots_load() {
  return sum::load_kernels<sum::PackedOutputs>();
}

}  // namespace memra::cuda
