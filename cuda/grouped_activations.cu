// One exponent for each row of activations whose parts have their own: a warp to a row.

#include <algorithm>

#include "grouped_activation.cuh"
#include "grouped_layout.cuh"
#include "grouped_products.h"
#include "launch.h"
#include "ptx.cuh"

namespace memra::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kChunks = kSlabColumns / kChunkColumns;

// Two f16 times a power of two that may lie below what f16 has.
__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, float factor) {
  const auto low = static_cast<uint16_t>(pair), high = static_cast<uint16_t>(pair >> 16);
  return f16_pair(__fmul_rn(numerics::f16_to_f32(low), factor),
                  __fmul_rn(numerics::f16_to_f32(high), factor));
}

__global__ void __launch_bounds__(32 * kWarps)
    finish_activations_kernel(const __grid_constant__ FinishActivationsArgs p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  dependency_wait();
  dependency_release();
  const int64_t n_active = min(max(int64_t{*p.rows.n_active}, int64_t{0}), p.rows.n_experts);
  // Rows of no expert have not been written.
  if (row >= min(int64_t{p.rows.offsets[n_active]}, p.rows.rows)) return;

  const int slabs = static_cast<int>(n_slabs(p.columns));
  int8_t* const exponents = p.exponents + row * slabs;
  int32_t largest = kAnyExponent;
  for (int slab = lane; slab < slabs; slab += 32)
    largest = max(largest, int32_t{exponents[slab]});
  largest = __reduce_max_sync(kAllLanes, largest);

  for (int first = 0; first < slabs && largest != kNotFinite; first += 32) {
    const int32_t mine = first + lane < slabs ? exponents[first + lane] : kAnyExponent;
    unsigned others = __ballot_sync(kAllLanes, mine != kAnyExponent && mine != largest);
    while (others != 0) {
      const int slab = __ffs(others) - 1;
      others &= others - 1;
      const int32_t exponent = __shfl_sync(kAllLanes, mine, slab);
      const float factor = numerics::power_of_two(max(exponent - largest, -126));
      if (lane >= kChunks) continue;
      auto* const chunk =
          reinterpret_cast<uint4*>(p.act + slab_row(p.rows.rows, first + slab, row)) + lane;
      const uint4 v = *chunk;
      *chunk = make_uint4(scale_pair(v.x, factor), scale_pair(v.y, factor), scale_pair(v.z, factor),
                          scale_pair(v.w, factor));
    }
  }
  // The row's, for the product that follows. All lanes have read.
  if (lane == 0) exponents[0] = largest == kAnyExponent ? 0 : static_cast<int8_t>(largest);
}

}  // namespace

Status finish_activations_load() {
  return load_kernel(finish_activations_kernel);
}

Status finish_activations(const Device& device, const FinishActivationsArgs& args,
                          const Launch& launch) {
  const int64_t blocks = (args.rows.rows + kWarps - 1) / kWarps;
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(32 * kWarps)};
  return launch_kernel(device, launch, grid, finish_activations_kernel, args);
}

}  // namespace memra::cuda
