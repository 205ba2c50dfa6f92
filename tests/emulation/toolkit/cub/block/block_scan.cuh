// What emulated files need of CUB: the prefix sum of a block, by the plainest way.
#pragma once

#include "cuda_runtime.h"

#define CUB_NS_QUALIFIER ::memra::emulation

namespace memra::emulation {

template <typename T, int kThreads>
class BlockScan {
 public:
  struct TempStorage {
    T values[kThreads];
  };

  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  // `sum`: of the threads before; `all`: of the block.
  void ExclusiveSum(T value, T& sum, T& all) {
    storage_.values[threadIdx.x] = value;
    __syncthreads();
    all = 0;
    for (unsigned i = 0; i < kThreads; ++i) {
      if (i == threadIdx.x) sum = all;
      all += storage_.values[i];
    }
  }

 private:
  TempStorage& storage_;
};

}  // namespace memra::emulation
