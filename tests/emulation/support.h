// What tests of emulated kernels share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "emulation/guarded.h"
#include "memra.h"
#include "reference/floats.h"
#include "reference/generate.h"
#include "reference/weights.h"

namespace memra::emulation {

// As kernels' launches see it.
cuda::Device device(bool wgmma, int multiprocessors);

// Expects that the launches since the last call went well.
void expect_no_faults(const std::string& what);

memra_dtype dtype_of(reference::DType dtype);

// A slab in memory of its own. One of three in NVFP4_V1 begins at a word that is no multiple of 16
// bytes.
struct SlabMemory {
  std::unique_ptr<Guarded<uint8_t>> memory;
  const uint8_t* slab;
};
SlabMemory place_slab(const reference::Slab& slab, int64_t expert);

template <size_t n>
int64_t one_of(reference::Random& random, const int64_t (&choices)[n]) {
  return choices[random.below(n)];
}

template <typename T>
void shuffle(std::vector<T>& values, reference::Random& random) {
  for (size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
}

// "wgmma, rows 5, columns 64", for messages.
using Numbers = std::initializer_list<std::pair<const char*, int64_t>>;
std::string describe(bool wgmma, const Numbers& numbers);

}  // namespace memra::emulation
