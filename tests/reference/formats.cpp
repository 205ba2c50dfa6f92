#include "reference/formats.h"

#include <algorithm>
#include <cmath>

namespace memra::reference {
namespace {

constexpr std::int64_t kV1BlockValues = 64;
constexpr std::int64_t kV1BlockBytes = 36;

// The tile of V2 in which (row, col) lies: 8 rows by 128 columns, or by 64 at the end of a row.
struct V2Tile {
  std::int64_t block_row;  // row / 8
  std::int64_t index;      // column / 128
  std::int64_t lane;       // [row % 8][group], counted in groups
  std::int64_t half;       // which 16 values of the group
};

V2Tile v2_tile(std::int64_t cols, std::int64_t row, std::int64_t col) {
  const std::int64_t index = col / 128;
  const std::int64_t width = std::min<std::int64_t>(128, cols - index * 128);
  const std::int64_t groups = width / 32;
  const std::int64_t group = (col % 128) / 32;
  return {row / 8, index, (row % 8) * groups + group, (col % 32) / 16};
}

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

int e2m1_doubled(std::uint8_t code) {
  const int exponent = (code >> 1) & 3;
  const int mantissa = code & 1;
  // Doubled: (1 + m/2) * 2^(e-1) * 2, or m/2 * 2 where e is 0.
  const int magnitude = exponent ? (2 + mantissa) << (exponent - 1) : mantissa;
  return (code & 8) ? -magnitude : magnitude;
}

float e2m1_value(std::uint8_t code) {
  // Code 8 is +0, as the integer that a dot product takes it for, and as the third party decodes
  // it.
  return 0.5f * static_cast<float>(e2m1_doubled(code));
}

bool ue4m3_legal(std::uint8_t code) {
  return code <= 0x7E;
}

float ue4m3_value(std::uint8_t code) {
  if (!ue4m3_legal(code)) return 0.0f;
  const int exponent = (code >> 3) & 15;
  const float mantissa = static_cast<float>(code & 7);
  return exponent ? std::ldexp(1.0f + mantissa / 8.0f, exponent - 7) : std::ldexp(mantissa, -9);
}

Slab::Slab(Format slab_format, std::int64_t slab_rows, std::int64_t slab_cols)
    : format(slab_format),
      rows(slab_rows),
      cols(slab_cols),
      bytes(at(slab_bytes(slab_rows, slab_cols)), 0) {}

std::int64_t slab_bytes(std::int64_t rows, std::int64_t cols) {
  return rows * (cols / kV1BlockValues) * kV1BlockBytes;
}

CodePlace code_place(Format format, std::int64_t rows, std::int64_t cols, std::int64_t row,
                     std::int64_t col) {
  (void)rows;
  const std::int64_t within = col % 16;
  const bool high = within >= 8;
  if (format == Format::kV1) {
    const std::int64_t block = row * (cols / kV1BlockValues) + col / kV1BlockValues;
    const std::int64_t scale = (col % kV1BlockValues) / 16;
    return {block * kV1BlockBytes + 4 + 8 * scale + within % 8, high};
  }
  const V2Tile tile = v2_tile(cols, row, col);
  return {
      tile.block_row * 4 * cols + tile.index * 512 + tile.lane * 16 + tile.half * 8 + within % 8,
      high};
}

std::int64_t scale_place(Format format, std::int64_t rows, std::int64_t cols, std::int64_t row,
                         std::int64_t col) {
  if (format == Format::kV1) {
    const std::int64_t block = row * (cols / kV1BlockValues) + col / kV1BlockValues;
    return block * kV1BlockBytes + (col % kV1BlockValues) / 16;
  }
  const V2Tile tile = v2_tile(cols, row, col);
  return rows * cols / 2 + tile.block_row * cols / 2 + tile.index * 64 + tile.lane * 2 + tile.half;
}

std::uint8_t get_code(const Slab& slab, std::int64_t row, std::int64_t col) {
  const CodePlace place = code_place(slab.format, slab.rows, slab.cols, row, col);
  const std::uint8_t byte = slab.bytes[at(place.byte)];
  return place.high_nibble ? byte >> 4 : byte & 15;
}

void set_code(Slab& slab, std::int64_t row, std::int64_t col, std::uint8_t code) {
  const CodePlace place = code_place(slab.format, slab.rows, slab.cols, row, col);
  std::uint8_t& byte = slab.bytes[at(place.byte)];
  byte = static_cast<std::uint8_t>(place.high_nibble ? (byte & 0x0F) | (code & 15) << 4
                                                     : (byte & 0xF0) | (code & 15));
}

std::uint8_t get_scale(const Slab& slab, std::int64_t row, std::int64_t col) {
  return slab.bytes[at(scale_place(slab.format, slab.rows, slab.cols, row, col))];
}

void set_scale(Slab& slab, std::int64_t row, std::int64_t col, std::uint8_t code) {
  slab.bytes[at(scale_place(slab.format, slab.rows, slab.cols, row, col))] = code;
}

Codes16 get_codes(const Slab& slab, std::int64_t row, std::int64_t col) {
  const std::int64_t first = code_place(slab.format, slab.rows, slab.cols, row, col).byte;
  Codes16 codes;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint8_t byte = slab.bytes[at(first) + i];
    codes[i] = byte & 15;
    codes[i + 8] = byte >> 4;
  }
  return codes;
}

void set_codes(Slab& slab, std::int64_t row, std::int64_t col, const Codes16& codes) {
  const std::int64_t first = code_place(slab.format, slab.rows, slab.cols, row, col).byte;
  for (std::size_t i = 0; i < 8; ++i) {
    slab.bytes[at(first) + i] = static_cast<std::uint8_t>(codes[i] | codes[i + 8] << 4);
  }
}

void note_invalid(InvalidScales& invalid, std::int64_t expert, std::int64_t row, std::int64_t col) {
  if (invalid.count++ > 0) return;
  invalid.first_expert = expert;
  invalid.first_row = row;
  invalid.first_block = col / 16;
}

Slab convert(const Slab& slab, Format to, InvalidScales* invalid, std::int64_t expert) {
  Slab result(to, slab.rows, slab.cols);
  for (std::int64_t row = 0; row < slab.rows; ++row) {
    for (std::int64_t col = 0; col < slab.cols; col += 16) {
      set_codes(result, row, col, get_codes(slab, row, col));
      std::uint8_t scale = get_scale(slab, row, col);
      if (!ue4m3_legal(scale)) {
        if (invalid != nullptr) note_invalid(*invalid, expert, row, col);
        if (to == Format::kV2) scale = 0x00;
      }
      set_scale(result, row, col, scale);
    }
  }
  return result;
}

Slab slice(const Slab& slab, std::int64_t row0, std::int64_t rows, std::int64_t col0,
           std::int64_t cols) {
  Slab result(slab.format, rows, cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; col += 16) {
      set_codes(result, row, col, get_codes(slab, row0 + row, col0 + col));
      set_scale(result, row, col, get_scale(slab, row0 + row, col0 + col));
    }
  }
  return result;
}

std::vector<std::uint8_t> pack_bank(std::span<const Slab> slabs, std::int64_t stride,
                                    std::uint8_t fill) {
  if (slabs.empty()) return {};
  if (stride == 0) stride = slab_bytes(slabs[0].rows, slabs[0].cols);
  std::vector<std::uint8_t> bank(at(stride) * slabs.size(), fill);
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    std::copy(slabs[i].bytes.begin(), slabs[i].bytes.end(),
              bank.begin() + static_cast<std::int64_t>(i) * stride);
  }
  return bank;
}

DecodedSlab decode(const Slab& slab) {
  DecodedSlab decoded;
  decoded.rows = slab.rows;
  decoded.cols = slab.cols;
  decoded.doubled.reserve(at(slab.rows * slab.cols));
  decoded.scales.reserve(at(slab.rows * slab.cols / 16));
  for (std::int64_t row = 0; row < slab.rows; ++row) {
    for (std::int64_t col = 0; col < slab.cols; col += 16) {
      for (const std::uint8_t code : get_codes(slab, row, col)) {
        decoded.doubled.push_back(static_cast<std::int8_t>(e2m1_doubled(code)));
      }
      decoded.scales.push_back(ue4m3_value(get_scale(slab, row, col)));
    }
  }
  return decoded;
}

}  // namespace memra::reference
