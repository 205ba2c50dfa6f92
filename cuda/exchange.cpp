#include "exchange.h"

#include "device.h"

namespace memra::cuda {

Status Exchanges::create(cudaStream_t stream) {
  const cudaError_t error =
      cudaMallocAsync(reinterpret_cast<void**>(&device_), kCount * sizeof(Exchange), stream);
  if (error == cudaErrorNotSupported) return MEMRA_OK;
  if (error != cudaSuccess) return cuda_failure(error, "cudaMallocAsync");
  MEMRA_CUDA_TRY(cudaMemsetAsync(device_, 0, kCount * sizeof(Exchange), stream));
  // Tags of 1: those of all packets are 0.
  const uint32_t first_tag = 1;
  for (size_t i = 0; i < kCount; ++i) {
    MEMRA_CUDA_TRY(cudaMemcpyAsync(&device_[i].tag, &first_tag, sizeof(first_tag),
                                   cudaMemcpyHostToDevice, stream));
  }
  MEMRA_CUDA_TRY(cudaStreamSynchronize(stream));
  return MEMRA_OK;
}

void Exchanges::destroy(cudaStream_t stream) {
  if (device_ != nullptr) cudaFreeAsync(device_, stream);
  device_ = nullptr;
}

Exchange* Exchanges::of(const void* workspace) {
  if (device_ == nullptr) return nullptr;
  constexpr int kBits = 6;
  static_assert(kCount == size_t{1} << kBits);
  // Fibonacci hashing: workspaces lie at multiples of large powers of two.
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(workspace));
  size_t at = static_cast<size_t>(address * 0x9E3779B97F4A7C15u >> (64 - kBits));
  for (size_t tries = 0; tries < kCount; ++tries, at = (at + 1) % kCount) {
    const void* owner = owners_[at].load(std::memory_order_relaxed);
    if (owner == nullptr && owners_[at].compare_exchange_strong(owner, workspace))
      owner = workspace;
    if (owner == workspace) return device_ + at;
  }
  return nullptr;
}

}  // namespace memra::cuda
