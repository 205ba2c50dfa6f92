// Which devices reach each other, by devices that answer what they are told: no GPU is used.

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "peers.h"

namespace memra::cuda {
namespace {

class Device final : public PeerDevice {
 public:
  explicit Device(int ordinal, std::set<int> reachable = {})
      : ordinal_(ordinal), reachable_(std::move(reachable)) {}

  int ordinal() const override { return ordinal_; }
  bool reach(PeerDevice& other) override {
    ++asked;
    return reachable_.count(other.ordinal()) != 0;
  }

  int asked = 0;

 private:
  int ordinal_;
  std::set<int> reachable_;
};

TEST(PeerAccess, PairsEachNewDeviceWithAllThatAreThere) {
  Peers peers;
  Device a(0, {1, 3});
  Device b(1, {0, 3});
  Device c(3, {0, 1});
  peers.add(a);
  EXPECT_EQ(peers.of(a), 0b0001U);
  EXPECT_EQ(a.asked, 0);
  peers.add(b);
  EXPECT_EQ(peers.of(a), 0b0011U);
  EXPECT_EQ(peers.of(b), 0b0011U);
  peers.add(c);
  for (const Device* device : {&a, &b, &c})
    EXPECT_EQ(peers.of(*device), 0b1011U);
  EXPECT_EQ(a.asked, 2);
}

TEST(PeerAccess, OneWayIsNotEnough) {
  Peers peers;
  Device a(0, {1});
  Device b(1);
  peers.add(a);
  peers.add(b);
  EXPECT_EQ(peers.of(a), 0b01U);
  EXPECT_EQ(peers.of(b), 0b10U);
}

TEST(PeerAccess, EnginesOfOneDeviceAskNothing) {
  Peers peers;
  Device a(2);
  Device again(2);
  peers.add(a);
  peers.add(again);
  EXPECT_EQ(a.asked + again.asked, 0);
  EXPECT_EQ(peers.of(a), 0b100U);
  EXPECT_EQ(peers.of(again), 0b100U);
}

TEST(PeerAccess, WhatIsGoneIsNotAskedAndStaysReachable) {
  Peers peers;
  Device a(0, {1, 2});
  Device c(2, {0});
  peers.add(a);
  {
    Device b(1, {0});
    peers.add(b);
    peers.remove(b);
  }
  peers.add(c);
  EXPECT_EQ(peers.of(a), 0b111U) << "access stays on";
  EXPECT_EQ(peers.of(c), 0b101U);
  peers.remove(a);
  peers.remove(a);
  EXPECT_EQ(peers.of(a), 0U);
}

TEST(PeerAccess, OrdinalsBeyondTheMaskAreNotShown) {
  Peers peers;
  Device a(0, {64});
  Device far(64, {0});
  peers.add(a);
  peers.add(far);
  EXPECT_EQ(peers.of(a), 1U);
  EXPECT_EQ(peers.of(far), 1U);
}

}  // namespace
}  // namespace memra::cuda
