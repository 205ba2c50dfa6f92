// The functions of cuda/wgmma.cuh on the CPU.
#pragma once

#include <cstdint>

#include "emulation/tensor.h"

namespace memra::cuda {

inline void wgmma_fence() {
  emulation::products_fence();
}
inline void wgmma_commit() {
  emulation::products_commit();
}
template <int kPending>
void wgmma_wait() {
  emulation::products_wait(kPending);
}

template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void give_registers() {}

template <int kColumns>
struct Wgmma {
  static_assert(kColumns % 8 == 0 && kColumns <= 256);
  static void multiply(float (&d)[kColumns / 2], const uint32_t (&a)[4], uint64_t b) {
    emulation::product_issue(d, a, b, kColumns);
  }
};

}  // namespace memra::cuda
