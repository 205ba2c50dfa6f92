#pragma once

// Warpgroup matrix products of sm_90a: D[64][N] f32 += A[64][16] f16 in registers times B[16][N]
// f16 in shared memory. Elsewhere nothing of this exists.

#include <cstdint>

#include "ptx.cuh"

#if defined(MEMRA_EMULATION)
#include "emulation/wgmma.h"
#endif

namespace memra::cuda {

// B in shared memory, rows of 64 f16 one after another, 16-byte chunks swizzled over 128 bytes. The
// swizzle goes by the address, so a first row need not be a multiple of 8.
__device__ __forceinline__ uint64_t swizzled_rows(uint32_t address) {
  constexpr uint64_t kSwizzle128 = 1ull << 62, kEightRows = (1024ull >> 4) << 32,
                     kUnused = 1ull << 16;
  return kSwizzle128 | kEightRows | kUnused | (address & 0x3FFFFu) >> 4;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(MEMRA_EMULATION)

// Registers written so far are read by the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending groups are under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// wgmma(d, a, b): d += a * b. d[4 * j + 2 * r + e]: row lane / 4 + 8 * r of the warp's 16, column
// 8 * j + 2 * (lane % 4) + e.
template <int kColumns>
struct Wgmma;

#define MEMRA_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MEMRA_D8(i) MEMRA_D4(i), MEMRA_D4(i + 4)
#define MEMRA_D16(i) MEMRA_D8(i), MEMRA_D8(i + 8)
#define MEMRA_D32(i) MEMRA_D16(i), MEMRA_D16(i + 16)
#define MEMRA_N4 "%0, %1, %2, %3"
#define MEMRA_N8 MEMRA_N4 ", %4, %5, %6, %7"
#define MEMRA_N12 MEMRA_N8 ", %8, %9, %10, %11"
#define MEMRA_N16 MEMRA_N12 ", %12, %13, %14, %15"
#define MEMRA_N20 MEMRA_N16 ", %16, %17, %18, %19"
#define MEMRA_N24 MEMRA_N20 ", %20, %21, %22, %23"
#define MEMRA_N28 MEMRA_N24 ", %24, %25, %26, %27"
#define MEMRA_N32 MEMRA_N28 ", %28, %29, %30, %31"
#define MEMRA_N36 MEMRA_N32 ", %32, %33, %34, %35"
#define MEMRA_N40 MEMRA_N36 ", %36, %37, %38, %39"
#define MEMRA_N44 MEMRA_N40 ", %40, %41, %42, %43"
#define MEMRA_N48 MEMRA_N44 ", %44, %45, %46, %47"
#define MEMRA_N52 MEMRA_N48 ", %48, %49, %50, %51"
#define MEMRA_N56 MEMRA_N52 ", %52, %53, %54, %55"
#define MEMRA_N60 MEMRA_N56 ", %56, %57, %58, %59"
#define MEMRA_N64 MEMRA_N60 ", %60, %61, %62, %63"

// The last argument lists the accumulators; a0 to b are the numbers of the operands after them.
#define MEMRA_WGMMA(columns, names, a0, a1, a2, a3, b0, ...)                              \
  template <>                                                                             \
  struct Wgmma<columns> {                                                                 \
    static __device__ __forceinline__ void multiply(float (&d)[columns / 2],              \
                                                    const uint32_t (&a)[4], uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.f16.f16 {" names \
                   "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b0 ", 1, 1, 1, 0;"   \
                   : __VA_ARGS__                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                 \
    }                                                                                     \
  }

MEMRA_WGMMA(8, MEMRA_N4, 4, 5, 6, 7, 8, MEMRA_D4(0));
MEMRA_WGMMA(16, MEMRA_N8, 8, 9, 10, 11, 12, MEMRA_D8(0));
MEMRA_WGMMA(24, MEMRA_N12, 12, 13, 14, 15, 16, MEMRA_D8(0), MEMRA_D4(8));
MEMRA_WGMMA(32, MEMRA_N16, 16, 17, 18, 19, 20, MEMRA_D16(0));
MEMRA_WGMMA(40, MEMRA_N20, 20, 21, 22, 23, 24, MEMRA_D16(0), MEMRA_D4(16));
MEMRA_WGMMA(48, MEMRA_N24, 24, 25, 26, 27, 28, MEMRA_D16(0), MEMRA_D8(16));
MEMRA_WGMMA(56, MEMRA_N28, 28, 29, 30, 31, 32, MEMRA_D16(0), MEMRA_D8(16), MEMRA_D4(24));
MEMRA_WGMMA(64, MEMRA_N32, 32, 33, 34, 35, 36, MEMRA_D32(0));
MEMRA_WGMMA(72, MEMRA_N36, 36, 37, 38, 39, 40, MEMRA_D32(0), MEMRA_D4(32));
MEMRA_WGMMA(80, MEMRA_N40, 40, 41, 42, 43, 44, MEMRA_D32(0), MEMRA_D8(32));
MEMRA_WGMMA(88, MEMRA_N44, 44, 45, 46, 47, 48, MEMRA_D32(0), MEMRA_D8(32), MEMRA_D4(40));
MEMRA_WGMMA(96, MEMRA_N48, 48, 49, 50, 51, 52, MEMRA_D32(0), MEMRA_D16(32));
MEMRA_WGMMA(104, MEMRA_N52, 52, 53, 54, 55, 56, MEMRA_D32(0), MEMRA_D16(32), MEMRA_D4(48));
MEMRA_WGMMA(112, MEMRA_N56, 56, 57, 58, 59, 60, MEMRA_D32(0), MEMRA_D16(32), MEMRA_D8(48));
MEMRA_WGMMA(120, MEMRA_N60, 60, 61, 62, 63, 64, MEMRA_D32(0), MEMRA_D16(32), MEMRA_D8(48),
            MEMRA_D4(56));
MEMRA_WGMMA(128, MEMRA_N64, 64, 65, 66, 67, 68, MEMRA_D32(0), MEMRA_D32(32));

#undef MEMRA_D4
#undef MEMRA_D8
#undef MEMRA_D16
#undef MEMRA_D32
#undef MEMRA_N4
#undef MEMRA_N8
#undef MEMRA_N12
#undef MEMRA_N16
#undef MEMRA_N20
#undef MEMRA_N24
#undef MEMRA_N28
#undef MEMRA_N32
#undef MEMRA_N36
#undef MEMRA_N40
#undef MEMRA_N44
#undef MEMRA_N48
#undef MEMRA_N52
#undef MEMRA_N56
#undef MEMRA_N60
#undef MEMRA_N64
#undef MEMRA_WGMMA

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace memra::cuda
