// Matrix instructions.
#pragma once

#include <cstdint>

#include "emulation/machine.h"

namespace memra::emulation {

float widen_f16(std::uint16_t bits);

// mma.sync m16n8k16 and ldmatrix.x4, of a warp; `words` of the latter are the lane's.
void warp_multiply(float* sums, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1);
const std::uint32_t* warp_load_matrices(std::uint32_t address);

// wgmma with f16 and f32, A in registers.
void products_fence();
void product_issue(float* sums, const std::uint32_t* a, std::uint64_t descriptor, int columns);
void products_commit();
void products_wait(std::size_t pending);

// Runs a few products of one warp. False where none is ready.
bool advance_products(Block& block);

}  // namespace memra::emulation
