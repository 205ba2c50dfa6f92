// Runs CUDA kernels of the library on the CPU, a fiber to a thread, to find faults of their
// synchronisation and addressing where there is no GPU.
//
// Kernels are compiled by the C++ compiler with MEMRA_EMULATION defined. PTX, which the library
// keeps in cuda/ptx.cuh and cuda/wgmma.cuh, and what the toolkit's headers offer come from this
// folder. Schedules are random but repeatable: threads run in any order, blocks too, and what is
// asynchronous (copies, matrix products) completes at once, late, in parts or out of order, as far
// as the programming model allows. Shared memory begins with NaNs, and the target of a copy under
// way holds them. A launch ends early, with a fault, where all threads wait for each other, an
// address is outside or misaligned, a barrier gets too many arrivals, registers of a product under
// way change, or a block ends with copies under way.
//
// What it cannot show:
// - The hardware's swizzle of shared memory. It follows the documented formula here.
// - The order and the rounding of sums inside tensor cores. A product here is a sum in f32.
// - Memory order. Writes are visible at once, so a missing fence between the copy engine and
//   threads, or between blocks, stays hidden.
// - Registers, occupancy, speed, and what the compiler for the GPU makes of the code.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulation/fiber.h"
#include "reference/generate.h"

namespace memra::emulation {

inline constexpr unsigned kWarpLanes = 32;

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// What went wrong beyond what kernels can go on from.
struct Fault {};

struct Block;
struct Thread;
using Waiting = std::vector<Thread*>;

// Of all threads of a block or a warp that have not returned.
struct Barrier {
  unsigned arrived = 0, alive = 0, generation = 0;
  Waiting waiting;
};

// mbarrier, in shared memory.
struct PhaseBarrier {
  bool initialised = false;
  std::uint32_t count = 0, pending = 0;
  std::int64_t bytes = 0;  // announced and not there yet
  std::uint32_t phase = 0;
  Waiting waiting;
};

struct NamedBarrier {
  int arrived = 0, threads = 0;
  unsigned generation = 0;
  Waiting waiting;
};

// A thread's copy into shared memory; from nowhere come zeroes.
struct LaneCopy {
  std::uint32_t to;
  const std::uint8_t* from;
  std::uint32_t bytes;
};

// A thread's copies, and the barrier that it arrives at when they are done.
struct LaneArrival {
  std::vector<LaneCopy> copies;
  std::uint32_t barrier;
};

// What is left of a bulk copy.
struct BulkCopy {
  std::uint32_t to;
  const std::uint8_t* from;
  std::uint32_t bytes, barrier;
  std::shared_ptr<const std::vector<std::uint8_t>> gathered;  // where `from` points into it
};

// A warp's part of a warpgroup's matrix product, as its lanes have issued it.
struct Product {
  unsigned lanes = 0;  // that have come to it
  int columns = 0;
  std::uint64_t descriptor = 0;
  float* sums[kWarpLanes];
  const std::uint32_t* a[kWarpLanes];
  std::uint32_t a_at_issue[kWarpLanes][4];
};

struct Warp {
  Barrier barrier;
  // What lanes bring to an instruction of the whole warp, and what they take from it. The last lane
  // to come reads the one and writes the other, so one meeting is enough.
  std::uint64_t given[kWarpLanes];
  unsigned from[kWarpLanes];
  std::uint64_t taken[kWarpLanes];
  std::uint32_t words[kWarpLanes][4];
  float* sums[kWarpLanes];
  const std::uint32_t* a[kWarpLanes];
  std::uint32_t b[kWarpLanes][2];
  // Products begun by any lane and not yet done.
  std::deque<Product> products;
  std::uint64_t products_done = 0;
  Waiting waiting;
};

struct Thread {
  Fiber fiber;
  unsigned index = 0;
  Block* block = nullptr;
  bool done = false;
  std::uint64_t priority = 0;
  const char* waits_for = "";
  std::uint64_t waits_on = 0;
  std::deque<std::vector<LaneCopy>> copy_groups;
  std::vector<LaneCopy> open_copies;
  std::uint64_t products_issued = 0;
  std::vector<std::uint64_t> product_groups;  // products_issued at each commit
  bool products_fenced = false;
};

struct Block {
  Index3 index;
  std::vector<std::uint8_t> memory;
  std::uint8_t* shared = nullptr;
  std::uint32_t first_address = 0, shared_bytes = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  unsigned alive = 0;
  Barrier barrier;
  std::map<std::uint32_t, PhaseBarrier> phase_barriers;
  NamedBarrier named[16];
  std::vector<BulkCopy> bulk_copies;
  std::vector<LaneArrival> lane_arrivals;
};

// How this launch behaves; chosen anew for each.
struct Mood {
  int most_steps = 30;             // of a thread, before another may come
  std::uint32_t progress = 64;     // of 1024: chance of asynchronous work before each turn
  std::uint32_t at_once = 256;     // of 1024: chance that a lane's copy is there at once
  std::uint32_t poison = 512;      // of 1024: chance that the target of a copy is spoilt
  bool warpgroup_together = true;  // its four warps run a product at the same time
  bool favourites = false;         // some warps run far ahead
};

class Machine {
 public:
  // ---- For tests
  void seed(std::uint64_t seed) { random_ = reference::Random(seed); }
  // Since the last call.
  std::vector<std::string> take_faults();

  // ---- For launches. False after a fault that ended the launch.
  bool run(Index3 grid, unsigned threads, std::uint32_t shared_bytes, std::function<void()> body);

  // ---- For threads
  Thread& thread() { return *current_; }
  Block& block() { return *current_->block; }
  Warp& warp() { return block().warps[current_->index / kWarpLanes]; }
  unsigned lane() const { return current_->index % kWarpLanes; }
  Mood& mood() { return mood_; }

  bool chance(std::uint32_t of_1024) { return (random_.bits() & 1023) < of_1024; }
  std::uint32_t below(std::uint64_t n) {
    return static_cast<std::uint32_t>((random_.bits() >> 32) * n >> 32);
  }

  // Lets others run, now or now and then.
  void yield();
  void step() {
    if (--steps_left_ <= 0) yield();
  }
  void wait(Waiting& waiting, const char* what, std::uint64_t on);
  void wake(Waiting& waiting);
  void arrive_and_wait(Barrier& barrier, const char* what);
  // Of all 32 lanes; the last one to come runs `action` for all.
  template <class Action>
  void by_warp(const char* what, const Action& action) {
    Barrier& barrier = whole_warp(what);
    if (barrier.arrived + 1 == kWarpLanes) action();
    arrive_and_wait(barrier, what);
  }
  void by_warp(const char* what) { arrive_and_wait(whole_warp(what), what); }

  // Notes a fault; fatal() ends the launch as well.
  void fault(const std::string& what);
  [[noreturn]] void fatal(const std::string& what);

  // Bytes of a block's shared memory at an address.
  std::uint8_t* at(Block& block, std::uint32_t address, std::uint32_t bytes, std::uint32_t align);

 private:
  Barrier& whole_warp(const char* what);
  void release_if_complete(Barrier& barrier);
  static void thread_main();
  void open_block(Index3 index, unsigned threads, std::uint32_t shared_bytes);
  void close_blocks();
  void run_threads();
  Thread* next_thread();
  bool anyone_alive() const;
  void report_deadlock();
  void choose_mood();

  reference::Random random_{1};
  Mood mood_;
  int steps_left_ = 1;
  Thread* current_ = nullptr;
  std::function<void()> body_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Thread*> runnable_;
  std::vector<std::unique_ptr<Thread>> spare_threads_;
  std::vector<std::string> faults_;
  bool ended_early_ = false;
};

// The one that runs.
Machine& machine();

}  // namespace memra::emulation

// As kernels name them.
inline memra::emulation::Index3 threadIdx, blockIdx, blockDim, gridDim;
