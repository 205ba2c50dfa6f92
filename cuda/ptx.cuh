#pragma once

// PTX behind small named functions. What an architecture lacks is a no-op or a plain equivalent.
// Tests that run kernels on the CPU have the same functions in another form.

#include <cstdint>

#include "tensor_map.cuh"

#if defined(MEMRA_EMULATION)
#include "emulation/ptx.h"
#else

// Declares the block's dynamic shared memory, in a kernel.
#define MEMRA_DYNAMIC_SHARED(type, name) extern __shared__ type name[]

namespace memra::cuda {

// Waits until the kernels before this one in the stream have finished and their writes are
// visible. Everything after it stays after it.
__device__ __forceinline__ void dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start its prologue.
__device__ __forceinline__ void dependency_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Byte permute. Selector nibbles use 3 bits; bit 3 replicates the sign of the byte selected.
__device__ __forceinline__ uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
  return result;
}

// A zero that is written here and now: to the compiler it is no constant.
__device__ __forceinline__ float written_zero() {
  float zero;
  asm volatile("mov.f32 %0, 0f00000000;" : "=f"(zero));
  return zero;
}

// Bits of a where mask has ones, else of b.
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(bits) : "r"(mask), "r"(a), "r"(b));
  return bits;
}

// ~a | b, which the compiler would make two instructions of.
__device__ __forceinline__ uint32_t complement_or(uint32_t a, uint32_t b) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, 0, 0xCF;" : "=r"(bits) : "r"(a), "r"(b));
  return bits;
}

// A left shift, by a power of two, on another pipe than shifts.
__device__ __forceinline__ uint32_t shift_left_by_multiply(uint32_t x, uint32_t power) {
  uint32_t shifted;
  asm("mul.lo.u32 %0, %1, %2;" : "=r"(shifted) : "r"(x), "r"(power));
  return shifted;
}

// In one instruction, whatever is known of the factors.
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

__device__ __forceinline__ uint32_t multiply_f16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Rounds to nearest.
__device__ __forceinline__ uint32_t f16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// 2^x and 1 / x, to an ulp or two; what is below the normal floats is 0.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// In one instruction each, where a comparison and a choice would be two.
__device__ __forceinline__ float min_or_nan(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}

// numerics::canon() of a result of f32 arithmetic, in one instruction: the only NaN that it gives,
// 0x7FFFFFFF, is above all other integers.
__device__ __forceinline__ float canon_result(float result) {
  int32_t bits;
  asm("min.s32 %0, %1, 0x7FC00000;" : "=r"(bits) : "r"(__float_as_int(result)));
  return __int_as_float(bits);
}

// The upper halves of two words, b's above a's; and the larger of each half.
__device__ __forceinline__ uint32_t upper_halves(uint32_t a, uint32_t b) {
  return byte_permute(a, b, 0x7632);
}
__device__ __forceinline__ uint32_t max_u16x2(uint32_t a, uint32_t b) {
  return __vmaxu2(a, b);
}

// D = A * B + C on integer tensor cores, 16 rows by 8 columns by 32, all signed bytes.
__device__ __forceinline__ void mma_m16n8k32(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1,
                                             const int32_t (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]),
        "r"(c[3]));
}

// D += A * B on f16 tensor cores, 16 rows by 8 columns by 16, sums in f32.
__device__ __forceinline__ void mma_m16n8k16(float* d, const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 by 8 matrices of 16-bit values from shared memory; lane l gives the address of row l % 8
// of matrix l / 8, and gets of each matrix values 2 * (l % 4) and the next of row l / 4.
__device__ __forceinline__ uint4 load_matrices(uint32_t address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Two scale bytes to two f16, exact. A code with bit 7 set is not a legal scale; 0x7F is a NaN.
__device__ __forceinline__ uint32_t f16_pair_of_e4m3(uint16_t bytes) {
  uint32_t pair;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bytes));
#else
  // The bytes' bits one place below the top of each half are an f16 of value * 2^-8.
  const uint32_t halves = byte_permute(bytes, 0, 0x1404) >> 1;
  pair = multiply_f16x2(halves, 0x5C005C00u);
#endif
  return pair;
}

// The same, but what is no legal scale is 0.
__device__ __forceinline__ uint32_t legal_f16_pair_of_e4m3(uint16_t bytes) {
  uint32_t pair;
#if __CUDA_ARCH__ >= 890
  // Of a number and a NaN the maximum is the number.
  asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(f16_pair_of_e4m3(bytes)), "r"(0u));
#else
  const uint32_t low = bytes & 0xFFu, high = bytes & 0xFF00u;
  pair = f16_pair_of_e4m3(
      static_cast<uint16_t>((low > 0x7Eu ? 0u : low) | (high > 0x7E00u ? 0u : high)));
#endif
  return pair;
}

// One of two f16, twice.
template <int kHalf>
__device__ __forceinline__ uint32_t broadcast_f16(uint32_t pair) {
  uint32_t twice;
  if constexpr (kHalf == 0) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}"
        : "=r"(twice)
        : "r"(pair));
  } else {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}"
        : "=r"(twice)
        : "r"(pair));
  }
  return twice;
}

// The value, through an instruction that the assembler cannot see through: it stays in a register.
// All lanes of the warp call this together.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
  return __shfl_sync(0xFFFFFFFFu, value, 0);
}

// The value, as something that is known from here on only: what is computed from it is not kept in
// registers across the loop around.
__device__ __forceinline__ int known_here(int value) {
  int v;
  asm volatile("mov.u32 %0, %1;" : "=r"(v) : "r"(value));
  return v;
}

// The thread's index, read here and now: what is computed from it is not kept in registers across
// the loop around.
__device__ __forceinline__ int thread_index_here() {
  int v;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
  return v;
}

// Brings a line into L2. No value is read, and L2 is where all of the GPU's writes meet, so it may
// come before a dependency wait whatever the kernel ahead writes.
__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Weights are read once: they should not push activations out of L1.
__device__ __forceinline__ uint4 load_streaming(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint32_t load_streaming_u16(const uint16_t* p) {
  uint16_t v;
  asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}

// Weights whose cache lines other lanes and later instructions of the warp read as well.
__device__ __forceinline__ uint32_t load_cached(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// 16 bytes at once, also where the compiler has taken the vector apart before.
__device__ __forceinline__ void store_global(uint4* p, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// kOffset bytes from p on. Only the store is conditional, not what the value is computed from.
template <int kOffset>
__device__ __forceinline__ void store_global_if(bool wanted, void* p, uint32_t v) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted st.global.u32 [%0 + %3], %1;\n"
      "}" ::"l"(p),
      "r"(v), "r"(static_cast<uint32_t>(wanted)), "n"(kOffset)
      : "memory");
}
template <int kOffset>
__device__ __forceinline__ void store_global_if(bool wanted, void* p, float a, float b) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %3, 0;\n"
      "@wanted st.global.v2.f32 [%0 + %4], {%1, %2};\n"
      "}" ::"l"(p),
      "f"(a), "f"(b), "r"(static_cast<uint32_t>(wanted)), "n"(kOffset)
      : "memory");
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Of what nothing writes meanwhile; issued where it stands.
__device__ __forceinline__ uint32_t load_constant(const void* p) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// Shared memory by its own 32-bit addresses: a generic pointer is made anew, three instructions,
// wherever the compiler thinks that cheaper than a register.
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_shared_u16(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_shared_u8(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_shared_u32x2(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float2 load_shared_f32x2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float4 load_shared_f32x4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ uint4 load_shared_u32x4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, uint2 v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(v.x), "r"(v.y) : "memory");
}

// Copies into shared memory, in groups of the thread's own.
__device__ __forceinline__ void copy_async_16(uint32_t dst, const void* src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void copy_async_4(uint32_t dst, const void* src) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of the thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Named barriers of a block, 1 to 15 (0 is __syncthreads), for `threads` of its threads.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#if __CUDA_ARCH__ >= 900

// A value whose uses the compiler computes behind this and not before.
__device__ __forceinline__ int value_here(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Barriers in shared memory, by address.
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes barrier initialisation visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Shared memory that threads have used so far may be written by the copy engine after the barrier
// that follows.
__device__ __forceinline__ void copy_engine_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// A branch would cost the warp more than the instruction does.
__device__ __forceinline__ void barrier_arrive_if(bool wanted, uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %1, 0;\n"
      "@wanted mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}" ::"r"(barrier),
      "r"(static_cast<uint32_t>(wanted))
      : "memory");
}

// Arrives once all of the thread's copies so far have arrived.
__device__ __forceinline__ void barrier_arrive_behind_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and announces bytes that this phase waits for as well.
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies bytes (a multiple of 16, both sides aligned to 16) to shared memory; completes on the
// barrier.
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(dst),
      "l"(src), "r"(bytes), "r"(barrier)
      : "memory");
}

// Copies a box of a tensor (tensor_map.h), the first of whose words has these coordinates, to
// shared memory, aligned to 128 bytes, or to 1024 where it is swizzled; completes on the barrier.
__device__ __forceinline__ void tensor_load(uint32_t dst, const TensorMap& map,
                                            const int32_t (&at)[4], uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(dst),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void tensor_load(uint32_t dst, const TensorMap& map,
                                            const int32_t (&at)[5], uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(dst),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier)
      : "memory");
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace memra::cuda

#endif  // MEMRA_EMULATION
