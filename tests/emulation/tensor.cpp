#include "emulation/tensor.h"

#include <cstring>
#include <string>
#include <vector>

#include "numerics/half.h"

namespace memra::emulation {
namespace {

constexpr int kRows = 16, kDepth = 16, kMostColumns = 256, kWarpgroupWarps = 4;
// More products than a warp may have under way for a good reason.
constexpr std::size_t kMostProducts = 256;

// Of one instruction, widened. B lies by k, so that the loop over columns can be vectorised.
struct Operands {
  float a[kRows][kDepth];
  float b[kDepth][kMostColumns];
};

// Lane 4 * g + t holds rows g and g + 8, columns 2 * t and 2 * t + 8 and the ones beside them.
void widen_a(const std::uint32_t* a, unsigned lane, Operands& operands) {
  const unsigned g = lane / 4, t = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    float* const to = &operands.a[g + 8 * (i & 1)][2 * t + 8 * (i >> 1)];
    to[0] = widen_f16(static_cast<std::uint16_t>(a[i]));
    to[1] = widen_f16(static_cast<std::uint16_t>(a[i] >> 16));
  }
}

// sums[lane][4 * j + 2 * r + e]: row g + 8 * r, column 8 * j + 2 * t + e.
void multiply(const Operands& operands, int columns, float* const* sums) {
  for (unsigned row = 0; row < kRows; ++row) {
    float products[kMostColumns] = {};
    for (int k = 0; k < kDepth; ++k) {
      const float a = operands.a[row][k];
      for (int column = 0; column < columns; ++column)
        products[column] += a * operands.b[k][column];
    }
    for (int column = 0; column < columns; ++column) {
      const unsigned lane = row % 8 * 4 + static_cast<unsigned>(column % 8 / 2);
      sums[lane][column / 8 * 4 + static_cast<int>(row / 8) * 2 + column % 2] += products[column];
    }
  }
}

// Rows of 128 bytes in groups of eight, whose chunks of 16 bytes are swizzled by the row's address.
void load_b(Block& block, std::uint64_t descriptor, int columns, Operands& operands) {
  Machine& m = machine();
  constexpr std::uint64_t kSwizzle128 = 1;
  const auto start = static_cast<std::uint32_t>(descriptor & 0x3FFF) << 4;
  const auto group_bytes = static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFF) << 4;
  if (descriptor >> 62 != kSwizzle128 || (descriptor >> 49 & 7) != 0) {
    m.fatal("a descriptor of another layout");
  }
  for (int column = 0; column < columns; ++column) {
    for (int first = 0; first < kDepth; first += 8) {
      const auto row = static_cast<std::uint32_t>(column);
      std::uint32_t address =
          start + row / 8 * group_bytes + row % 8 * 128 + static_cast<std::uint32_t>(first) * 2;
      address ^= (address >> 7 & 7) << 4;
      std::uint16_t chunk[8];
      std::memcpy(chunk, m.at(block, address, sizeof(chunk), sizeof(chunk)), sizeof(chunk));
      for (int i = 0; i < 8; ++i)
        operands.b[first + i][column] = widen_f16(chunk[i]);
    }
  }
}

void run_product(Block& block, Warp& warp) {
  static Operands operands;
  const Product& product = warp.products.front();
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (std::memcmp(product.a[lane], product.a_at_issue[lane], sizeof(product.a_at_issue[lane])) !=
        0) {
      machine().fault("registers of A change while a product is under way");
    }
    widen_a(product.a[lane], lane, operands);
  }
  load_b(block, product.descriptor, product.columns, operands);
  multiply(operands, product.columns, product.sums);
  warp.products.pop_front();
  ++warp.products_done;
  machine().wake(warp.waiting);
}

// Whether all lanes have come to the product, counted from the warp's first.
bool is_issued(const Warp& warp, std::uint64_t product) {
  if (product < warp.products_done) return true;
  const std::uint64_t at = product - warp.products_done;
  return at < warp.products.size() && warp.products[at].lanes == kWarpLanes;
}

bool is_ready(const Block& block, std::size_t index) {
  const Warp& warp = block.warps[index];
  if (warp.products.empty() || warp.products.front().lanes != kWarpLanes) return false;
  if (!machine().mood().warpgroup_together) return true;
  const std::size_t first = index / kWarpgroupWarps * kWarpgroupWarps;
  for (std::size_t i = first; i < first + kWarpgroupWarps; ++i) {
    if (!is_issued(block.warps[i], warp.products_done)) return false;
  }
  return true;
}

}  // namespace

float widen_f16(std::uint16_t bits) {
  static const std::vector<float> values = [] {
    std::vector<float> all(1 << 16);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = numerics::f16_to_f32(static_cast<std::uint16_t>(i));
    return all;
  }();
  return values[bits];
}

void warp_multiply(float* sums, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  Machine& m = machine();
  Warp& warp = m.warp();
  const unsigned me = m.lane();
  warp.sums[me] = sums;
  warp.a[me] = a;
  warp.b[me][0] = b0;
  warp.b[me][1] = b1;
  m.by_warp("mma", [&] {
    static Operands operands;
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      widen_a(warp.a[lane], lane, operands);
      for (unsigned i = 0; i < 4; ++i) {
        const auto half = static_cast<std::uint16_t>(warp.b[lane][i / 2] >> (i % 2 * 16));
        operands.b[2 * (lane % 4) + 8 * (i / 2) + i % 2][lane / 4] = widen_f16(half);
      }
    }
    multiply(operands, 8, warp.sums);
  });
}

const std::uint32_t* warp_load_matrices(std::uint32_t address) {
  Machine& m = machine();
  Warp& warp = m.warp();
  const unsigned me = m.lane();
  m.at(m.block(), address, 16, 16);
  warp.given[me] = address;
  m.by_warp("ldmatrix", [&] {
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      for (unsigned matrix = 0; matrix < 4; ++matrix) {
        const auto row = static_cast<std::uint32_t>(warp.given[8 * matrix + lane / 4]);
        std::memcpy(&warp.words[lane][matrix], m.at(m.block(), row, 16, 16) + lane % 4 * 4, 4);
      }
    }
  });
  return warp.words[me];
}

void products_fence() {
  machine().thread().products_fenced = true;
  machine().step();
}

void product_issue(float* sums, const std::uint32_t* a, std::uint64_t descriptor, int columns) {
  Machine& m = machine();
  Thread& thread = m.thread();
  Warp& warp = m.warp();
  if (!thread.products_fenced) m.fault("a product without a fence before it");
  const std::uint64_t at = thread.products_issued++ - warp.products_done;
  if (at >= kMostProducts) m.fatal("too many products under way");
  if (at == warp.products.size()) {
    warp.products.emplace_back();
    warp.products.back().columns = columns;
    warp.products.back().descriptor = descriptor;
  }
  Product& product = warp.products[at];
  if (product.columns != columns || product.descriptor != descriptor) {
    m.fatal("lanes of a warp differ in a product");
  }
  const unsigned me = m.lane();
  product.sums[me] = sums;
  product.a[me] = a;
  std::memcpy(product.a_at_issue[me], a, sizeof(product.a_at_issue[me]));
  ++product.lanes;
  m.step();
}

void products_commit() {
  Thread& thread = machine().thread();
  thread.product_groups.push_back(thread.products_issued);
  thread.products_fenced = false;
  machine().step();
}

void products_wait(std::size_t pending) {
  Machine& m = machine();
  m.step();
  const auto& groups = m.thread().product_groups;
  if (groups.size() <= pending) return;
  const std::uint64_t wanted = groups[groups.size() - 1 - pending];
  Warp& warp = m.warp();
  while (warp.products_done < wanted)
    m.wait(warp.waiting, "product", wanted);
}

bool advance_products(Block& block) {
  Machine& m = machine();
  const std::size_t first = m.below(block.warps.size());
  for (std::size_t i = 0; i < block.warps.size(); ++i) {
    const std::size_t index = (first + i) % block.warps.size();
    if (!is_ready(block, index)) continue;
    for (std::uint32_t n = 1 + m.below(4); n != 0 && is_ready(block, index); --n)
      run_product(block, block.warps[index]);
    return true;
  }
  return false;
}

}  // namespace memra::emulation
