// What emulated files need of the CUDA toolkit's header of this name, and of what nvcc adds to
// every file: words of the language, vectors, intrinsics and launches.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda_runtime_api.h"
#include "emulation/machine.h"

#define __global__
#define __device__
#define __forceinline__ inline
// Of one block at a time; machine.cpp sees to that.
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

struct alignas(8) uint2 {
  std::uint32_t x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline uint4 make_uint4(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}

struct dim3 {
  unsigned x, y, z;
  // As CUDA has it, from a number as well.
  constexpr dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1)
      : x(of_x), y(of_y), z(of_z) {}
};

// ---- Intrinsics

template <typename T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
inline int __popc(unsigned v) {
  return std::popcount(v);
}
inline int __clz(int v) {
  return std::countl_zero(static_cast<unsigned>(v));
}
inline int __ffs(unsigned v) {
  return v == 0 ? 0 : std::countr_zero(v) + 1;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float __uint_as_float(std::uint32_t v) {
  return std::bit_cast<float>(v);
}

// Threads are switched at calls alone, so that this is one step.
template <typename T, typename U>
T atomicAdd(T* p, U v) {
  memra::emulation::machine().step();
  const T old = *p;
  *p += v;
  return old;
}

inline void __syncthreads() {
  memra::emulation::Machine& m = memra::emulation::machine();
  m.arrive_and_wait(m.block().barrier, "__syncthreads");
}
inline void __syncwarp() {
  memra::emulation::machine().by_warp("__syncwarp");
}

namespace memra::emulation {

template <typename T>
T take_from(T value, unsigned lane) {
  static_assert(sizeof(T) == sizeof(std::uint32_t));
  Warp& warp = machine().warp();
  const unsigned me = machine().lane();
  warp.given[me] = std::bit_cast<std::uint32_t>(value);
  warp.from[me] = lane;
  machine().by_warp("a shuffle", [&] {
    for (unsigned i = 0; i < kWarpLanes; ++i)
      warp.taken[i] = warp.given[warp.from[i]];
  });
  return std::bit_cast<T>(static_cast<std::uint32_t>(warp.taken[me]));
}

template <typename T, typename Combine>
T reduce(T value, const Combine& combine) {
  Warp& warp = machine().warp();
  const unsigned me = machine().lane();
  warp.given[me] = static_cast<std::uint32_t>(value);
  machine().by_warp("a reduction", [&] {
    T result = static_cast<T>(warp.given[0]);
    for (unsigned i = 1; i < kWarpLanes; ++i)
      result = combine(result, static_cast<T>(warp.given[i]));
    for (std::uint64_t& taken : warp.taken)
      taken = static_cast<std::uint32_t>(result);
  });
  return static_cast<T>(warp.taken[me]);
}

}  // namespace memra::emulation

template <typename T>
T __shfl_sync(unsigned /*mask*/, T value, int lane) {
  return memra::emulation::take_from(value, static_cast<unsigned>(lane) % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int distance) {
  return memra::emulation::take_from(
      value, memra::emulation::machine().lane() ^ static_cast<unsigned>(distance));
}
template <typename T>
T __shfl_up_sync(unsigned /*mask*/, T value, int distance) {
  const unsigned lane = memra::emulation::machine().lane();
  const auto above = static_cast<unsigned>(distance);
  return memra::emulation::take_from(value, lane >= above ? lane - above : lane);
}
template <typename T>
T __reduce_max_sync(unsigned /*mask*/, T value) {
  return memra::emulation::reduce(value, [](T a, T b) { return max(a, b); });
}
template <typename T>
T __reduce_add_sync(unsigned /*mask*/, T value) {
  return memra::emulation::reduce(value, [](T a, T b) { return static_cast<T>(a + b); });
}
inline unsigned __ballot_sync(unsigned /*mask*/, bool predicate) {
  const unsigned mine = predicate ? 1u << memra::emulation::machine().lane() : 0u;
  return memra::emulation::reduce(mine, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __match_any_sync(unsigned /*mask*/, std::uint32_t value) {
  memra::emulation::Warp& warp = memra::emulation::machine().warp();
  const unsigned me = memra::emulation::machine().lane();
  warp.given[me] = value;
  memra::emulation::machine().by_warp("a match", [&] {
    for (unsigned i = 0; i < memra::emulation::kWarpLanes; ++i) {
      warp.taken[i] = 0;
      for (unsigned k = 0; k < memra::emulation::kWarpLanes; ++k)
        warp.taken[i] |= warp.given[k] == warp.given[i] ? 1u << k : 0u;
    }
  });
  return static_cast<unsigned>(warp.taken[me]);
}

// ---- Launches

enum cudaLaunchAttributeID {
  cudaLaunchAttributeCooperative,
  cudaLaunchAttributeProgrammaticStreamSerialization
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int cooperative, programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

// Runs at once: a stream's order is that of its launches.
template <typename... Params>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Params... params) {
  const bool ran = memra::emulation::machine().run(
      {config->gridDim.x, config->gridDim.y, config->gridDim.z}, config->blockDim.x,
      static_cast<std::uint32_t>(config->dynamicSmemBytes), [&] { kernel(params...); });
  return ran ? cudaSuccess : cudaErrorLaunchFailure;
}

template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* /*kernel*/) {
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* /*kernel*/, cudaFuncAttribute /*which*/, int /*value*/) {
  return cudaSuccess;
}
