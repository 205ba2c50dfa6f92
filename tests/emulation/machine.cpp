#include "emulation/machine.h"

#include <algorithm>
#include <utility>

#include "emulation/async.h"
#include "emulation/tensor.h"

namespace memra::emulation {
namespace {

constexpr size_t kMostFaults = 30;
constexpr std::uint8_t kPoison = 0xFF;  // NaNs of every kind
constexpr std::uint32_t kGuardBytes = 64, kBlockAlignment = 1024;
// Variables declared __shared__ are plain statics here, so that blocks with any must not run
// together. Kernels with more dynamic shared memory than this have none.
constexpr std::uint32_t kTogetherBytes = 80 << 10;

}  // namespace

Machine& machine() {
  static Machine the_machine;
  return the_machine;
}

std::vector<std::string> Machine::take_faults() {
  return std::exchange(faults_, {});
}

void Machine::fault(const std::string& what) {
  if (faults_.size() >= kMostFaults) return;
  std::string text = "block " + std::to_string(blockIdx.x);
  if (current_ != nullptr) text += " thread " + std::to_string(current_->index);
  faults_.push_back(text + ": " + what);
}

void Machine::fatal(const std::string& what) {
  fault(what);
  ended_early_ = true;
  throw Fault();
}

std::uint8_t* Machine::at(Block& block, std::uint32_t address, std::uint32_t bytes,
                          std::uint32_t align) {
  const std::uint32_t end = block.first_address + block.shared_bytes;
  if (address < block.first_address || address > end || end - address < bytes) {
    fatal("shared address " + std::to_string(address) + " is outside");
  }
  if (address % align != 0) {
    fatal("shared address " + std::to_string(address) + " is not aligned to " +
          std::to_string(align));
  }
  return block.shared + (address - block.first_address);
}

// ---- Waiting

void Machine::yield() {
  steps_left_ = 1 + static_cast<int>(below(static_cast<std::uint64_t>(mood_.most_steps)));
  runnable_.push_back(current_);
  current_->fiber.suspend();
}

void Machine::wait(Waiting& waiting, const char* what, std::uint64_t on) {
  current_->waits_for = what;
  current_->waits_on = on;
  waiting.push_back(current_);
  current_->fiber.suspend();
}

void Machine::wake(Waiting& waiting) {
  runnable_.insert(runnable_.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

void Machine::release_if_complete(Barrier& barrier) {
  if (barrier.arrived == 0 || barrier.arrived != barrier.alive) return;
  barrier.arrived = 0;
  ++barrier.generation;
  wake(barrier.waiting);
}

void Machine::arrive_and_wait(Barrier& barrier, const char* what) {
  const unsigned generation = barrier.generation;
  ++barrier.arrived;
  release_if_complete(barrier);
  if (barrier.generation == generation) {
    wait(barrier.waiting, what, generation);
  } else if (chance(300)) {
    yield();
  }
}

Barrier& Machine::whole_warp(const char* what) {
  Barrier& barrier = warp().barrier;
  if (barrier.alive != kWarpLanes) fatal(std::string(what) + " without all lanes of the warp");
  return barrier;
}

// ---- Threads and blocks

void Machine::thread_main() {
  Machine& m = machine();
  Thread& thread = *m.current_;
  try {
    m.body_();
    finish_async(thread);
    if (thread.products_issued > m.warp().products_done) m.fault("products under way at the end");
  } catch (const Fault&) {
    m.ended_early_ = true;
  }
  thread.done = true;
  Block& block = *thread.block;
  --block.alive;
  for (Barrier* const barrier : {&block.barrier, &m.warp().barrier}) {
    --barrier->alive;
    m.release_if_complete(*barrier);
  }
  thread.fiber.suspend();
}

void Machine::open_block(Index3 index, unsigned threads, std::uint32_t shared_bytes) {
  auto block = std::make_unique<Block>();
  block->index = index;
  block->shared_bytes = shared_bytes;
  // Wherever the GPU may put it.
  block->first_address = 16 * (1 + below(62));
  block->memory.assign(shared_bytes + kGuardBytes + 3 * kBlockAlignment, kPoison);
  const auto begin = reinterpret_cast<std::uintptr_t>(block->memory.data());
  block->shared =
      block->memory.data() + (kBlockAlignment - begin % kBlockAlignment) + block->first_address;
  block->warps.resize((threads + kWarpLanes - 1) / kWarpLanes);
  block->alive = block->barrier.alive = threads;
  for (unsigned i = 0; i < threads; ++i) {
    std::unique_ptr<Thread> thread;
    if (spare_threads_.empty()) {
      thread = std::make_unique<Thread>();
    } else {
      thread = std::move(spare_threads_.back());
      spare_threads_.pop_back();
    }
    thread->index = i;
    thread->block = block.get();
    thread->done = false;
    thread->priority = i % kWarpLanes == 0 ? random_.bits() : block->threads.back()->priority;
    thread->waits_for = "";
    thread->copy_groups.clear();
    thread->open_copies.clear();
    thread->products_issued = 0;
    thread->product_groups.clear();
    thread->products_fenced = false;
    thread->fiber.restart(thread_main);
    ++block->warps[i / kWarpLanes].barrier.alive;
    runnable_.push_back(thread.get());
    block->threads.push_back(std::move(thread));
  }
  blocks_.push_back(std::move(block));
}

void Machine::close_blocks() {
  current_ = nullptr;
  for (const auto& block : blocks_) {
    blockIdx = block->index;
    const std::uint8_t* const guard = block->shared + block->shared_bytes;
    if (!std::all_of(guard, guard + kGuardBytes, [](std::uint8_t b) { return b == kPoison; })) {
      fault("writes behind shared memory");
    }
    if (!ended_early_ && !(block->bulk_copies.empty() && block->lane_arrivals.empty())) {
      fault("copies under way at the end");
    }
    std::move(block->threads.begin(), block->threads.end(), std::back_inserter(spare_threads_));
  }
  blocks_.clear();
  runnable_.clear();
}

// ---- The schedule

void Machine::choose_mood() {
  constexpr std::uint32_t kProgress[] = {0, 8, 64, 300, 700};
  constexpr std::uint32_t kAtOnce[] = {0, 256, 1024};
  constexpr int kSteps[] = {3, 30, 400};
  mood_.progress = kProgress[below(5)];
  mood_.at_once = kAtOnce[below(3)];
  mood_.most_steps = kSteps[below(3)];
  mood_.poison = chance(512) ? 1024 : 512;
  mood_.warpgroup_together = chance(512);
  mood_.favourites = chance(512);
}

Thread* Machine::next_thread() {
  size_t chosen = below(runnable_.size());
  if (mood_.favourites) {
    for (int i = 0; i < 6; ++i) {
      const size_t other = below(runnable_.size());
      if (runnable_[other]->priority > runnable_[chosen]->priority) chosen = other;
    }
    if (below(4096) == 0) {  // a warp gets another priority
      const Block& block = *blocks_[below(blocks_.size())];
      const std::uint64_t priority = random_.bits();
      const size_t first = below(block.warps.size()) * kWarpLanes;
      const size_t end = std::min<size_t>(first + kWarpLanes, block.threads.size());
      for (size_t i = first; i < end; ++i)
        block.threads[i]->priority = priority;
    }
  }
  Thread* const thread = runnable_[chosen];
  runnable_[chosen] = runnable_.back();
  runnable_.pop_back();
  return thread;
}

bool Machine::anyone_alive() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const auto& b) { return b->alive != 0; });
}

void Machine::report_deadlock() {
  current_ = nullptr;
  for (const auto& block : blocks_) {
    blockIdx = block->index;
    std::map<std::string, unsigned> waiting;
    for (const auto& thread : block->threads) {
      if (thread->done) continue;
      ++waiting["warp " + std::to_string(thread->index / kWarpLanes) + " waits for " +
                thread->waits_for + " " + std::to_string(thread->waits_on)];
    }
    for (const auto& [what, lanes] : waiting)
      fault("deadlock: " + what + ", lanes " + std::to_string(lanes));
  }
  ended_early_ = true;
}

void Machine::run_threads() {
  while (!ended_early_) {
    // Asynchronous work is nobody's; it happens between the turns of threads.
    const bool progress = runnable_.empty() || chance(mood_.progress);
    if (progress) {
      current_ = nullptr;
      try {
        const bool did = advance_async(blocks_);
        if (!did && runnable_.empty()) {
          if (anyone_alive()) report_deadlock();
          return;
        }
      } catch (const Fault&) {
        return;
      }
      if (runnable_.empty()) continue;
    }
    current_ = next_thread();
    threadIdx.x = current_->index;
    blockIdx = current_->block->index;
    current_->fiber.resume();
  }
}

bool Machine::run(Index3 grid, unsigned threads, std::uint32_t shared_bytes,
                  std::function<void()> body) {
  body_ = std::move(body);
  ended_early_ = false;
  gridDim = grid;
  blockDim = {threads, 1, 1};
  choose_mood();
  std::vector<Index3> order;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x)
      order.push_back({x, y, 0});
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[below(i)]);
  if (order.empty()) fault("a launch of no blocks");
  const bool together = shared_bytes > kTogetherBytes;
  for (const Index3& index : order) {
    open_block(index, threads, shared_bytes);
    if (together && blocks_.size() < order.size()) continue;
    run_threads();
    close_blocks();
    if (ended_early_) break;
  }
  body_ = nullptr;
  return !ended_early_;
}

}  // namespace memra::emulation
