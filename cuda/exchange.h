#pragma once

// Memory through which the blocks of one kernel talk to each other while all of them run.

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "status.h"

namespace memra::cuda {

// Outputs of gate and up on their way to down: 12 bytes and a tag in 16 that are written and read
// at once, so a reader that finds this launch's tag has this launch's bytes. That takes no fence,
// and a fence waits for all of a multiprocessor's loads in flight.
struct alignas(16) Packet {
  uint32_t data[3];
  uint32_t tag;
};

// A group of 32: its bytes and d.
inline constexpr int kGroupPackets = 3;

struct alignas(128) Exchange {
  // Between kernels all packets have tags other than `tag`, and the counters are zero.
  uint32_t tag;
  uint32_t left;        // blocks that need nothing more
  uint32_t arrived[3];  // blocks at each barrier

  static constexpr uint32_t kPackets = 4096 - 8;
  alignas(128) Packet packets[kPackets];
};

// One for every workspace, because a workspace belongs to one call at a time, whatever stream or
// graph it runs in. Safe from many threads.
class Exchanges {
 public:
  static constexpr size_t kCount = 64;

  // In the current context, on a stream of which this waits for the end. A device without memory
  // pools has none.
  Status create(cudaStream_t stream);
  // On that stream, and without waiting for anything, as cudaFree would: no call is left.
  void destroy(cudaStream_t stream);

  // Null where there is none left.
  Exchange* of(const void* workspace);

 private:
  Exchange* device_ = nullptr;
  std::array<std::atomic<const void*>, kCount> owners_{};
};

}  // namespace memra::cuda
