// The emulator's own tests: what kernels do wrong is found, and what they do right is not.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "emulation/guarded.h"
#include "emulation/machine.h"
#include "ptx.cuh"
#include "tensor_map.h"
#include "wgmma.cuh"

namespace memra::cuda {
namespace {

constexpr int kRounds = 50;  // schedules that a fault may hide from
constexpr unsigned kThreads = 128;

// Rounds in which there was a fault, or wrong output.
struct Findings {
  int faults = 0, wrong = 0;
  std::string text;
};

Findings run(unsigned threads, uint32_t shared_bytes, const std::function<void()>& kernel,
             const std::function<bool()>& is_right) {
  emulation::Machine& m = emulation::machine();
  Findings findings;
  m.seed(1);
  m.take_faults();
  for (int round = 0; round < kRounds; ++round) {
    m.run({1, 1, 1}, threads, shared_bytes, kernel);
    const std::vector<std::string> faults = m.take_faults();
    findings.faults += faults.empty() ? 0 : 1;
    findings.wrong += is_right() ? 0 : 1;
    for (const std::string& fault : faults)
      findings.text += fault + '\n';
  }
  return findings;
}

// ---- Copies of lanes: each word goes through shared memory

Findings copy_through_shared(bool waits, bool syncs) {
  emulation::Guarded<uint32_t> in(kThreads), out(kThreads, 0);
  std::iota(in.data(), in.data() + kThreads, 1000u);
  const auto kernel = [&] {
    const uint32_t begin = shared_address(dynamic_shared());
    copy_async_4(begin + 4 * threadIdx.x, in.data() + threadIdx.x);
    copy_async_commit();
    if (waits) copy_async_wait<0>();
    if (syncs) __syncthreads();
    out[threadIdx.x] = load_shared(begin + 4 * (kThreads - 1 - threadIdx.x));
  };
  return run(kThreads, 4 * kThreads, kernel, [&] {
    bool right = true;
    for (unsigned i = 0; i < kThreads; ++i)
      right = right && out[i] == in[kThreads - 1 - i];
    return right;
  });
}

TEST(EmulatorSelf, CopiesThatAreWaitedForAreThere) {
  const Findings findings = copy_through_shared(true, true);
  EXPECT_EQ(findings.faults, 0) << findings.text;
  EXPECT_EQ(findings.wrong, 0);
}

TEST(EmulatorSelf, FindsAMissingWaitForCopies) {
  EXPECT_GT(copy_through_shared(false, true).wrong, 0);
}

TEST(EmulatorSelf, FindsAMissingBarrier) {
  EXPECT_GT(copy_through_shared(true, false).wrong, 0);
}

// ---- Named barriers: a warp writes, another one reads

Findings hand_over(bool arrives, bool waits) {
  emulation::Guarded<uint32_t> out(32, 0);
  const auto kernel = [&] {
    const uint32_t mine = shared_address(dynamic_shared()) + threadIdx.x % 32 * 4;
    if (threadIdx.x < 32) {
      store_shared(mine, threadIdx.x + 1);
      if (arrives) named_sync(1, 64);
    } else {
      if (waits) named_sync(1, 64);
      out[threadIdx.x % 32] = load_shared(mine);
    }
  };
  return run(64, 128, kernel, [&] {
    bool right = true;
    for (uint32_t i = 0; i < 32; ++i)
      right = right && out[i] == i + 1;
    return right;
  });
}

TEST(EmulatorSelf, NamedBarriersHandOver) {
  const Findings findings = hand_over(true, true);
  EXPECT_EQ(findings.faults, 0) << findings.text;
  EXPECT_EQ(findings.wrong, 0);
}

TEST(EmulatorSelf, FindsAMissingSyncOfANamedBarrier) {
  EXPECT_GT(hand_over(false, false).wrong, 0);
}

TEST(EmulatorSelf, FindsAMissingArrival) {
  const Findings findings = hand_over(false, true);
  EXPECT_EQ(findings.faults, kRounds);
  EXPECT_NE(findings.text.find("named barrier 1"), std::string::npos) << findings.text;
}

// ---- A ring of two slabs, filled by bulk copies of one thread and read by a warp

struct RingFaults {
  bool no_wait = false;        // slabs are read before they are there
  bool early_release = false;  // and given back before they are read
  bool no_release = false;
};

Findings ring(const RingFaults& with) {
  constexpr uint32_t kSlabs = 8, kPlaces = 2, kSlabBytes = 512;
  constexpr uint32_t kFilled = kPlaces * kSlabBytes, kEmptied = kFilled + 8 * kPlaces;
  emulation::Guarded<uint32_t> in(kSlabs * kSlabBytes / 4), out(kSlabs * 32, 0);
  std::iota(in.data(), in.data() + in.size(), 1u);
  const auto kernel = [&] {
    const uint32_t begin = shared_address(dynamic_shared());
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < kPlaces; ++i) {
        barrier_init(begin + kFilled + 8 * i, 1);
        barrier_init(begin + kEmptied + 8 * i, 1);
      }
      barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 32) {
      for (uint32_t i = 0; i < kSlabs; ++i) {
        const uint32_t place = i % kPlaces, parity = i / kPlaces % 2;
        barrier_wait(begin + kEmptied + 8 * place, parity ^ 1);
        barrier_arrive_expect(begin + kFilled + 8 * place, kSlabBytes);
        bulk_load(begin + place * kSlabBytes, in.data() + i * kSlabBytes / 4, kSlabBytes,
                  begin + kFilled + 8 * place);
      }
    } else if (threadIdx.x < 32) {
      for (uint32_t i = 0; i < kSlabs; ++i) {
        const uint32_t place = i % kPlaces, parity = i / kPlaces % 2;
        const auto release = [&] {
          __syncwarp();
          if (threadIdx.x == 0) barrier_arrive(begin + kEmptied + 8 * place);
        };
        if (!with.no_wait) barrier_wait(begin + kFilled + 8 * place, parity);
        if (with.early_release) release();
        out[i * 32 + threadIdx.x] = load_shared(begin + place * kSlabBytes + 16 * threadIdx.x);
        if (!with.early_release && !with.no_release) release();
      }
    }
  };
  return run(64, kEmptied + 8 * kPlaces, kernel, [&] {
    bool right = true;
    for (uint32_t i = 0; i < kSlabs * 32; ++i)
      right = right && out[i] == in[i / 32 * kSlabBytes / 4 + i % 32 * 4];
    return right;
  });
}

TEST(EmulatorSelf, ARingThatWaitsIsRight) {
  const Findings findings = ring({});
  EXPECT_EQ(findings.faults, 0) << findings.text;
  EXPECT_EQ(findings.wrong, 0);
}

TEST(EmulatorSelf, FindsAMissingWaitForASlab) {
  RingFaults with;
  with.no_wait = true;
  EXPECT_GT(ring(with).wrong, 0);
}

TEST(EmulatorSelf, FindsASlabThatIsReleasedEarly) {
  RingFaults with;
  with.early_release = true;
  EXPECT_GT(ring(with).wrong, 0);
}

TEST(EmulatorSelf, FindsADeadlock) {
  RingFaults with;
  with.no_release = true;
  const Findings findings = ring(with);
  EXPECT_EQ(findings.faults, kRounds);
  EXPECT_NE(findings.text.find("deadlock: warp 1 waits for parity"), std::string::npos)
      << findings.text;
}

// ---- Boxes of a tensor

// Lines 3 to 6 of five lines of 128 bytes, from address 0 on: as a box, 16-byte chunks swizzled.
Findings box(uint32_t to) {
  constexpr uint32_t kBytes = 512;
  constexpr int64_t kLines = 5, kFirst = 3, kWords = 32;
  emulation::Guarded<uint32_t> in(kLines * kWords), out(kBytes / 4, 0);
  std::iota(in.data(), in.data() + in.size(), 1u);
  constexpr uint64_t kSteps = uint64_t{1} << 31;
  const TensorShape shape{
      4, {kWords, kLines, kSteps, kSteps}, {128, 16, 16 * kSteps}, {kWords, 4, 1, 1}, true};
  TensorMap map;
  EXPECT_EQ(make_tensor_map({}, shape, &map), MEMRA_OK);
  const uint64_t steps = reinterpret_cast<uintptr_t>(in.data()) / 16;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(in.data()) % 16, 0u);
  const auto kernel = [&] {
    const uint32_t begin = (shared_address(dynamic_shared()) + 1023) & ~1023u;
    const uint32_t barrier = begin + 2048;
    if (threadIdx.x == 0) barrier_init(barrier, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
      barrier_arrive_expect(barrier, kBytes);
      tensor_load(
          begin + to, map,
          {0, kFirst, static_cast<int32_t>(steps % kSteps), static_cast<int32_t>(steps / kSteps)},
          barrier);
    }
    barrier_wait(barrier, 0);
    for (uint32_t i = threadIdx.x; i < kBytes / 4; i += 32)
      out[i] = load_shared(begin + to + 4 * i);
  };
  return run(32, 4096, kernel, [&] {
    bool right = true;
    for (uint32_t i = 0; i < kBytes / 4; ++i) {
      const uint32_t line = i / kWords, chunk = i / 4 % 8 ^ line, word = chunk * 4 + i % 4;
      // The tensor ends before the box does.
      right = right && out[i] == (line < 2 ? in[(kFirst + line) * kWords + word] : 0);
    }
    return right;
  });
}

TEST(EmulatorSelf, BoxesOfATensorAreSwizzledAndEndWithIt) {
  const Findings findings = box(1024);
  EXPECT_EQ(findings.faults, 0) << findings.text;
  EXPECT_EQ(findings.wrong, 0);
}

TEST(EmulatorSelf, FindsABoxWhoseSwizzleIsNotAligned) {
  EXPECT_EQ(box(128).faults, kRounds);
}

// ---- Products of a warpgroup

struct ProductFaults {
  bool no_wait = false;  // sums are read before they are there
  bool no_fence = false;
  bool changes_a = false;  // while the product reads it
};

// D[64][8] = A * B with A all 1 and B[k][n] = n: every sum is 16 * n.
Findings product(const ProductFaults& with) {
  constexpr uint32_t kBytes = 8 * 128 + 1024;
  emulation::Guarded<float> out(4 * kThreads, 0);
  const auto kernel = [&] {
    const uint32_t begin = (shared_address(dynamic_shared()) + 1023) & ~1023u;
    if (threadIdx.x < 64) {  // row n of 128 bytes, all alike, so that the swizzle does not matter
      const uint32_t n = threadIdx.x / 8,
                     value = f16_pair(static_cast<float>(n), static_cast<float>(n));
      store_shared(begin + n * 128 + threadIdx.x % 8 * 16, uint4{value, value, value, value});
    }
    copy_engine_fence();
    __syncthreads();
    float sums[4] = {written_zero(), written_zero(), written_zero(), written_zero()};
    uint32_t a[4];
    for (uint32_t& pair : a)
      pair = f16_pair(1.0f, 1.0f);
    if (!with.no_fence) wgmma_fence();
    Wgmma<8>::multiply(sums, a, swizzled_rows(begin));
    wgmma_commit();
    if (with.changes_a) a[0] = 0;
    if (!with.no_wait) wgmma_wait<0>();
    for (int i = 0; i < 4; ++i)
      out[static_cast<int64_t>(threadIdx.x) * 4 + i] = sums[i];
    wgmma_wait<0>();
  };
  return run(kThreads, kBytes, kernel, [&] {
    bool right = true;
    for (unsigned i = 0; i < 4 * kThreads; ++i)
      right = right && out[i] == 16.0f * static_cast<float>(i / 4 % 4 * 2 + i % 2);
    return right;
  });
}

TEST(EmulatorSelf, ProductsThatAreWaitedForAreRight) {
  const Findings findings = product({});
  EXPECT_EQ(findings.faults, 0) << findings.text;
  EXPECT_EQ(findings.wrong, 0);
}

TEST(EmulatorSelf, FindsAMissingWaitForProducts) {
  ProductFaults with;
  with.no_wait = true;
  EXPECT_GT(product(with).wrong, 0);
}

TEST(EmulatorSelf, FindsAMissingFenceOfProducts) {
  ProductFaults with;
  with.no_fence = true;
  EXPECT_EQ(product(with).faults, kRounds);
}

TEST(EmulatorSelf, FindsRegistersThatChangeUnderAProduct) {
  ProductFaults with;
  with.changes_a = true;
  EXPECT_GT(product(with).faults, 0);
}

// ---- Addresses

TEST(EmulatorSelf, FindsAddressesOutsideSharedMemory) {
  const Findings findings = run(
      32, 64, [] { store_shared(shared_address(dynamic_shared()) + 64, 1u); }, [] { return true; });
  EXPECT_EQ(findings.faults, kRounds);
  EXPECT_NE(findings.text.find("outside"), std::string::npos);
}

TEST(EmulatorSelf, FindsMisalignedAddresses) {
  const Findings findings = run(
      32, 64, [] { store_shared(shared_address(dynamic_shared()) + 8, uint4{}); },
      [] { return true; });
  EXPECT_EQ(findings.faults, kRounds);
  EXPECT_NE(findings.text.find("aligned"), std::string::npos);
}

}  // namespace
}  // namespace memra::cuda
