#include "peers.h"

#include <algorithm>

namespace memra::cuda {
namespace {

uint64_t bit(const PeerDevice& device) {
  const int ordinal = device.ordinal();
  return ordinal < 64 ? uint64_t{1} << ordinal : 0;
}

}  // namespace

Peers& Peers::of_process() {
  // Never destroyed: engines may be, after the destructors of static objects have run.
  static Peers& peers = *new Peers;
  return peers;
}

void Peers::add(PeerDevice& device) {
  const std::lock_guard lock(mutex_);
  Member added = {&device, bit(device)};
  members_.reserve(members_.size() + 1);
  for (Member& member : members_) {
    if (member.device->ordinal() == device.ordinal()) continue;
    // Both, though one is missing: a copy may be driven from either side.
    const bool out = device.reach(*member.device);
    const bool in = member.device->reach(device);
    if (!out || !in) continue;
    added.peers |= bit(*member.device);
    member.peers |= bit(device);
  }
  members_.push_back(added);
}

void Peers::remove(PeerDevice& device) {
  const std::lock_guard lock(mutex_);
  std::erase_if(members_, [&](const Member& member) { return member.device == &device; });
}

uint64_t Peers::of(const PeerDevice& device) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& member) { return member.device == &device; });
  return found != members_.end() ? found->peers : 0;
}

}  // namespace memra::cuda
