#include "emulation/async.h"

#include <cstring>
#include <string>
#include <utility>

#include "emulation/tensor.h"

namespace memra::emulation {
namespace {

constexpr std::uint8_t kPoison = 0xFF;
constexpr std::uint32_t kBulkUnit = 16;

bool is_aligned(const void* p, std::uint32_t to) {
  return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

// ---- Copies of lanes

void deliver(Block& block, const LaneCopy& copy) {
  std::uint8_t* const to = machine().at(block, copy.to, copy.bytes, copy.bytes);
  if (copy.from == nullptr) {
    std::memset(to, 0, copy.bytes);
  } else {
    std::memcpy(to, copy.from, copy.bytes);
  }
}

void deliver_any(Thread& thread, std::vector<LaneCopy>& group) {
  std::swap(group[machine().below(group.size())], group.back());
  deliver(*thread.block, group.back());
  group.pop_back();
}

void deliver_all(Thread& thread, std::size_t pending) {
  while (thread.copy_groups.size() > pending) {
    auto& group = thread.copy_groups.front();
    while (!group.empty())
      deliver_any(thread, group);
    thread.copy_groups.pop_front();
  }
}

// ---- Barriers by address

PhaseBarrier& barrier_at(Block& block, std::uint32_t address) {
  machine().at(block, address, 8, 8);
  PhaseBarrier& barrier = block.phase_barriers[address];
  if (!barrier.initialised) {
    machine().fatal("barrier " + std::to_string(address) + " has not been initialised");
  }
  return barrier;
}

void complete_if_due(PhaseBarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.count;
  machine().wake(barrier.waiting);
}

// ---- Bulk copies

// All that is left of a copy, or one end of it.
void advance_bulk_copy(Block& block, std::size_t index) {
  Machine& m = machine();
  BulkCopy& copy = block.bulk_copies[index];
  const bool in_part = copy.bytes > 256 && m.chance(512);
  const std::uint32_t bytes = in_part ? copy.bytes / (2 * kBulkUnit) * kBulkUnit : copy.bytes;
  const std::uint32_t skipped = m.chance(512) ? copy.bytes - bytes : 0;
  std::memcpy(m.at(block, copy.to + skipped, bytes, kBulkUnit), copy.from + skipped, bytes);
  PhaseBarrier& barrier = barrier_at(block, copy.barrier);
  barrier.bytes -= bytes;
  complete_if_due(barrier);
  if (skipped == 0) {
    copy.to += bytes;
    copy.from += bytes;
  }
  copy.bytes -= bytes;
  if (copy.bytes != 0) return;
  if (&copy != &block.bulk_copies.back()) copy = std::move(block.bulk_copies.back());
  block.bulk_copies.pop_back();
}

void start_bulk_copy(BulkCopy copy) {
  Machine& m = machine();
  std::uint8_t* const target = m.at(m.block(), copy.to, copy.bytes, kBulkUnit);
  if (m.chance(m.mood().poison)) std::memset(target, kPoison, copy.bytes);
  m.block().bulk_copies.push_back(std::move(copy));
  m.step();
}

bool advance_any_bulk_copy(Block& block) {
  if (block.bulk_copies.empty()) return false;
  advance_bulk_copy(block, machine().below(block.bulk_copies.size()));
  return true;
}

bool advance_any_arrival(Block& block) {
  if (block.lane_arrivals.empty()) return false;
  std::swap(block.lane_arrivals[machine().below(block.lane_arrivals.size())],
            block.lane_arrivals.back());
  const LaneArrival arrival = std::move(block.lane_arrivals.back());
  block.lane_arrivals.pop_back();
  for (const LaneCopy& copy : arrival.copies)
    deliver(block, copy);
  PhaseBarrier& barrier = barrier_at(block, arrival.barrier);
  --barrier.pending;
  complete_if_due(barrier);
  return true;
}

bool advance_any_copy(Block& block) {
  if (machine().chance(512)) return advance_any_arrival(block) || advance_any_bulk_copy(block);
  return advance_any_bulk_copy(block) || advance_any_arrival(block);
}

}  // namespace

bool advance_async(std::vector<std::unique_ptr<Block>>& blocks) {
  Machine& m = machine();
  const std::size_t first = blocks.empty() ? 0 : m.below(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Block& block = *blocks[(first + i) % blocks.size()];
    if (block.alive == 0) continue;
    blockIdx = block.index;
    if (m.chance(512)) {
      if (advance_any_copy(block) || advance_products(block)) return true;
    } else {
      if (advance_products(block) || advance_any_copy(block)) return true;
    }
  }
  return false;
}

void finish_async(Thread& thread) {
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
  deliver_all(thread, 0);
}

void lane_copy(std::uint32_t to, const void* from, std::uint32_t bytes) {
  Machine& m = machine();
  if (!is_aligned(from, bytes)) m.fatal("the source of a copy is not aligned");
  std::uint8_t* const target = m.at(m.block(), to, bytes, bytes);
  const LaneCopy copy{to, static_cast<const std::uint8_t*>(from), bytes};
  if (m.chance(m.mood().at_once)) {
    deliver(m.block(), copy);
  } else {
    if (m.chance(m.mood().poison)) std::memset(target, kPoison, bytes);
    m.thread().open_copies.push_back(copy);
  }
  m.step();
}

void lane_copy_commit() {
  Machine& m = machine();
  Thread& thread = m.thread();
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
  if (m.chance(m.mood().progress)) {
    for (auto& group : thread.copy_groups) {
      if (!group.empty() && m.chance(512)) deliver_any(thread, group);
    }
  }
  m.step();
}

void lane_copy_wait(std::size_t pending) {
  machine().step();
  deliver_all(machine().thread(), pending);
}

void lane_copy_arrive(std::uint32_t barrier) {
  Machine& m = machine();
  Thread& thread = m.thread();
  if (!thread.copy_groups.empty()) m.fault("copies in groups and copies before an arrival");
  m.block().lane_arrivals.push_back({std::move(thread.open_copies), barrier});
  thread.open_copies.clear();
  m.step();
}

void phase_barrier_init(std::uint32_t address, std::uint32_t arrivals) {
  Machine& m = machine();
  m.at(m.block(), address, 8, 8);
  PhaseBarrier& barrier = m.block().phase_barriers[address];
  if (barrier.initialised) m.fault("a barrier is initialised twice");
  barrier.initialised = true;
  barrier.count = barrier.pending = arrivals;
}

void phase_barrier_arrive(std::uint32_t address, std::uint32_t expected_bytes) {
  Machine& m = machine();
  PhaseBarrier& barrier = barrier_at(m.block(), address);
  if (barrier.pending == 0) {
    m.fatal("too many arrivals at barrier " + std::to_string(address));
  }
  barrier.bytes += expected_bytes;
  --barrier.pending;
  complete_if_due(barrier);
  m.step();
}

void phase_barrier_wait(std::uint32_t address, std::uint32_t parity) {
  Machine& m = machine();
  m.step();
  for (;;) {
    PhaseBarrier& barrier = barrier_at(m.block(), address);
    if ((barrier.phase & 1) != parity) return;
    m.wait(barrier.waiting, parity != 0 ? "parity 1 of barrier" : "parity 0 of barrier", address);
  }
}

void bulk_copy(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier) {
  Machine& m = machine();
  if (!is_aligned(from, kBulkUnit) || bytes % kBulkUnit != 0 || bytes == 0) {
    m.fatal("a bulk copy of " + std::to_string(bytes) + " bytes is not aligned, or empty");
  }
  start_bulk_copy({to, static_cast<const std::uint8_t*>(from), bytes, barrier, nullptr});
}

void bulk_copy(std::uint32_t to, std::shared_ptr<const std::vector<std::uint8_t>> bytes,
               std::uint32_t barrier) {
  const std::uint8_t* const from = bytes->data();
  const auto size = static_cast<std::uint32_t>(bytes->size());
  start_bulk_copy({to, from, size, barrier, std::move(bytes)});
}

void named_barrier(int id, int threads) {
  Machine& m = machine();
  m.step();
  NamedBarrier& barrier = m.block().named[id];
  if (barrier.arrived != 0 && barrier.threads != threads) {
    m.fault("named barrier " + std::to_string(id) + " with different numbers of threads");
  }
  barrier.threads = threads;
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.generation;
    m.wake(barrier.waiting);
  } else {
    while (barrier.generation == generation)
      m.wait(barrier.waiting, "named barrier", static_cast<std::uint64_t>(id));
  }
}

}  // namespace memra::emulation
