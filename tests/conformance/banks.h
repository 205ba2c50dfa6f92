// Banks of slabs for the tests of the weight conversions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "conformance/buffer.h"
#include "memra.h"
#include "reference/formats.h"
#include "reference/generate.h"

namespace memra::test {

// Slabs `stride` bytes apart (0: packed), the gaps 0xFF; ends with the last slab.
Bytes bank_bytes(std::span<const reference::Slab> slabs, std::int64_t stride);

// Random slabs; with `invalid`, scale codes that are none in zero and in other blocks.
std::vector<reference::Slab> random_slabs(std::uint64_t seed, reference::Format format,
                                          std::int64_t n_experts, std::int64_t rows,
                                          std::int64_t cols, bool invalid = false);

// A part of a matrix as the ABI and as the reference take it; zero counts mean the rest.
struct Part {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t col = 0;
  std::int64_t cols = 0;

  memra_slice slice() const { return {row, rows, col, cols}; }
  Part resolved(std::int64_t of_rows, std::int64_t of_cols) const;
};
// The whole, halves, and pieces that begin inside a tile of V2.
std::vector<Part> parts_of(std::int64_t rows, std::int64_t cols);

// Those parts of the slabs in `format`; counts the invalid scales in them, with the places in the
// source.
std::vector<reference::Slab> convert_part(std::span<const reference::Slab> slabs, const Part& part,
                                          reference::Format format,
                                          reference::InvalidScales* invalid);

// A report in device memory, poisoned.
class Report {
 public:
  explicit Report(Engine& engine)
      : buffer_(engine, static_cast<std::int64_t>(sizeof(memra_weight_report))) {}
  memra_weight_report* get() const { return buffer_.as<memra_weight_report>(); }
  ::testing::AssertionResult check(const reference::InvalidScales& invalid,
                                   std::uint64_t non_finite = 0) const;

 private:
  Buffer buffer_;
};

Bytes read_data(const char* name);  // a file of tests/data

}  // namespace memra::test
