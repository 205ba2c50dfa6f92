// The NVFP4 layouts: written out a second time from the format, and as permutations.
#include "numerics/nvfp4_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "numerics/quantize_nvfp4.h"

namespace memra::numerics {
namespace {

// The border where a 32-bit row * stride would wrap, and beyond where byte offsets do too.
static_assert(slab_bytes(131072, 16384) == 1207959552);
static_assert(LayoutV1::code_place(131071, 16384, 131070, 16383).byte == 131071LL * 9216 - 1);
static_assert(LayoutV1::code_place(131072, 16384, 131071, 16383).byte == 131072LL * 9216 - 1);
static_assert(LayoutV1::scale_byte(131072, 16384, 131071, 1023) == 131072LL * 9216 - 33);
static_assert(LayoutV2::code_place(131072, 16384, 131071, 16383).byte == 131072LL * 8192 - 1);
static_assert(LayoutV2::scale_byte(131072, 16384, 131071, 1023) == 131072LL * 9216 - 1);
static_assert(LayoutV2::row_block_scales(131072, 16384, 16383) == 131072LL * 9216 - 8 * 1024);
static_assert(LayoutV1::code_place(1048576, 16384, 1048575, 16383).byte == 9663676415);
static_assert(LayoutV2::code_place(1048576, 16384, 1048575, 16383).byte == 8589934591);
static_assert(LayoutV2::scale_byte(1048576, 16384, 1048575, 1023) == 9663676415);
static_assert(LayoutV2::group_codes(1048576, 16384, 1048575, 511) == 8589934591 - 15);
static_assert(slab_bytes(kMaxDim - 7, kMaxDim - 63) > 0);

static_assert(slab_dims_legal(131072, 16384) && slab_dims_legal(8, 64) &&
              slab_dims_legal(1856, 2688));
static_assert(!rows_legal(0) && !rows_legal(-8) && !rows_legal(131071) && !rows_legal(12));
static_assert(!columns_legal(0) && !columns_legal(-64) && !columns_legal(232) &&
              !columns_legal(96));
static_assert(!rows_legal(kMaxDim + 1) && !columns_legal(kMaxDim + 1));
static_assert(slice_legal(64, 256, 0, 64, 0, 256) && slice_legal(64, 256, 56, 8, 192, 64));
static_assert(!slice_legal(64, 256, 4, 8, 0, 64) && !slice_legal(64, 256, 0, 8, 32, 64));
static_assert(!slice_legal(64, 256, 0, 4, 0, 64) && !slice_legal(64, 256, 0, 8, 0, 32));
static_assert(!slice_legal(64, 256, 64, 8, 0, 64) && !slice_legal(64, 256, 0, 8, 256, 64));
static_assert(!slice_legal(64, 256, -8, 8, 0, 64) && !slice_legal(64, 256, 0, 72, 0, 64));
static_assert(LayoutV1::expert_stride(8, 64) == 288 && LayoutV2::expert_stride(8, 64) == 288);
static_assert(LayoutV2::tile_groups(192, 0) == 4 && LayoutV2::tile_groups(192, 1) == 2);
static_assert(LayoutV2::tiles(64) == 1 && LayoutV2::tiles(128) == 1 && LayoutV2::tiles(192) == 2);

struct Place {
  std::int64_t byte;
  int shift;
};

struct Written {
  Place code;
  std::int64_t scale;
};

// The format's text, V1.
Written written_v1(std::int64_t, std::int64_t in, std::int64_t row, std::int64_t column) {
  const std::int64_t block = row * (in / 64) + column / 64;
  const std::int64_t j = column % 64;
  const std::int64_t s = j / 16;
  const std::int64_t w = j % 16;
  return {{block * 36 + 4 + 8 * s + w % 8, w < 8 ? 0 : 4}, block * 36 + s};
}

// The format's text, V2.
Written written_v2(std::int64_t rows, std::int64_t in, std::int64_t row, std::int64_t column) {
  const std::int64_t c = column / 128;
  const std::int64_t group = column / 32;
  const std::int64_t w = column % 16;
  const bool half_tile = c * 128 + 64 == in;
  const std::int64_t wide = half_tile ? 2 : 4;
  std::int64_t code = row / 8 * 4 * in + c * 512;
  code += row % 8 * wide * 16 + group % wide * 16;
  code += column % 32 / 16 * 8 + w % 8;
  std::int64_t scale = rows * in / 2 + row / 8 * (in / 2) + c * 64;
  scale += row % 8 * wide * 2 + group % wide * 2 + column % 32 / 16;
  return {{code, w < 8 ? 0 : 4}, scale};
}

class Columns : public ::testing::TestWithParam<std::int64_t> {};

template <class Layout, class Text>
void check_layout(std::int64_t rows, std::int64_t in, Text text) {
  const std::int64_t bytes = slab_bytes(rows, in);
  ASSERT_EQ(bytes, rows * in / 64 * 36);
  std::vector<std::uint8_t> covered(static_cast<std::size_t>(bytes), 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < in; ++column) {
      const CodePlace place = Layout::code_place(rows, in, row, column);
      const std::int64_t scale = Layout::scale_byte(rows, in, row, column / 16);
      const Written want = text(rows, in, row, column);
      ASSERT_EQ(place.byte, want.code.byte) << row << " " << column;
      ASSERT_EQ(place.shift, want.code.shift) << row << " " << column;
      ASSERT_EQ(scale, want.scale) << row << " " << column;
      ASSERT_TRUE(place.byte >= 0 && place.byte < bytes && scale >= 0 && scale < bytes);
      std::uint8_t& codes = covered[static_cast<std::size_t>(place.byte)];
      const auto mask = static_cast<std::uint8_t>(0xF << place.shift);
      ASSERT_EQ(codes & mask, 0) << "a nibble taken twice";
      codes |= mask;
      if (column % 16 == 0) {
        std::uint8_t& byte = covered[static_cast<std::size_t>(scale)];
        ASSERT_EQ(byte, 0) << "a byte taken twice";
        byte = 0xFF;
      }
      if (column % 32 == 0) {
        const std::int64_t group = column / 32;
        const std::int64_t group_codes = Layout::group_codes(rows, in, row, group);
        ASSERT_EQ(group_codes, place.byte);
        ASSERT_EQ(group_codes % Layout::kSlabAlignment, 0);
        ASSERT_EQ(Layout::group_scales(rows, in, row, group), scale);
        ASSERT_EQ(scale % 2, 0);
      }
    }
  }
  for (const std::uint8_t byte : covered)
    ASSERT_EQ(byte, 0xFF);
}

TEST_P(Columns, V1IsAPermutation) {
  check_layout<LayoutV1>(24, GetParam(), written_v1);
}
TEST_P(Columns, V2IsAPermutation) {
  check_layout<LayoutV2>(24, GetParam(), written_v2);
}

TEST_P(Columns, EightRowsOfV2AreOneRunAndALaneOwnsItsSlot) {
  const std::int64_t in = GetParam();
  const std::int64_t rows = 16;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t codes = LayoutV2::row_block_codes(in, row / 8);
    const std::int64_t scales = LayoutV2::row_block_scales(rows, in, row / 8);
    for (std::int64_t group = 0; group < in / 32; ++group) {
      const std::int64_t at = LayoutV2::group_codes(rows, in, row, group);
      ASSERT_TRUE(at >= codes && at + 16 <= codes + 4 * in);
      const std::int64_t scale_at = LayoutV2::group_scales(rows, in, row, group);
      ASSERT_TRUE(scale_at >= scales && scale_at + 2 <= scales + in / 2);
      if (LayoutV2::tile_groups(in, group / 4) == 4) {
        const std::int64_t lane = 4 * (row % 8) + group % 4;
        ASSERT_EQ(at, codes + group / 4 * 512 + 16 * lane);
        ASSERT_EQ(scale_at, scales + group / 4 * 64 + 2 * lane);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Numerics, Columns, ::testing::Values(64, 128, 192, 640, 1408, 2880, 4096));

std::vector<std::uint8_t> read_file(const std::string& name) {
  std::ifstream file(std::string(MEMRA_TEST_DATA_DIR) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <class Layout>
std::vector<float> decode(const std::vector<std::uint8_t>& slab, std::int64_t rows,
                          std::int64_t in) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < in; ++column) {
      const CodePlace place = Layout::code_place(rows, in, row, column);
      const std::uint32_t code = slab[static_cast<std::size_t>(place.byte)] >> place.shift & 15u;
      const auto scale = static_cast<std::size_t>(Layout::scale_byte(rows, in, row, column / 16));
      values.push_back(dequantize_value(code, ue4m3_decode(slab[scale]), 1.0f));
    }
  }
  return values;
}

TEST(Nvfp4Blocks, DecodeToTheBitsOfAnotherLibraryFromBothLayouts) {
  const std::int64_t rows = 256;
  const std::int64_t in = 256;
  const std::vector<std::uint8_t> v1 = read_file("nvfp4_blocks.bin");
  const std::vector<std::uint8_t> want = read_file("nvfp4_dequant.f32");
  ASSERT_EQ(v1.size(), 36864u);
  ASSERT_EQ(want.size(), 262144u);
  ASSERT_EQ(slab_bytes(rows, in), 36864);

  std::vector<std::uint8_t> v2(v1.size(), 0xFF);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t group = 0; group < in / 32; ++group) {
      std::memcpy(&v2[static_cast<std::size_t>(LayoutV2::group_codes(rows, in, row, group))],
                  &v1[static_cast<std::size_t>(LayoutV1::group_codes(rows, in, row, group))], 16);
      std::memcpy(&v2[static_cast<std::size_t>(LayoutV2::group_scales(rows, in, row, group))],
                  &v1[static_cast<std::size_t>(LayoutV1::group_scales(rows, in, row, group))], 2);
    }
  }
  ASSERT_NE(v1, v2);

  const std::vector<float> from_v1 = decode<LayoutV1>(v1, rows, in);
  const std::vector<float> from_v2 = decode<LayoutV2>(v2, rows, in);
  EXPECT_EQ(std::memcmp(from_v1.data(), want.data(), want.size()), 0);
  EXPECT_EQ(std::memcmp(from_v2.data(), want.data(), want.size()), 0);
}

}  // namespace
}  // namespace memra::numerics
