// The weight formats of design section 3, from first principles: one value at a time, by (row,
// col).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace memra::reference {

// The values are those of the ABI (MEMRA_NVFP4, MEMRA_NVFP4_V2).
enum class Format : std::int32_t { kV1 = 7, kV2 = 107 };

// E2M1: bit 3 the sign, bits 2..1 the exponent, bit 0 the mantissa.
float e2m1_value(std::uint8_t code);
int e2m1_doubled(std::uint8_t code);

// UE4M3: legal codes are 0x00..0x7E, every other one decodes to 0.
bool ue4m3_legal(std::uint8_t code);
float ue4m3_value(std::uint8_t code);

// One expert's matrix of one plane, as the library reads it. `cols` is the dot-product dimension.
struct Slab {
  Format format = Format::kV1;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> bytes;

  Slab() = default;
  Slab(Format slab_format, std::int64_t slab_rows, std::int64_t slab_cols);  // all bytes zero
};

std::int64_t slab_bytes(std::int64_t rows, std::int64_t cols);

// Where a 4-bit code lies, and the byte of the scale that governs column `col`.
struct CodePlace {
  std::int64_t byte;
  bool high_nibble;
};
CodePlace code_place(Format format, std::int64_t rows, std::int64_t cols, std::int64_t row,
                     std::int64_t col);
std::int64_t scale_place(Format format, std::int64_t rows, std::int64_t cols, std::int64_t row,
                         std::int64_t col);

std::uint8_t get_code(const Slab& slab, std::int64_t row, std::int64_t col);
void set_code(Slab& slab, std::int64_t row, std::int64_t col, std::uint8_t code);
std::uint8_t get_scale(const Slab& slab, std::int64_t row, std::int64_t col);
void set_scale(Slab& slab, std::int64_t row, std::int64_t col, std::uint8_t code);

// The 16 codes of one scale at once, where speed counts: 8 bytes in both formats, the low nibbles
// first. `col` is a multiple of 16.
using Codes16 = std::array<std::uint8_t, 16>;
Codes16 get_codes(const Slab& slab, std::int64_t row, std::int64_t col);
void set_codes(Slab& slab, std::int64_t row, std::int64_t col, const Codes16& codes);

// Scale bytes that are no legal code; the first is the lowest (expert, row, block), a block being
// 16 columns.
struct InvalidScales {
  std::uint64_t count = 0;
  std::int64_t first_expert = -1;
  std::int64_t first_row = -1;
  std::int64_t first_block = -1;
};
void note_invalid(InvalidScales& invalid, std::int64_t expert, std::int64_t row, std::int64_t col);

// The same codes in `to`. Into V2 an invalid scale code becomes 0x00; into V1 it stays. Either way
// it is counted in `invalid`, where given.
Slab convert(const Slab& slab, Format to, InvalidScales* invalid = nullptr,
             std::int64_t expert = 0);

// Rows [row0, row0 + rows) and columns [col0, col0 + cols) as a slab of their own.
Slab slice(const Slab& slab, std::int64_t row0, std::int64_t rows, std::int64_t col0,
           std::int64_t cols);

// Slabs one after another, `stride` bytes apart (0: slab_bytes), the gaps filled with `fill`.
std::vector<std::uint8_t> pack_bank(std::span<const Slab> slabs, std::int64_t stride = 0,
                                    std::uint8_t fill = 0xFF);

// A slab taken apart once, so that the dot products below need no addressing.
struct DecodedSlab {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::int8_t> doubled;  // [rows, cols]
  std::vector<float> scales;         // [rows, cols / 16]
};
DecodedSlab decode(const Slab& slab);

}  // namespace memra::reference
