// One exponent for each row of activations whose parts have their own: a thread to a row, and a
// warp to those whose parts have not met.

#include <algorithm>

#include "grouped_activation.cuh"
#include "grouped_layout.cuh"
#include "grouped_products.h"
#include "launch.h"
#include "ptx.cuh"

namespace memra::cuda {
namespace {

constexpr int kThreads = 64;  // rows of a block: few, so that all multiprocessors have some
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kChunks = kSlabColumns / kChunkColumns;

// Two f16 times a power of two that may lie below what f16 has.
__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, float factor) {
  const auto low = static_cast<uint16_t>(pair), high = static_cast<uint16_t>(pair >> 16);
  return f16_pair(__fmul_rn(numerics::f16_to_f32(low), factor),
                  __fmul_rn(numerics::f16_to_f32(high), factor));
}

// Brings a row's parts under its largest exponent. By a warp, a lane to a part at a time.
__device__ __forceinline__ void meet(const FinishActivationsArgs& p, int64_t row, int32_t largest) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto parts = static_cast<int>(n_parts(p.columns));
#pragma unroll 1
  for (int first = 0; first < parts; first += 32) {
    const int32_t mine =
        first + lane < parts ? p.exponents[(first + lane) * p.rows.rows + row] : kAnyExponent;
    unsigned others = __ballot_sync(kAllLanes, mine != kAnyExponent && mine != largest);
    while (others != 0) {
      const int found = __ffs(others) - 1;
      others &= others - 1;
      const int32_t exponent = __shfl_sync(kAllLanes, mine, found);
      if (lane >= kChunks) continue;
      const int part = first + found;
      auto* const pair =
          reinterpret_cast<uint32_t*>(p.act + slab_row(p.rows.rows, part / kSlabParts, row)) +
          lane * (kChunkColumns / 2) + part % kSlabParts;
      *pair = scale_pair(*pair, numerics::power_of_two(max(exponent - largest, -126)));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    finish_activations_kernel(const __grid_constant__ FinishActivationsArgs p) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  dependency_wait();
  dependency_release();
  const int64_t n_active = min(max(int64_t{*p.rows.n_active}, int64_t{0}), p.rows.n_experts);
  // Rows of no expert have not been written.
  const bool there = row < min(int64_t{p.rows.offsets[n_active]}, p.rows.rows);
  int32_t largest = kAnyExponent, least = kNotFinite;
  const int8_t* exponent = p.exponents + row;
#pragma unroll 8
  for (int64_t left = there ? n_parts(p.columns) : 0; left > 0; --left) {
    const int32_t of = *exponent;
    largest = max(largest, of);
    least = min(least, of == kAnyExponent ? int32_t{kNotFinite} : of);
    exponent += p.rows.rows;
  }
  unsigned apart = __ballot_sync(kAllLanes, largest != kNotFinite && least < largest);
  while (apart != 0) {
    const int lane = __ffs(apart) - 1;
    apart &= apart - 1;
    meet(p, row - static_cast<int>(threadIdx.x) % 32 + lane, __shfl_sync(kAllLanes, largest, lane));
  }
  // The row's, for the product that follows.
  if (there) p.exponents[row] = largest == kAnyExponent ? 0 : static_cast<int8_t>(largest);
}

}  // namespace

Status finish_activations_load() {
  return load_kernel(finish_activations_kernel);
}

Status finish_activations(const Device& device, const FinishActivationsArgs& args,
                          const Launch& launch) {
  const int64_t blocks = (args.rows.rows + kThreads - 1) / kThreads;
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kThreads)};
  return launch_kernel(device, launch, grid, finish_activations_kernel, args);
}

}  // namespace memra::cuda
