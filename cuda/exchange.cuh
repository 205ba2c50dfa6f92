#pragma once

// The blocks' side of exchange.h.

#include <cstdint>

#include "exchange.h"

namespace memra::cuda {

__device__ __forceinline__ uint32_t load_tag(const Exchange& e) {
  uint32_t tag;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(tag) : "l"(&e.tag) : "memory");
  return tag;
}

__device__ __forceinline__ void store_packet(Packet* to, uint32_t a, uint32_t b, uint32_t c,
                                             uint32_t tag) {
  asm volatile(
      "{\n"
      ".reg .b64 low, high;\n"
      ".reg .b128 all;\n"
      "mov.b64 low, {%1, %2};\n"
      "mov.b64 high, {%3, %4};\n"
      "mov.b128 all, {low, high};\n"
      "st.relaxed.gpu.global.b128 [%0], all;\n"
      "}" ::"l"(to),
      "r"(a), "r"(b), "r"(c), "r"(tag)
      : "memory");
}
__device__ __forceinline__ Packet load_packet(const Packet* from) {
  Packet p;
  asm volatile(
      "{\n"
      ".reg .b64 low, high;\n"
      ".reg .b128 all;\n"
      "ld.relaxed.gpu.global.b128 all, [%4];\n"
      "mov.b128 {low, high}, all;\n"
      "mov.b64 {%0, %1}, low;\n"
      "mov.b64 {%2, %3}, high;\n"
      "}"
      : "=r"(p.data[0]), "=r"(p.data[1]), "=r"(p.data[2]), "=r"(p.tag)
      : "l"(from)
      : "memory");
  return p;
}

// A barrier among all blocks. By one thread, for what its block has written before.
__device__ __forceinline__ void grid_arrive(uint32_t* arrived) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
}
// By one thread; a barrier of the block lets the others see what it sees.
__device__ __forceinline__ void grid_wait(const uint32_t* arrived) {
  uint32_t count;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
  } while (count != gridDim.x);
}

// By one thread, when its block needs nothing more. The last of all blocks leaves the exchange as
// the next kernel wants it.
__device__ __forceinline__ void leave(Exchange& e) {
  if (atomicAdd(&e.left, 1u) != gridDim.x - 1) return;
  for (uint32_t& arrived : e.arrived)
    arrived = 0;
  e.left = 0;
  if (++e.tag != 0) return;
  // After 2^32 launches tags begin anew.
  for (Packet& packet : e.packets)
    packet.tag = 0;
  e.tag = 1;
}

}  // namespace memra::cuda
