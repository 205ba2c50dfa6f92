// Asynchronous copies into shared memory, and the barriers of blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "emulation/machine.h"

namespace memra::emulation {

// One step of something asynchronous: a bulk copy or a matrix product. False where there is none.
bool advance_async(std::vector<std::unique_ptr<Block>>& blocks);
// A thread returns: its copies are done.
void finish_async(Thread& thread);

// ---- cp.async: `from` null brings zeroes.
void lane_copy(std::uint32_t to, const void* from, std::uint32_t bytes);
void lane_copy_commit();
void lane_copy_wait(std::size_t pending);
// Arrives at a barrier once the thread's copies so far are done.
void lane_copy_arrive(std::uint32_t barrier);

// ---- mbarrier and cp.async.bulk
void phase_barrier_init(std::uint32_t address, std::uint32_t arrivals);
void phase_barrier_arrive(std::uint32_t address, std::uint32_t expected_bytes);
void phase_barrier_wait(std::uint32_t address, std::uint32_t parity);
void bulk_copy(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier);
// Of bytes that have been gathered for it.
void bulk_copy(std::uint32_t to, std::shared_ptr<const std::vector<std::uint8_t>> bytes,
               std::uint32_t barrier);

// ---- barrier.cta
void named_barrier(int id, int threads);

}  // namespace memra::emulation
