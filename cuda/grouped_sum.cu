// The sum over slots of pair outputs in f32.

#include "grouped_sum.cuh"

namespace memra::cuda {
namespace {

struct OutF32 {
  using Source = const float*;
  static constexpr int kBatch = 4;
  sum::Columns<numerics::F32> columns;

  __device__ void load(Source source, const SumSlotsArgs& p, int64_t place, int64_t column) {
    columns.load(source, place * p.columns + column);
  }
  __device__ void widen(float (&x)[sum::kColumns]) const { columns.widen(x); }
};

}  // namespace

Status sum_slots(const Device& device, const SumSlotsArgs& args, const float* out,
                 const Launch& launch) {
  return sum::sum_slots<OutF32>(device, args, out, launch);
}

Status sum_slots_load() {
  return sum::load_kernels<OutF32>();
}

}  // namespace memra::cuda
