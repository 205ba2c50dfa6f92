#include "conformance/banks.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace memra::test {

using reference::Format;
using reference::InvalidScales;
using reference::Slab;

Bytes bank_bytes(std::span<const Slab> slabs, std::int64_t stride) {
  const std::int64_t slab = reference::slab_bytes(slabs[0].rows, slabs[0].cols);
  Bytes bytes = reference::pack_bank(slabs, stride);
  if (stride > slab) bytes.resize(bytes.size() - static_cast<std::size_t>(stride - slab));
  return bytes;
}

std::vector<Slab> random_slabs(std::uint64_t seed, Format format, std::int64_t n_experts,
                               std::int64_t rows, std::int64_t cols, bool invalid) {
  reference::Random random(seed);
  std::vector<Slab> slabs;
  for (std::int64_t expert = 0; expert < n_experts; ++expert) {
    slabs.push_back(
        reference::random_slab(random, format, rows, cols, reference::ScaleCodes::kAll));
    Slab& slab = slabs.back();
    if (!invalid || expert == 0) continue;
    const std::uint8_t codes[] = {0x7F, 0x80, 0xB8, 0xFF};
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t row = 1 + i * (rows - 2) / 8;
      const std::int64_t col = (3 + 7 * i) % (cols / 16) * 16;
      reference::set_scale(slab, row, col, codes[i % 4]);
      if (i % 2 == 0) reference::set_codes(slab, row, col, {});
    }
  }
  return slabs;
}

Part Part::resolved(std::int64_t of_rows, std::int64_t of_cols) const {
  return {row, rows == 0 ? of_rows - row : rows, col, cols == 0 ? of_cols - col : cols};
}

std::vector<Part> parts_of(std::int64_t rows, std::int64_t cols) {
  std::vector<Part> parts = {{}};
  const std::int64_t half = rows / 16 * 8;
  if (half > 0) {
    parts.push_back({0, half, 0, 0});
    parts.push_back({half, 0, 0, 0});
  }
  if (cols > 64) {
    parts.push_back({0, 0, 64, 0});
    parts.push_back({0, 0, 0, cols - 64});
    parts.push_back({rows - 8, 8, cols - 64, 64});
  }
  if (cols > 256) parts.push_back({half, 8, 64, cols - 192});
  return parts;
}

std::vector<Slab> convert_part(std::span<const Slab> slabs, const Part& part, Format format,
                               InvalidScales* invalid) {
  std::vector<Slab> result;
  for (std::size_t expert = 0; expert < slabs.size(); ++expert) {
    const Slab& slab = slabs[expert];
    const Part p = part.resolved(slab.rows, slab.cols);
    for (std::int64_t row = p.row; row < p.row + p.rows; ++row) {
      for (std::int64_t col = p.col; col < p.col + p.cols; col += 16) {
        if (!reference::ue4m3_legal(reference::get_scale(slab, row, col))) {
          reference::note_invalid(*invalid, static_cast<std::int64_t>(expert), row, col);
        }
      }
    }
    result.push_back(
        reference::convert(reference::slice(slab, p.row, p.rows, p.col, p.cols), format));
  }
  return result;
}

::testing::AssertionResult Report::check(const InvalidScales& invalid,
                                         std::uint64_t non_finite) const {
  const Bytes bytes = buffer_.download();
  memra_weight_report report;
  std::memcpy(&report, bytes.data(), sizeof report);
  if (report.invalid_scales == invalid.count && report.first_expert == invalid.first_expert &&
      report.first_row == invalid.first_row && report.first_block == invalid.first_block &&
      report.non_finite == non_finite) {
    return buffer_.guards_intact();
  }
  return ::testing::AssertionFailure()
         << "report: " << report.invalid_scales << " invalid, first (" << report.first_expert
         << ", " << report.first_row << ", " << report.first_block << "), " << report.non_finite
         << " not finite; expected " << invalid.count << ", (" << invalid.first_expert << ", "
         << invalid.first_row << ", " << invalid.first_block << "), " << non_finite;
}

Bytes read_data(const char* name) {
  std::string path = MEMRA_TEST_DATA_DIR;
  path.append("/").append(name);
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

}  // namespace memra::test
