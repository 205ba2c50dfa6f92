// The functions of cuda/ptx.cuh that the grouped path uses, on the CPU. What they promise is said
// there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"
#include "emulation/async.h"
#include "emulation/machine.h"
#include "emulation/tensor.h"
#include "emulation/tensor_copy.h"
#include "numerics/half.h"

// NOLINTBEGIN(bugprone-macro-parentheses): a type and a name
#define MEMRA_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(::memra::cuda::dynamic_shared())
// NOLINTEND(bugprone-macro-parentheses)

namespace memra::cuda {

inline uint8_t* dynamic_shared() {
  return emulation::machine().block().shared;
}

// Launches follow one another here.
inline void dependency_wait() {}
inline void dependency_release() {}

// ---- Arithmetic

inline uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> (4 * i) & 0xF;
    const auto byte = static_cast<uint8_t>(bytes >> (8 * (nibble & 7)));
    const uint32_t sign = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= ((nibble & 8) != 0 ? sign : byte) << (8 * i);
  }
  return result;
}

inline float written_zero() {
  return 0.0f;
}
inline uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  return (mask & a) | (~mask & b);
}
inline uint32_t complement_or(uint32_t a, uint32_t b) {
  return ~a | b;
}
inline uint32_t shift_left_by_multiply(uint32_t x, uint32_t power) {
  return x * power;
}
inline uint32_t f16_pair(float low, float high) {
  return numerics::f32_to_f16(low) | static_cast<uint32_t>(numerics::f32_to_f16(high)) << 16;
}
inline uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  return a * b + c;
}
inline uint32_t multiply_f16x2(uint32_t a, uint32_t b) {
  const auto half = [](uint32_t pair, int i) {
    return emulation::widen_f16(static_cast<uint16_t>(pair >> (16 * i)));
  };
  return f16_pair(half(a, 0) * half(b, 0), half(a, 1) * half(b, 1));
}
inline float exp2_approximate(float x) {
  return std::exp2(x);
}
inline float reciprocal_approximate(float x) {
  return 1.0f / x;
}

inline float min_or_nan(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
}
inline float max_or_nan(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
}
inline float canon_result(float result) {
  return numerics::canon(result);
}
inline uint32_t upper_halves(uint32_t a, uint32_t b) {
  return byte_permute(a, b, 0x7632);
}
inline uint32_t max_u16x2(uint32_t a, uint32_t b) {
  return std::max(a & 0xFFFFu, b & 0xFFFFu) | std::max(a >> 16, b >> 16) << 16;
}

inline uint32_t f16_pair_of_e4m3(uint16_t bytes) {
  const auto f16 = [](uint32_t code) -> uint32_t {
    const int exponent = static_cast<int>(code >> 3 & 15);
    const auto mantissa = static_cast<float>(code & 7);
    if ((code & 0x7F) == 0x7F) return 0x7FFF;
    const float value =
        exponent != 0 ? std::ldexp(1.0f + mantissa / 8.0f, exponent - 7) : std::ldexp(mantissa, -9);
    return numerics::f32_to_f16((code & 0x80) != 0 ? -value : value);
  };
  return f16(bytes & 0xFF) | f16(bytes >> 8) << 16;
}

inline uint32_t legal_f16_pair_of_e4m3(uint16_t bytes) {
  const uint32_t low = bytes & 0xFFu, high = bytes & 0xFF00u;
  return f16_pair_of_e4m3(
      static_cast<uint16_t>((low > 0x7Eu ? 0u : low) | (high > 0x7E00u ? 0u : high)));
}
template <int kHalf>
uint32_t broadcast_f16(uint32_t pair) {
  return (pair >> (16 * kHalf) & 0xFFFFu) * 0x10001u;
}

// ---- Matrices

inline void mma_m16n8k16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulation::warp_multiply(d, a, b0, b1);
}
inline uint4 load_matrices(uint32_t address) {
  const uint32_t* const words = emulation::warp_load_matrices(address);
  return {words[0], words[1], words[2], words[3]};
}

// ---- Registers, time and memory

inline int thread_index_here() {
  return static_cast<int>(threadIdx.x);
}
template <typename T>
void check_alignment(const T* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) {
    emulation::machine().fatal("an address of global memory is not aligned");
  }
}
inline uint4 load_streaming(const uint4* p) {
  check_alignment(p);
  return *p;
}
inline void store_global(uint4* p, uint4 v) {
  check_alignment(p);
  *p = v;
}

template <typename T>
void store_if(bool wanted, void* p, const T& v) {
  if (!wanted) return;
  check_alignment(static_cast<T*>(p));
  *static_cast<T*>(p) = v;
}
template <int kOffset>
void store_global_if(bool wanted, void* p, uint32_t v) {
  store_if(wanted, static_cast<uint8_t*>(p) + kOffset, v);
}
template <int kOffset>
void store_global_if(bool wanted, void* p, float a, float b) {
  store_if(wanted, static_cast<uint8_t*>(p) + kOffset, float2{a, b});
}

inline uint32_t shared_address(const void* p) {
  const emulation::Block& block = emulation::machine().block();
  return static_cast<uint32_t>(static_cast<const uint8_t*>(p) - block.shared) + block.first_address;
}

template <typename T>
T load_shared_as(uint32_t address) {
  emulation::Machine& m = emulation::machine();
  m.step();
  T v;
  std::memcpy(&v, m.at(m.block(), address, sizeof(T), sizeof(T)), sizeof(T));
  return v;
}
template <typename T>
void store_shared_as(uint32_t address, const T& v) {
  emulation::Machine& m = emulation::machine();
  m.step();
  std::memcpy(m.at(m.block(), address, sizeof(T), sizeof(T)), &v, sizeof(T));
}
inline uint32_t load_shared(uint32_t address) {
  return load_shared_as<uint32_t>(address);
}
inline uint32_t load_shared_u16(uint32_t address) {
  return load_shared_as<uint16_t>(address);
}
inline uint32_t load_shared_u8(uint32_t address) {
  return load_shared_as<uint8_t>(address);
}
inline float2 load_shared_f32x2(uint32_t address) {
  return load_shared_as<float2>(address);
}
inline uint2 load_shared_u32x2(uint32_t address) {
  return load_shared_as<uint2>(address);
}
// Of memory that is there, as the checkers of a device would have it.
inline void prefetch_l2(const void* p) {
  const volatile std::uint8_t there = *static_cast<const std::uint8_t*>(p);
  static_cast<void>(there);
}
inline uint32_t load_constant(const void* p) {
  uint32_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
inline uint4 load_shared_u32x4(uint32_t address) {
  return load_shared_as<uint4>(address);
}
inline void store_shared(uint32_t address, uint32_t v) {
  store_shared_as(address, v);
}
inline void store_shared(uint32_t address, float v) {
  store_shared_as(address, v);
}
inline void store_shared(uint32_t address, float a, float b) {
  store_shared_as(address, float2{a, b});
}
inline void store_shared(uint32_t address, uint4 v) {
  store_shared_as(address, v);
}

// ---- Copies and barriers

inline void copy_async_16(uint32_t dst, const void* src) {
  emulation::lane_copy(dst, src, 16);
}
inline void copy_async_4(uint32_t dst, const void* src) {
  emulation::lane_copy(dst, src, 4);
}
inline void copy_async_commit() {
  emulation::lane_copy_commit();
}
template <int kPending>
void copy_async_wait() {
  emulation::lane_copy_wait(kPending);
}

inline void named_sync(int id, int threads) {
  emulation::named_barrier(id, threads);
}

inline int value_here(int value) {
  return value;
}
inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
  emulation::phase_barrier_init(barrier, arrivals);
}
inline void barrier_init_fence() {}
inline void copy_engine_fence() {}
inline void barrier_arrive(uint32_t barrier) {
  emulation::phase_barrier_arrive(barrier, 0);
}
inline void barrier_arrive_if(bool wanted, uint32_t barrier) {
  if (wanted) barrier_arrive(barrier);
}
inline void barrier_arrive_behind_copies(uint32_t barrier) {
  emulation::lane_copy_arrive(barrier);
}
inline void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  emulation::phase_barrier_arrive(barrier, bytes);
}
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  emulation::phase_barrier_wait(barrier, parity);
}
template <int kDims>
void tensor_load(uint32_t dst, const TensorMap& map, const int32_t (&at)[kDims], uint32_t barrier) {
  emulation::tensor_copy(dst, map, at, kDims, barrier);
}
inline void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t barrier) {
  emulation::bulk_copy(dst, src, bytes, barrier);
}

}  // namespace memra::cuda
