// The host's half of the grouped products: tiles, fragments of weights, packed outputs, exponents
// and the workspace. No GPU is needed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "grouped_activation.cuh"
#include "grouped_boxes.cuh"
#include "grouped_fragment.cuh"
#include "grouped_kernels.h"
#include "grouped_layout.cuh"
#include "grouped_pairs.cuh"
#include "grouped_tiles.cuh"
#include "grouped_workspace.h"
#include "memra.h"
#include "numerics/nvfp4_layout.h"

namespace memra::cuda {
namespace {

// ---- Tiles

TEST(GroupedTiles, CutsCoverRowsWithNeighbouringWidths) {
  for (const int32_t max_units : {4, 8, 15, 16}) {
    for (int32_t rows = 0; rows <= 3000; ++rows) {
      const TileCut cut = cut_rows(rows, max_units);
      int32_t next = 0, tiles = 0;
      for (int32_t units = max_units; units > 0; --units) {
        const TileRun run = tiles_of_width(cut, units);
        for (int32_t i = run.first; i < run.first + run.count; ++i) {
          ASSERT_EQ(first_row(cut, i), next) << rows;
          next += kTileUnit * units;
          ++tiles;
        }
      }
      ASSERT_EQ(tiles, cut.tiles) << rows << " rows, at most " << max_units;
      ASSERT_GE(next, rows);
      ASSERT_LT(next - rows, kTileUnit) << "a column of zeroes too many";
      ASSERT_LE(static_cast<int64_t>(cut.tiles), most_tiles(rows, 1, max_units));
    }
  }
}

TEST(GroupedTiles, ListsHaveRoom) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto experts = static_cast<int32_t>(1 + random() % 300);
    int64_t rows = 0;
    std::vector<int32_t> counts(static_cast<size_t>(experts));
    for (int32_t& count : counts) {
      count = static_cast<int32_t>(random() % 4 == 0 ? random() % 1000 : random() % 3);
      rows += count;
    }
    for (const int32_t max_units : {4, 8, 15, 16}) {
      int64_t tiles = 0;
      for (const int32_t count : counts)
        tiles += cut_rows(count, max_units).tiles;
      ASSERT_LE(tiles, most_tiles(rows, experts, max_units));
    }
  }
}

TEST(GroupedTiles, PlansHaveRoomAndRise) {
  for (int64_t rows = 1; rows < 20000; rows += 1 + rows / 40) {
    uint64_t last = 0;
    for (int64_t experts = 1; experts < 2000; experts += 1 + experts / 40) {
      const uint64_t bytes = tile_plans_bytes(rows, experts);
      ASSERT_GE(bytes, last) << rows << " rows of " << experts << " experts";
      last = bytes;
      ASSERT_GE(tile_plans_bytes(rows + 1, experts), bytes) << rows << ", " << experts;
      ASSERT_GE(bytes, tile_list_bytes(rows, experts, kNarrowTileUnits));
      ASSERT_GE(bytes, tile_list_bytes(rows, experts, kMmaTileUnits));
      if (rows <= kNarrowRows * experts) continue;
      ASSERT_GE(bytes,
                wide_list_bytes(rows, experts) + tile_list_bytes(rows, experts, kWidePlaneUnits));
    }
  }
}

TEST(GroupedTiles, WordsKeepWhatTheyAreGiven) {
  for (const int64_t row : {int64_t{0}, int64_t{12345}, int64_t{MEMRA_GROUPED_MAX_PAIRS} - 1}) {
    for (const int32_t expert : {0, 77, MEMRA_MAX_DIMENSION}) {
      for (int32_t units = 1; units <= kMaxTileUnits; ++units) {
        for (const int32_t count : {8 * units - 7, 8 * units}) {
          const RowTile tile = RowTile::of(row, expert, count, units);
          ASSERT_EQ(tile.row(), row);
          ASSERT_EQ(tile.expert(), expert);
          ASSERT_EQ(tile.count(), count);
          ASSERT_EQ(tile.units(), units);
        }
      }
    }
  }
  EXPECT_EQ(listed_expert(-1, 8), 8);
  EXPECT_EQ(listed_expert(8, 8), 8);
  EXPECT_EQ(listed_expert(7, 8), 7);
}

// ---- Fragments

// Which nibble of its four words in a block a lane meets position p of a slab with.
struct Nibble {
  int word, byte, shift;
};
Nibble nibble_of(int h, bool half, int position) {
  const int step = position / 16, k = position % 16;
  const int bytes[4] = {0, 2, 1, 3};
  return {(half ? 0 : 2 * h) + step / 2, bytes[(k & 1) + 2 * (k >> 3)], step % 2 * 4};
}

template <class Fragment, class Layout, class Rows>
void expect_lanes_meet_their_codes() {
  constexpr int64_t kRows = 48;
  for (const int64_t columns : {64, 128, 192, 640, 2880}) {
    for (const int64_t begin : {int64_t{0}, int64_t{16}, int64_t{32}}) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int other = 0; other < 2; ++other) {
          const int t = lane % 4;
          const int64_t row = begin + Rows::row(lane / 4) + other * Rows::kDistance;
          for (int64_t slab = 0; slab < n_slabs(columns); ++slab) {
            const bool half = is_lone_slab(columns, slab);
            const auto block = static_cast<uint32_t>(slab / 2);
            const LaneOffsets own = Fragment::lane(columns, static_cast<int>(row - begin), t, half);
            const int64_t codes =
                Fragment::codes(columns, begin) + block * Fragment::kCodeStep + own.codes;
            const int64_t scales = Fragment::scales(kRows, columns, 0) +
                                   Fragment::scale_rows(columns, begin) +
                                   block * Fragment::kScaleStep + own.scales;
            const int h = static_cast<int>(slab % 2);
            for (int i = 0; i < 16; ++i) {  // the positions of this lane, four a step
              const int in_step = 2 * t + (i & 1) + 8 * (i >> 1 & 1);
              const int position = 16 * (i / 4) + in_step;
              const Nibble nibble = nibble_of(h, half, position);
              const int64_t column = column_at(columns, slab * kSlabColumns + position);
              const numerics::CodePlace place = Layout::code_place(kRows, columns, row, column);
              ASSERT_EQ(codes + 4 * nibble.word + nibble.byte, place.byte)
                  << "row " << row << ", column " << column << " of " << columns;
              ASSERT_EQ(nibble.shift, place.shift);
              ASSERT_EQ(scales + scale_byte(t, h, half),
                        Layout::scale_byte(kRows, columns, row, column / numerics::kScaleBlock));
            }
          }
        }
      }
    }
  }
}

TEST(GroupedFragment, LanesMeetTheirCodes) {
  expect_lanes_meet_their_codes<FragmentV2, numerics::LayoutV2, AdjacentRows>();
  expect_lanes_meet_their_codes<FragmentV2, numerics::LayoutV2, ActivationRows>();
  expect_lanes_meet_their_codes<FragmentV1, numerics::LayoutV1, AdjacentRows>();
  expect_lanes_meet_their_codes<FragmentV1, numerics::LayoutV1, ActivationRows>();
}

// Rows of a warp are 16 different ones; 4-byte copies and 16-byte copies stay aligned.
template <class Fragment, class Rows>
void expect_sound_fragment() {
  uint32_t rows = 0;
  for (int g = 0; g < 8; ++g)
    rows |= 1u << Rows::row(g) | 1u << (Rows::row(g) + Rows::kDistance);
  EXPECT_EQ(rows, 0xFFFFu);
  for (const int64_t columns : {64, 128, 192, 640}) {
    for (int lane = 0; lane < 32; ++lane) {
      for (const bool half : {false, true}) {
        const LaneOffsets own = Fragment::lane(columns, Rows::row(lane / 4), lane % 4, half);
        EXPECT_EQ(own.codes % (Fragment::kStrips ? (half ? 8 : 16) : 4), 0u);
        EXPECT_EQ(own.scales % 4, 0u);
      }
    }
  }
}

TEST(GroupedFragment, RowsAndAlignment) {
  expect_sound_fragment<FragmentV2, AdjacentRows>();
  expect_sound_fragment<FragmentV2, ActivationRows>();
  expect_sound_fragment<FragmentV1, AdjacentRows>();
  expect_sound_fragment<FragmentV1, ActivationRows>();
}

// As the copy engine puts a strip's runs: lines of 128 bytes, whose chunks of 16 trade places.
TEST(GroupedFragment, StripsLieAsTheyAreCopied) {
  for (const int64_t columns : {64, 128, 192, 640}) {
    for (const bool half : {false, true}) {
      for (int row = 0; row < kSetRows; ++row) {
        for (int t = 0; t < 4; ++t) {
          const auto strip = static_cast<uint32_t>(row / 8);
          const LaneOffsets own = FragmentV2::lane(columns, row, t, half);
          const LaneOffsets begin = FragmentV2::lane(columns, row / 8 * 8, 0, half);
          const uint32_t at = own.codes - begin.codes, line = 4 * strip + at / 128;
          EXPECT_EQ(WeightSet::codes(row, t, half),
                    128 * line + (at / 16 % 8 ^ line % 8) * 16 + at % 16);
          EXPECT_EQ(WeightSet::scales(row, t, half), WeightSet::kCodes + 64 * strip + own.scales -
                                                         begin.scales + scale_byte(t, 0, half));
        }
      }
    }
  }
}

// A row of NVFP4_V1 lies as it does in memory, and its box covers what the fragment reads.
TEST(GroupedFragment, RowsLieAsTheyAreCopied) {
  for (int row = 0; row < kSetRows; ++row) {
    for (int t = 0; t < 4; ++t) {
      const LaneOffsets own = FragmentV1::lane(kRowSetColumns, 0, t, false);
      const uint32_t begin = static_cast<uint32_t>(row * RowSet::kRowBytes);
      EXPECT_EQ(RowSet::codes(row, t, false), begin + own.codes);
      EXPECT_EQ(RowSet::scales(row, t, false), begin + own.scales + scale_byte(t, 0, false));
      EXPECT_EQ(scale_byte(t, 1, false), scale_byte(t, 0, false) + 1);
      EXPECT_LE(own.codes + 16, static_cast<uint32_t>(RowSet::kOwnBytes));
    }
  }
  static_assert(RowSet::kOwnBytes == FragmentV1::kCodeStep);
  for (int block = 0; block < 8; ++block) {
    const int begin = block * RowSet::kOwnBytes - static_cast<int>(RowSet::shift(block));
    EXPECT_EQ(begin % TensorShape::kChunkBytes, 0);
    EXPECT_LE(begin + RowSet::kRowBytes, 8 * RowSet::kOwnBytes);
    EXPECT_LE(RowSet::shift(block) + RowSet::kOwnBytes, static_cast<uint32_t>(RowSet::kRowBytes));
  }
}

// A lane finds its other row by the bits in which it differs from row 0.
template <class Rows>
void expect_other_rows() {
  for (const bool half : {false, true}) {
    for (int lane = 0; lane < 32; ++lane) {
      const int row = 16 + Rows::row(lane / 4), t = lane % 4;
      EXPECT_EQ(WeightSet::codes(row + Rows::kDistance, t, half),
                WeightSet::codes(row, t, half) ^ WeightSet::codes(Rows::kDistance, 0, half));
      EXPECT_EQ(WeightSet::scales(row + Rows::kDistance, t, half) - WeightSet::scales(row, t, half),
                WeightSet::scales(Rows::kDistance, 0, half) - WeightSet::kCodes);
    }
  }
}

TEST(GroupedFragment, LanesFindTheirOtherRow) {
  expect_other_rows<AdjacentRows>();
  expect_other_rows<ActivationRows>();
}

// An address is the sum of its coordinates, each under its own stride.
TEST(GroupedStrips, CoordinatesMakeTheAddress) {
  using Address = AddressCoordinates;
  for (const uint64_t address : {0x10ull, 0x7FFFFFFF0ull, 0x800000000ull, 0x7FC226000040ull,
                                 0xFFFFFFFFFFF0ull, 0x1FFFFFFFFFFFFF0ull}) {
    const Address at = Address::of(reinterpret_cast<const void*>(address));
    ASSERT_GE(at.low, 0);
    ASSERT_GE(at.high, 0);
    EXPECT_LT(static_cast<uint64_t>(at.low), Address::kLowExtent);
    EXPECT_LT(static_cast<uint64_t>(at.high), Address::kHighExtent);
    EXPECT_EQ(static_cast<uint64_t>(at.low) * Address::kLowStride +
                  static_cast<uint64_t>(at.high) * Address::kHighStride,
              address);
  }
}

// The lanes that shared memory serves at once, eight of 16 bytes or 32 of 4, meet different banks.
template <class Rows>
void expect_no_bank_conflicts() {
  for (int first = 0; first < 32; first += 8) {
    std::set<uint32_t> places;
    for (int lane = first; lane < first + 8; ++lane)
      places.insert(WeightSet::codes(Rows::row(lane / 4), lane % 4, false) % 128);
    EXPECT_EQ(places.size(), 8u);
  }
  std::map<uint32_t, uint32_t> words;  // by bank
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t at = WeightSet::scales(Rows::row(lane / 4), lane % 4, false) / 4 * 4;
    const auto [place, is_new] = words.emplace(at % 128, at);
    EXPECT_TRUE(is_new || place->second == at);
  }
}

TEST(GroupedFragment, LanesMeetDifferentBanks) {
  expect_no_bank_conflicts<AdjacentRows>();
  expect_no_bank_conflicts<ActivationRows>();
}

// Chunk g of a slab of the next product has the outputs of fragment number g, in the order of k.
TEST(GroupedFragment, OutputsLieAsTheNextProductWantsThem) {
  for (const bool lone : {false, true}) {
    const int64_t columns = lone ? 64 : 128;
    for (int64_t slab = 0; slab < n_slabs(columns); ++slab) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        // As warp_row() (grouped_shared.cuh): of a whole set halves of every 32 rows.
        const int64_t first = lone ? 16 * quarter : 32 * quarter + 16 * slab;
        for (int g = 0; g < 8; ++g) {
          for (int other = 0; other < 2; ++other) {
            EXPECT_EQ(
                column_at(columns, slab * kSlabColumns + g * kChunkColumns + 2 * quarter + other),
                first + ActivationRows::row(g) + other * ActivationRows::kDistance)
                << "quarter " << quarter << ", g " << g;
          }
        }
      }
    }
  }
}

// ---- Packed outputs

constexpr float kLargestPacked = 3.39e38f;

void expect_pair(float first, float second) {
  if (!(std::fabs(first) <= kLargestPacked) || !(std::fabs(second) <= kLargestPacked)) return;
  const OutputPair pair = unpack_outputs(pack_outputs(first, second));
  const float largest = std::max(std::fabs(first), std::fabs(second));
  // Half of 2^-10 of the larger one's binade, or of the next one that it is nearly in.
  const float bound = largest * 0x1p-10f + 0x1p-125f;
  EXPECT_LE(std::fabs(pair.first - first), bound) << first << ", " << second;
  EXPECT_LE(std::fabs(pair.second - second), bound) << first << ", " << second;
}

TEST(GroupedPairs, StayWithinTheirBound) {
  std::mt19937 random(11);
  for (int i = 0; i < 2'000'000; ++i) {
    const float first = numerics::bits_float(random()), second = numerics::bits_float(random());
    expect_pair(first, second);
    expect_pair(first, first * 0.37f);
  }
  for (const float value :
       {0.0f, 1.0f, 65504.0f, 65536.0f, 1e30f, kLargestPacked, 0x1p-126f, 0x1p-149f}) {
    expect_pair(value, -value);
    expect_pair(-value, 0.0f);
    expect_pair(0.0f, value);
  }
  const OutputPair zero = unpack_outputs(pack_outputs(0.0f, -0.0f));
  EXPECT_EQ(zero.first, 0.0f);
  EXPECT_EQ(zero.second, 0.0f);
}

TEST(GroupedPairs, ErrorIsThatOfElevenBits) {
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  double error = 0, total = 0;
  for (int i = 0; i < 200'000; ++i) {
    const float a = normal(random), b = normal(random);
    const OutputPair pair = unpack_outputs(pack_outputs(a, b));
    error += std::pow(pair.first - a, 2.0) + std::pow(pair.second - b, 2.0);
    total += std::pow(a, 2.0) + std::pow(b, 2.0);
  }
  EXPECT_LT(std::sqrt(error / total), 3e-4);
}

// ---- Exponents of activations

TEST(GroupedActivation, GridKeepsMagnitudesInF16) {
  for (uint32_t field = 0; field < 255; ++field) {
    for (const uint32_t mantissa : {0u, 1u, 0x7FFFFFu}) {
      const uint32_t amax = field << 23 | mantissa;
      if (amax == 0) continue;
      const int32_t exponent = grid_exponent(amax);
      ASSERT_GE(exponent, kLeastExponent);
      ASSERT_LE(exponent, kMostExponent);
      ASSERT_TRUE(std::isnormal(numerics::power_of_two(exponent) * kWeightUnit));
      ASSERT_TRUE(std::isnormal(numerics::power_of_two(-exponent)));
      const double scaled = std::ldexp(static_cast<double>(numerics::bits_float(amax)), -exponent);
      ASSERT_LT(scaled, 0x1p15) << "no f16";
      if (exponent > kLeastExponent) ASSERT_GE(scaled, 0x1p-1) << "fewer bits than f16 has";
      if (exponent > kLeastExponent && exponent < kMostExponent) {
        ASSERT_EQ((exponent - kGridOffset) % kGridStep, 0);
      }
    }
  }
  for (uint32_t upper = 1; upper < numerics::kInfBits >> 16; ++upper) {
    const PartExponent part(upper);
    const int32_t exponent = grid_exponent(upper << 16);
    ASSERT_EQ(part.kept, exponent);
    ASSERT_EQ(numerics::bits_float(part.factor << 16) * numerics::power_of_two(exponent), 1.0f);
  }
  EXPECT_EQ(PartExponent(0).factor, 0u);
  EXPECT_EQ(PartExponent(0).kept, kAnyExponent);
  EXPECT_EQ(PartExponent(numerics::kInfBits >> 16).kept, kNotFinite);
  EXPECT_EQ(PartExponent(0x7FFF).kept, kNotFinite);
  EXPECT_EQ(part_exponent(8, 0), kAnyExponent);
  EXPECT_EQ(part_exponent(8, 1), 8);
  EXPECT_EQ(part_exponent(kMostExponent, numerics::kInfBits), kNotFinite);
  EXPECT_EQ(part_exponent(kMostExponent, numerics::kCanonicalNan), kNotFinite);
}

// ---- Workspace

TEST(GroupedWorkspaceBytes, WithinWhatTheHeaderSaysAndRising) {
  for (const int64_t hidden : {64, 640, 4096, 7168}) {
    for (const int64_t intermediate : {64, 640, 2048}) {
      for (const int64_t experts : {1, 2, 64, 288, 1024, 1025, 4096}) {
        for (const int64_t top_k : {1, 8, 32}) {
          GroupedShape shape;
          shape.hidden_size = hidden;
          shape.intermediate_size = intermediate;
          shape.n_experts = shape.n_local_experts = experts;
          shape.top_k = top_k;
          uint64_t last = 0;
          for (const int64_t tokens : {1, 2, 3, 7, 8, 63, 64, 65, 127, 511, 512, 513, 1024, 4095,
                                       4096, 4097, 32768, 1'000'000}) {
            const uint64_t bytes = GroupedWorkspace(shape, tokens).bytes;
            const auto pairs = static_cast<double>(tokens * top_k);
            const double limit = pairs * static_cast<double>(2 * hidden + 2 * intermediate) * 1.05 +
                                 16.0 * static_cast<double>(experts) + 4096;
            ASSERT_LE(static_cast<double>(bytes), limit)
                << hidden << ", " << intermediate << ", " << experts << " experts, top_k " << top_k
                << ", " << tokens << " tokens";
            ASSERT_GE(bytes, last);
            last = bytes;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace memra::cuda
