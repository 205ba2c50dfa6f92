// The roof: reads the slabs of a pointer table and does nothing with them.

#include "launch.h"
#include "ptx.cuh"
#include "rows_kernels.h"

namespace memra::cuda {
namespace {

// What was fastest of many shapes, by little: two copies of 16 KB in flight for each of four warps.
constexpr uint32_t kChunkBytes = 16384;
constexpr int kWarps = 4;
constexpr int kDepth = 2;
constexpr int kRingBytes = kWarps * kDepth * static_cast<int>(kChunkBytes);
constexpr int kLoadThreads = 512;

struct StreamParams {
  const void* const* ptrs;
  int64_t n_slabs;
  uint64_t slab_bytes;
  void* escape;
  bool prefetch;
};

__global__ void __launch_bounds__(kLoadThreads)
    stream_kernel(const __grid_constant__ StreamParams p) {
#if __CUDA_ARCH__ >= 900
  // One thread a warp keeps a ring of bulk copies going; nobody needs to look at what arrives.
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ __align__(8) uint64_t barriers[kWarps][kDepth];
  if (threadIdx.x % 32 != 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t full = shared_address(barriers[warp]);
  const uint32_t mine = shared_address(ring) + warp * kDepth * kChunkBytes;
  for (int i = 0; i < kDepth; ++i)
    barrier_init(full + i * 8, 1);
  barrier_init_fence();
  if (!p.prefetch) {
    dependency_wait();
    dependency_release();
  }
  const int64_t chunks = static_cast<int64_t>((p.slab_bytes + kChunkBytes - 1) / kChunkBytes);
  const int64_t total = p.n_slabs * chunks;
  bool released = !p.prefetch;
  int issued = 0;
  int slot = 0;
  uint32_t parity = 1;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + warp; i < total;
       i += static_cast<int64_t>(gridDim.x) * kWarps) {
    const auto* slab = static_cast<const uint8_t*>(p.ptrs[i / chunks]);
    if (slab == nullptr) continue;
    if (issued >= kDepth) {
      if (!released) {
        dependency_wait();
        dependency_release();
        released = true;
      }
      barrier_wait(full + slot * 8, parity);
    }
    const uint64_t begin = static_cast<uint64_t>(i % chunks) * kChunkBytes;
    const uint64_t left = p.slab_bytes - begin;
    const uint32_t bytes = left < kChunkBytes ? static_cast<uint32_t>(left) : kChunkBytes;
    barrier_arrive_expect(full + slot * 8, bytes);
    bulk_load(mine + slot * kChunkBytes, slab + begin, bytes, full + slot * 8);
    ++issued;
    if (++slot == kDepth) slot = 0, parity ^= 1;
  }
  if (!released) {
    dependency_wait();
    dependency_release();
  }
  // Copies must have landed before the block's shared memory goes to another.
  const int pending = issued < kDepth ? issued : kDepth;
  for (int k = 0; k < pending; ++k) {
    const int nth = issued - pending + k;
    barrier_wait(full + nth % kDepth * 8, static_cast<uint32_t>(nth / kDepth) & 1u);
  }
#else
  const int64_t words = static_cast<int64_t>(p.slab_bytes / sizeof(uint4));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint32_t seen = 0;
  for (int64_t s = 0; s < p.n_slabs; ++s) {
    const auto* slab = static_cast<const uint4*>(p.ptrs[s]);
    if (slab == nullptr) continue;
#pragma unroll 8
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
         i += stride) {
      const uint4 v = load_streaming(slab + i);
      seen ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (seen == 0x9E3779B9u) *static_cast<uint32_t*>(p.escape) = seen;
#endif
}

bool by_bulk_copy(const Device& device) {
  return device.compute_capability >= 90;
}

}  // namespace

Status stream_load(const Device& device) {
  return load_kernel(stream_kernel, by_bulk_copy(device) ? kRingBytes : 0);
}

Status stream_slabs(const Device& device, const void* const* ptrs, int64_t n_slabs,
                    uint64_t slab_bytes, bool prefetch, void* escape, const Launch& launch) {
  const StreamParams params{ptrs, n_slabs, slab_bytes, escape, prefetch};
  const unsigned sms = static_cast<unsigned>(device.n_multiprocessors);
  const Grid grid = by_bulk_copy(device) ? Grid{dim3(sms), dim3(32 * kWarps), kRingBytes}
                                         : Grid{dim3(2 * sms), dim3(kLoadThreads), 0};
  return launch_kernel(device, launch, grid, stream_kernel, params);
}

}  // namespace memra::cuda
