// The roof: reads the slabs of a pointer table and does nothing with them.

#include "launch.h"
#include "ptx.cuh"
#include "rows_kernels.h"

namespace memra::cuda {
namespace {

constexpr uint32_t kChunkBytes = 16384;
constexpr int kChunks = 12;  // 192 KB in flight an SM
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
  // One thread keeps a ring of bulk copies going; nobody needs to look at what arrives.
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ uint64_t full[kChunks];
  if (threadIdx.x != 0) return;
  for (uint64_t& barrier : full) barrier_init(&barrier, 1);
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
  for (int64_t i = blockIdx.x; i < total; i += gridDim.x) {
    const auto* slab = static_cast<const uint8_t*>(p.ptrs[i / chunks]);
    if (slab == nullptr) continue;
    if (issued >= kChunks) {
      if (!released) {
        dependency_wait();
        dependency_release();
        released = true;
      }
      barrier_wait(&full[slot], parity);
    }
    const uint64_t begin = static_cast<uint64_t>(i % chunks) * kChunkBytes;
    const uint64_t left = p.slab_bytes - begin;
    const uint32_t bytes = left < kChunkBytes ? static_cast<uint32_t>(left) : kChunkBytes;
    barrier_arrive_expect(&full[slot], bytes);
    bulk_load(ring + slot * kChunkBytes, slab + begin, bytes, &full[slot]);
    ++issued;
    if (++slot == kChunks) slot = 0, parity ^= 1;
  }
  if (!released) {
    dependency_wait();
    dependency_release();
  }
  // Copies must have landed before the block's shared memory goes to another.
  const int pending = issued < kChunks ? issued : kChunks;
  for (int k = 0; k < pending; ++k) {
    const int nth = issued - pending + k;
    barrier_wait(&full[nth % kChunks], static_cast<uint32_t>(nth / kChunks) & 1u);
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

bool by_bulk_copy(const Device& device) { return device.compute_capability >= 90; }

}  // namespace

Status stream_load(const Device& device) {
  return load_kernel(stream_kernel, by_bulk_copy(device) ? kChunks * kChunkBytes : 0);
}

Status stream_slabs(const Device& device, const void* const* ptrs, int64_t n_slabs,
                    uint64_t slab_bytes, bool prefetch, void* escape, const Launch& launch) {
  const StreamParams params{ptrs, n_slabs, slab_bytes, escape, prefetch};
  const unsigned sms = static_cast<unsigned>(device.n_multiprocessors);
  const Grid grid = by_bulk_copy(device)
                        ? Grid{dim3(sms), dim3(32), kChunks * kChunkBytes}
                        : Grid{dim3(2 * sms), dim3(kLoadThreads), 0};
  return launch_kernel(device, launch, grid, stream_kernel, params);
}

}  // namespace memra::cuda
