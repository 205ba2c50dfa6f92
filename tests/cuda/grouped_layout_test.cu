// The order of f16 activations against the weights that meet them. No GPU is needed.
#include "grouped_layout.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "numerics/nvfp4_layout.h"

namespace memra::cuda {
namespace {

constexpr int64_t kWidths[] = {64, 128, 192, 640, 704, 1856, 2688, 4096, 4160};

TEST(GroupedLayout, PositionsAreAllColumns) {
  for (const int64_t columns : kWidths) {
    std::vector<bool> seen(static_cast<size_t>(columns), false);
    for (int64_t position = 0; position < columns; ++position) {
      const int64_t column = column_at(columns, position);
      ASSERT_TRUE(column >= 0 && column < columns) << columns << ", " << position;
      ASSERT_EQ(column / kBlockColumns, position / kBlockColumns);
      ASSERT_FALSE(seen[static_cast<size_t>(column)]) << columns << ", " << position;
      seen[static_cast<size_t>(column)] = true;
    }
  }
}

TEST(GroupedLayout, IndicesAreAllOfZ) {
  for (const int64_t columns : {64, 192, 640}) {
    for (const int64_t rows : {1, 7, 8, 13}) {
      std::vector<bool> seen(static_cast<size_t>(rows * columns), false);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t position = 0; position < columns; ++position) {
          const int64_t index = z_index(rows, row, position);
          ASSERT_TRUE(index >= 0 && index < rows * columns);
          ASSERT_FALSE(seen[static_cast<size_t>(index)]) << row << ", " << position;
          seen[static_cast<size_t>(index)] = true;
        }
      }
    }
  }
}

// What shared memory does with rows of 128 bytes: bits 4 to 6 of an address are mixed with 7 to 9.
TEST(GroupedLayout, ChunksLieAsSwizzledRowsDo) {
  constexpr int64_t kRows = 24;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t position = 0; position < kSlabColumns; ++position) {
      const int64_t plain = (row * kSlabColumns + position) * 2;
      EXPECT_EQ(z_index(kRows, row, position) * 2, plain ^ ((plain >> 7 & 7) << 4));
    }
  }
}

// A block, and one whose second half is missing, as they are.
TEST(GroupedLayout, KnownOrder) {
  const int64_t first[] = {0, 2, 32, 34, 64, 66, 96, 98, 1, 3, 33, 35, 65, 67, 97, 99};
  const int64_t lone[] = {0, 2, 16, 18, 32, 34, 48, 50, 1, 3, 17, 19, 33, 35, 49, 51};
  // Steps take high nibbles after low ones, and then the next word's.
  const int64_t steps[] = {0, 8, 4, 12};
  for (int64_t i = 0; i < kStepColumns; ++i) {
    for (int64_t step = 0; step < kSlabSteps; ++step) {
      const int64_t at = step * kStepColumns + i;
      EXPECT_EQ(column_at(192, at), first[i] + steps[step]);
      EXPECT_EQ(column_at(192, 64 + at), first[i] + 16 + steps[step]);
      EXPECT_EQ(column_at(192, 128 + at), 128 + lone[i] + steps[step]);
    }
  }
}

// The k of a column, from the weights' side. Thread t of a quad holds in its registers, as an A
// fragment of 16 columns has them, the values of k = 2t, 2t + 1, 2t + 8 and 2t + 9. They come from
// four bytes of its codes in the slab's block, one nibble of each.
TEST(GroupedLayout, StepsTakeTheCodesOfTheirThread) {
  using Layout = numerics::LayoutV2;
  constexpr int64_t kRows = 8;
  for (const int64_t columns : kWidths) {
    for (int64_t slab = 0; slab < n_slabs(columns); ++slab) {
      const int64_t block = slab / 2 * kBlockColumns;
      // Codes of a row in its tile, shared out among the threads of a quad.
      const bool lone = columns - block < kBlockColumns;
      const int64_t thread_bytes = lone ? 8 : 16;
      for (int64_t row = 0; row < kRows; ++row) {
        const int64_t tile = Layout::group_codes(kRows, columns, row, block / 32);
        for (int step = 0; step < kSlabSteps; ++step) {
          const int64_t word = (lone ? 0 : 2 * (slab % 2)) + step / 2;
          for (int t = 0; t < 4; ++t) {
            const int ks[4] = {2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9};
            // Of a word's bytes, with the nibbles of 0 and 2 decoding together, and of 1 and 3.
            const int bytes[4] = {0, 2, 1, 3};
            for (int i = 0; i < 4; ++i) {
              const int64_t column =
                  column_at(columns, slab * kSlabColumns + step * kStepColumns + ks[i]);
              const numerics::CodePlace place = Layout::code_place(kRows, columns, row, column);
              EXPECT_EQ(place.byte, tile + t * thread_bytes + word * 4 + bytes[i])
                  << columns << ", slab " << slab << ", step " << step << ", thread " << t;
              EXPECT_EQ(place.shift, step % 2 * 4);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace memra::cuda
