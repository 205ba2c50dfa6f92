#pragma once

// Which GPUs of this process reach each other's memory. Access is switched on when the second of
// two devices gets its first engine, never in a copy: that could be under capture, and would wait
// for both devices. It stays on, for another engine of the device may use it.

#include <cstdint>
#include <mutex>
#include <vector>

namespace memra::cuda {

// An engine's device, as its peers see it.
class PeerDevice {
 public:
  virtual ~PeerDevice() = default;
  virtual int ordinal() const = 0;
  // Lets this device's work use the other's memory; false where that cannot be.
  virtual bool reach(PeerDevice& other) = 0;
};

class Peers {
 public:
  static Peers& of_process();

  Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Pairs a new engine's device with those of all others. May throw std::bad_alloc.
  void add(PeerDevice& device);
  // Before the device goes; one that was never added is fine.
  void remove(PeerDevice& device);
  // Bit d: device d, below 64, and this one reach each other. The device's own bit is set.
  uint64_t of(const PeerDevice& device) const;

 private:
  struct Member {
    PeerDevice* device;
    uint64_t peers;
  };

  mutable std::mutex mutex_;
  std::vector<Member> members_;
};

}  // namespace memra::cuda
