// The reference checks itself: conversions, formats, weights and comparisons.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/arithmetic.h"
#include "reference/compare.h"
#include "reference/floats.h"
#include "reference/formats.h"
#include "reference/generate.h"
#include "reference/weights.h"

namespace memra::reference {
namespace {

constexpr Format kFormats[] = {Format::kV1, Format::kV2};

std::vector<std::uint8_t> read_data(const std::string& name) {
  std::ifstream file(std::string(MEMRA_TEST_DATA_DIR) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> read_floats(const std::string& name) {
  const std::vector<std::uint8_t> bytes = read_data(name);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

TEST(ReferenceFloats, F16AndBf16RoundTripEveryPattern) {
  for (std::uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const bool f16_nan = (i & 0x7FFF) > 0x7C00;
    const bool bf16_nan = (i & 0x7FFF) > 0x7F80;
    ASSERT_EQ(f32_to_f16(f16_to_f32(bits)), f16_nan ? kCanonicalNanF16 : bits);
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(bits)), bf16_nan ? kCanonicalNanBF16 : bits);
    if (!bf16_nan) {
      ASSERT_EQ(bits_of(bf16_to_f32(bits)), i << 16);
    }
  }
}

// Between two neighbours of the small type: the nearer, and the even one at the middle.
void expect_nearest(std::uint16_t low, float (*widen_one)(std::uint16_t),
                    std::uint16_t (*narrow_one)(float)) {
  const auto high = static_cast<std::uint16_t>(low + 1);
  const double middle = (static_cast<double>(widen_one(low)) + widen_one(high)) / 2;
  const float tie = static_cast<float>(middle);
  ASSERT_EQ(static_cast<double>(tie), middle);
  ASSERT_EQ(narrow_one(tie), low % 2 == 0 ? low : high);
  ASSERT_EQ(narrow_one(std::nextafter(tie, 0.0f)), low);
  ASSERT_EQ(narrow_one(std::nextafter(tie, HUGE_VALF)), high);
  ASSERT_EQ(narrow_one(-tie), 0x8000 | (low % 2 == 0 ? low : high));
}

TEST(ReferenceFloats, RoundingIsToNearestEven) {
  for (std::uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    expect_nearest(bits, f16_to_f32, f32_to_f16);
  }
  for (std::uint16_t bits = 0; bits < 0x7F7F; ++bits) {
    expect_nearest(bits, bf16_to_f32, f32_to_bf16);
  }
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xFC00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(f32_to_bf16(-HUGE_VALF), 0xFF80);
  EXPECT_EQ(f32_to_f16(from_bits(0xFF800001u)), kCanonicalNanF16);
  EXPECT_EQ(f32_to_bf16(from_bits(0xFF800001u)), kCanonicalNanBF16);
  EXPECT_EQ(bits_of(canonical(from_bits(0xFF800001u))), kCanonicalNanF32);
  EXPECT_EQ(bits_of(canonical(-0.0f)), 0x80000000u);
}

TEST(ReferenceFormats, CodesDecodeToTheListedValues) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const int doubled[] = {0, 1, 2, 3, 4, 6, 8, 12};
  for (std::uint8_t code = 0; code < 8; ++code) {
    const auto negative = static_cast<std::uint8_t>(code | 8);
    EXPECT_EQ(bits_of(e2m1_value(code)), bits_of(magnitudes[code]));
    EXPECT_EQ(bits_of(e2m1_value(negative)), code == 0 ? 0u : bits_of(-magnitudes[code]));
    EXPECT_EQ(e2m1_doubled(code), doubled[code]);
    EXPECT_EQ(e2m1_doubled(negative), -doubled[code]);
  }
  EXPECT_EQ(ue4m3_value(0x00), 0.0f);
  EXPECT_EQ(ue4m3_value(0x01), 0x1p-9f);
  EXPECT_EQ(ue4m3_value(0x08), 0x1p-6f);
  EXPECT_EQ(ue4m3_value(0x38), 1.0f);
  EXPECT_EQ(ue4m3_value(0x7E), 448.0f);
  for (int code = 1; code < 0x7F; ++code) {
    EXPECT_LT(ue4m3_value(static_cast<std::uint8_t>(code - 1)),
              ue4m3_value(static_cast<std::uint8_t>(code)));
  }
  for (int code = 0x7F; code < 256; ++code) {
    EXPECT_EQ(bits_of(ue4m3_value(static_cast<std::uint8_t>(code))), 0u);
  }
}

TEST(ReferenceFormats, EveryNibbleAndScaleByteBelongsToOneValue) {
  for (const Format format : kFormats) {
    for (const auto& [rows, cols] : {std::pair{8, 64}, {16, 128}, {24, 192}, {8, 640}}) {
      std::set<std::int64_t> nibbles;
      std::set<std::int64_t> scales;
      for (int row = 0; row < rows; ++row) {
        for (int col = 0; col < cols; ++col) {
          const CodePlace place = code_place(format, rows, cols, row, col);
          nibbles.insert(2 * place.byte + place.high_nibble);
          if (col % 16 == 0) scales.insert(scale_place(format, rows, cols, row, col));
          ASSERT_EQ(scale_place(format, rows, cols, row, col),
                    scale_place(format, rows, cols, row, col / 16 * 16));
        }
      }
      ASSERT_EQ(nibbles.size(), static_cast<std::size_t>(rows * cols));
      ASSERT_EQ(scales.size(), static_cast<std::size_t>(rows * cols / 16));
      for (const std::int64_t byte : scales)
        ASSERT_FALSE(nibbles.contains(2 * byte));
      ASSERT_EQ(slab_bytes(rows, cols), rows * cols / 2 + rows * cols / 16);
      ASSERT_LT(*nibbles.rbegin(), 2 * slab_bytes(rows, cols));
      ASSERT_LT(*scales.rbegin(), slab_bytes(rows, cols));
    }
  }
}

TEST(ReferenceFormats, V1PlacesAreTheGgufBlock) {
  // Row 1, second block of 64: scales at its first bytes, value 40 = scale 2, w 8, high nibble.
  EXPECT_EQ(scale_place(Format::kV1, 8, 128, 1, 64 + 40), 3 * 36 + 2);
  const CodePlace place = code_place(Format::kV1, 8, 128, 1, 64 + 40);
  EXPECT_EQ(place.byte, 3 * 36 + 4 + 16);
  EXPECT_TRUE(place.high_nibble);
}

TEST(ReferenceFormats, V2PlacesAreTheTilesOfTheContract) {
  // 16 rows by 320 columns: tiles of 128, 128 and 64 columns. Row 9 is row 1 of block row 1.
  const std::int64_t codes = 4 * 320;
  const std::int64_t scales = 16 * 320 / 2 + 320 * 8 / 16;
  // Column 128 + 64 + 16 + 9: tile 1, group 2, second half, byte 1, high nibble.
  CodePlace place = code_place(Format::kV2, 16, 320, 9, 217);
  EXPECT_EQ(place.byte, codes + 512 + (1 * 4 + 2) * 16 + 8 + 1);
  EXPECT_TRUE(place.high_nibble);
  EXPECT_EQ(scale_place(Format::kV2, 16, 320, 9, 217), scales + 64 + (1 * 4 + 2) * 2 + 1);
  // Column 256 + 32 + 3: the half-wide tile, group 1, first half, byte 3, low nibble.
  place = code_place(Format::kV2, 16, 320, 9, 291);
  EXPECT_EQ(place.byte, codes + 1024 + (1 * 2 + 1) * 16 + 3);
  EXPECT_FALSE(place.high_nibble);
  EXPECT_EQ(scale_place(Format::kV2, 16, 320, 9, 291), scales + 128 + (1 * 2 + 1) * 2);
}

TEST(ReferenceFormats, ConversionKeepsValuesAndCountsInvalidScales) {
  Random random(7);
  Slab v1 = random_slab(random, Format::kV1, 16, 320, ScaleCodes::kAll);
  EXPECT_EQ(convert(convert(v1, Format::kV2), Format::kV1).bytes, v1.bytes);

  set_scale(v1, 3, 112, 0x7F);
  set_scale(v1, 3, 256, 0xFF);
  set_scale(v1, 9, 0, 0x80);
  InvalidScales invalid;
  const Slab v2 = convert(v1, Format::kV2, &invalid, 5);
  EXPECT_EQ(invalid.count, 3u);
  EXPECT_EQ(invalid.first_expert, 5);
  EXPECT_EQ(invalid.first_row, 3);
  EXPECT_EQ(invalid.first_block, 7);
  EXPECT_EQ(get_scale(v2, 3, 112), 0x00);
  EXPECT_EQ(decode(v2).scales, decode(v1).scales);
  EXPECT_EQ(decode(v2).doubled, decode(v1).doubled);
  EXPECT_TRUE(compare_bits(dequantize(v1, 0.3f), dequantize(v2, 0.3f), 320).same());
}

TEST(ReferenceFormats, SixteenCodesAtOnceAreTheSingleOnes) {
  Random random(6);
  for (const Format format : kFormats) {
    const Slab slab = random_slab(random, format, 16, 320, ScaleCodes::kAll);
    Slab copy(format, 16, 320);
    const DecodedSlab decoded = decode(slab);
    for (std::int64_t row = 0; row < 16; ++row) {
      for (std::int64_t col = 0; col < 320; ++col) {
        const std::uint8_t code = get_code(slab, row, col);
        const std::uint8_t scale = get_scale(slab, row, col);
        set_code(copy, row, col, code);
        set_scale(copy, row, col, scale);
        const std::size_t element = static_cast<std::size_t>(row * 320 + col);
        ASSERT_EQ(get_codes(slab, row, col / 16 * 16)[element % 16], code);
        ASSERT_EQ(decoded.doubled[element], e2m1_doubled(code));
        ASSERT_EQ(decoded.scales[element / 16], ue4m3_value(scale));
      }
    }
    EXPECT_EQ(copy.bytes, slab.bytes);
  }
}

TEST(ReferenceFormats, SlicesAndBanks) {
  Random random(8);
  const Slab whole = random_slab(random, Format::kV2, 24, 320, ScaleCodes::kAll);
  const Slab part = slice(whole, 8, 16, 64, 192);
  EXPECT_EQ(get_code(part, 3, 70), get_code(whole, 11, 134));
  EXPECT_EQ(get_scale(part, 3, 70), get_scale(whole, 11, 134));
  EXPECT_EQ(slice(whole, 0, 24, 0, 320).bytes, whole.bytes);

  const std::vector<Slab> slabs = {whole, whole};
  const std::vector<std::uint8_t> bank = pack_bank(slabs, slab_bytes(24, 320) + 16);
  EXPECT_EQ(bank.size(), 2 * (whole.bytes.size() + 16));
  EXPECT_EQ(bank[whole.bytes.size()], 0xFF);
  EXPECT_EQ(bank[whole.bytes.size() + 16], whole.bytes[0]);
}

TEST(ReferenceWeights, ThirdPartyBlocksDecodeToTheirBits) {
  Slab v1(Format::kV1, 256, 256);
  v1.bytes = read_data("nvfp4_blocks.bin");
  ASSERT_EQ(v1.bytes.size(), static_cast<std::size_t>(slab_bytes(256, 256)));
  const std::vector<float> expected = read_floats("nvfp4_dequant.f32");
  ASSERT_EQ(expected.size(), 256u * 256u);
  ASSERT_TRUE(count_values(expected).informative());
  for (const Format format : kFormats) {
    const BitReport report = compare_bits(expected, dequantize(convert(v1, format), 1.0f), 256);
    EXPECT_TRUE(report.same()) << report.text();
  }
}

TEST(ReferenceWeights, ThirdPartyTableHasTheSameValues) {
  std::ifstream file(std::string(MEMRA_TEST_DATA_DIR) + "/nvfp4_table.txt");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  ASSERT_EQ(line.front(), '#');
  int read = 0;
  for (int scale = 0; file >> scale; ++read) {
    for (int code = 0; code < 16; ++code) {
      float expected = 0;
      ASSERT_TRUE(file >> expected);
      const float actual = mul(e2m1_value(static_cast<std::uint8_t>(code)),
                               ue4m3_value(static_cast<std::uint8_t>(scale)));
      EXPECT_EQ(bits_of(actual), bits_of(expected)) << scale << " " << code;
    }
  }
  EXPECT_EQ(read, 127);
}

TEST(ReferenceWeights, NearestScaleCode) {
  const std::pair<float, float> known[] = {{240, 240},       {248, 256}, {256, 256}, {288, 288},
                                           {320, 320},       {400, 384}, {447, 448}, {1e9f, 448},
                                           {HUGE_VALF, 448}, {0, 0},     {-1, 0}};
  for (const auto& [x, value] : known)
    EXPECT_EQ(ue4m3_value(nearest_ue4m3(x)), value) << x;
  EXPECT_EQ(nearest_ue4m3(canonical_nan()), 0);
  for (int code = 0; code < 0x7E; ++code) {
    const auto low = static_cast<std::uint8_t>(code);
    const auto high = static_cast<std::uint8_t>(code + 1);
    const float tie = (ue4m3_value(low) + ue4m3_value(high)) / 2;
    EXPECT_EQ(nearest_ue4m3(tie), code % 2 == 0 ? low : high) << code;
    EXPECT_EQ(nearest_ue4m3(std::nextafter(tie, 0.0f)), low);
    EXPECT_EQ(nearest_ue4m3(std::nextafter(tie, 1e9f)), high);
    EXPECT_EQ(nearest_ue4m3(ue4m3_value(low)), low);
  }
}

TEST(ReferenceWeights, NearestE2m1Code) {
  const std::pair<float, int> known[] = {{0, 0},     {0.25f, 0},  {0.26f, 1}, {0.75f, 2},
                                         {1.25f, 2}, {1.75f, 4},  {2.5f, 4},  {3.5f, 6},
                                         {5, 6},     {5.01f, 7},  {100, 7},   {HUGE_VALF, 7},
                                         {-0.2f, 0}, {-1.5f, 11}, {-5, 14},   {-0.0f, 0}};
  for (const auto& [x, code] : known)
    EXPECT_EQ(nearest_e2m1(x), code) << x;
  EXPECT_EQ(nearest_e2m1(canonical_nan()), 0);
}

TEST(ReferenceWeights, QuantizeRecoversWhatIsOnTheGrid) {
  // Every block of 16 holds a 6, so that its scale comes back; the largest scale is 448. Code 8
  // comes back as 0.
  Random random(9);
  Slab slab = random_slab(random, Format::kV2, 8, 320, ScaleCodes::kAll);
  for (std::int64_t row = 0; row < 8; ++row) {
    for (std::int64_t col = 0; col < 320; col += 16) {
      if (get_scale(slab, row, col) == 0) set_scale(slab, row, col, 1);
      set_code(slab, row, col, 7);
      for (std::int64_t i = 1; i < 16; ++i) {
        if (get_code(slab, row, col + i) == 8) set_code(slab, row, col + i, 0);
      }
    }
  }
  set_scale(slab, 2, 16, 0x7E);
  const std::vector<float> values = dequantize(slab, 0.25f);
  const float expert_scale = choose_expert_scale(values);
  EXPECT_EQ(expert_scale, 0.25f);
  EXPECT_EQ(quantize_nvfp4(values, 8, 320, expert_scale, Format::kV2).bytes, slab.bytes);
}

TEST(ReferenceWeights, QuantizeIsCloseOnRandomValues) {
  const std::vector<float> source = read_floats("nvfp4_src.f32");
  const float expert_scale = choose_expert_scale(source);
  const Slab slab = quantize_nvfp4(source, 256, 256, expert_scale, Format::kV1);
  const std::vector<double> exact(source.begin(), source.end());
  const Closeness ours = closeness(exact, dequantize(slab, expert_scale), 256);
  const Closeness theirs = closeness(exact, read_floats("nvfp4_dequant.f32"), 256);
  EXPECT_GT(ours.cosine, 0.99);
  EXPECT_LT(ours.relative_l2, 1.1 * theirs.relative_l2) << ours.text() << theirs.text();
}

TEST(ReferenceWeights, QuantizeOfZerosAndNonFiniteValues) {
  std::vector<float> values(8 * 64, 0.0f);
  EXPECT_EQ(choose_expert_scale(values), 1.0f);
  EXPECT_EQ(quantize_nvfp4(values, 8, 64, 1.0f, Format::kV1).bytes, Slab(Format::kV1, 8, 64).bytes);

  values[3] = HUGE_VALF;
  values[4] = canonical_nan();
  values[5] = 6.0f;
  EXPECT_EQ(count_non_finite(values), 2u);
  EXPECT_EQ(choose_expert_scale(values), div(6.0f, 2688.0f));
  for (const float bad : {0.0f, -1.0f, HUGE_VALF, canonical_nan()}) {
    EXPECT_EQ(quantize_nvfp4(values, 8, 64, bad, Format::kV2).bytes,
              Slab(Format::kV2, 8, 64).bytes);
  }
  const Slab slab = quantize_nvfp4(values, 8, 64, 1.0f, Format::kV1);
  EXPECT_EQ(get_scale(slab, 0, 0), 0x38);
  EXPECT_EQ(get_code(slab, 0, 3), 0);
  EXPECT_EQ(get_code(slab, 0, 4), 0);
  EXPECT_EQ(get_code(slab, 0, 5), 7);
}

TEST(ReferenceWeights, ImportKeepsCodesInOrder) {
  Random random(10);
  const Slab slab = random_slab(random, Format::kV1, 8, 192, ScaleCodes::kAll);
  Checkpoint checkpoint = export_nvfp4(slab);
  EXPECT_EQ(import_nvfp4(checkpoint, Format::kV1).bytes, slab.bytes);
  EXPECT_EQ(import_nvfp4(checkpoint, Format::kV2).bytes, convert(slab, Format::kV2).bytes);
  // Codes 0..15 in order: bytes 0x10, 0x32, ...
  for (int j = 0; j < 8; ++j) {
    checkpoint.codes[static_cast<std::size_t>(j)] = static_cast<std::uint8_t>(0x10 + 0x22 * j);
  }
  for (std::int64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(get_code(import_nvfp4(checkpoint, Format::kV2), 0, i), i);
  }
  checkpoint.scales[13] = 0x9A;  // row 1, scale 1
  InvalidScales invalid;
  EXPECT_EQ(get_scale(import_nvfp4(checkpoint, Format::kV2, &invalid, 2), 1, 16), 0);
  EXPECT_EQ(get_scale(import_nvfp4(checkpoint, Format::kV1), 1, 16), 0x9A);
  EXPECT_EQ(invalid.count, 1u);
  EXPECT_EQ(invalid.first_row, 1);
  EXPECT_EQ(invalid.first_block, 1);

  EXPECT_EQ(imported_expert_scale(0.125f, GlobalScale::kDirect),
            imported_expert_scale(8.0f, GlobalScale::kReciprocal));
  for (const float bad : {0.0f, -0.0f, -1.0f, HUGE_VALF, canonical_nan()}) {
    EXPECT_FALSE(global_scale_legal(bad, GlobalScale::kDirect));
    EXPECT_FALSE(global_scale_legal(bad, GlobalScale::kReciprocal));
  }
  EXPECT_TRUE(global_scale_legal(1e-40f, GlobalScale::kDirect));
  EXPECT_FALSE(global_scale_legal(1e-40f, GlobalScale::kReciprocal));
}

TEST(ReferenceCompare, ReportsPlaceAndPattern) {
  std::vector<float> expected(4 * 256, 1.0f);
  std::vector<float> actual = expected;
  EXPECT_TRUE(compare_bits(expected, actual, 256).same());
  for (std::size_t row = 1; row < 4; ++row)
    actual[row * 256 + 70] = 1.5f;
  BitReport report = compare_bits(expected, actual, 256);
  EXPECT_EQ(report.differing, 3);
  EXPECT_EQ(report.first_row, 1);
  EXPECT_EQ(report.first_col, 70);
  EXPECT_EQ(report.errors.mod64[6], 0.5);
  EXPECT_EQ(report.errors.mod128[70], 0.5);
  EXPECT_EQ(report.errors.mod128[6], 0.0);
  EXPECT_NE(report.text().find("expected 1 (0x3f800000), got 1.5 (0x3fc00000)"), std::string::npos)
      << report.text();
  // Two NaNs that are not the same bits differ; 0 and -0 differ.
  actual = expected;
  expected[0] = canonical_nan();
  actual[0] = from_bits(0xFFC00000u);
  expected[1] = 0.0f;
  actual[1] = -0.0f;
  EXPECT_EQ(compare_bits(expected, actual, 256).differing, 2);
  EXPECT_FALSE(compare_bits(expected, std::vector<float>(3), 256).same());
  EXPECT_FALSE(count_values(std::vector<float>(100)).informative());
}

}  // namespace
}  // namespace memra::reference
