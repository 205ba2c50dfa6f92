#include "reference/weights.h"

#include <algorithm>
#include <cmath>

#include "reference/arithmetic.h"

namespace memra::reference {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// The code in [0, codes) whose value is nearest to `magnitude` >= 0. Distances in double are exact:
// both operands are f32 of like exponents, or the distance is far from a tie.
template <typename ValueOf>
std::uint8_t nearest(float magnitude, int codes, ValueOf value_of) {
  const float largest = value_of(static_cast<std::uint8_t>(codes - 1));
  if (magnitude >= largest) return static_cast<std::uint8_t>(codes - 1);
  std::uint8_t best = 0;
  double best_distance = magnitude;
  for (int i = 1; i < codes; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    const double distance = std::fabs(static_cast<double>(value_of(code)) - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  return best;
}

bool positive_finite(float x) {
  return std::isfinite(x) && x > 0.0f;
}

float finite_amax(std::span<const float> values) {
  float amax = 0.0f;
  for (const float value : values) {
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

}  // namespace

std::uint8_t nearest_ue4m3(float x) {
  if (!(x > 0.0f)) return 0;  // zero, negative, NaN
  return nearest(x, 127, ue4m3_value);
}

std::uint8_t nearest_e2m1(float x) {
  if (x != x) return 0;
  const std::uint8_t magnitude = nearest(std::fabs(x), 8, e2m1_value);
  // Zero has one code: 8 is never made.
  return static_cast<std::uint8_t>(magnitude | (std::signbit(x) && magnitude != 0 ? 8 : 0));
}

float choose_expert_scale(std::span<const float> values) {
  const float amax = finite_amax(values);
  return amax == 0.0f ? 1.0f : div(amax, 2688.0f);  // 6 * 448
}

std::uint64_t count_non_finite(std::span<const float> values) {
  const auto is_bad = [](float value) { return !std::isfinite(value); };
  return static_cast<std::uint64_t>(std::count_if(values.begin(), values.end(), is_bad));
}

Slab quantize_nvfp4(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                    float expert_scale, Format format) {
  Slab slab(format, rows, cols);
  if (!positive_finite(expert_scale)) return slab;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col0 = 0; col0 < cols; col0 += 16) {
      const std::span<const float> block = values.subspan(at(row * cols + col0), 16);
      const std::uint8_t scale = nearest_ue4m3(div(finite_amax(block), mul(6.0f, expert_scale)));
      set_scale(slab, row, col0, scale);
      const float step = mul(ue4m3_value(scale), expert_scale);
      for (std::int64_t i = 0; i < 16; ++i) {
        const float value = block[at(i)];
        const bool is_zero = step == 0.0f || !std::isfinite(value);
        set_code(slab, row, col0 + i, is_zero ? 0 : nearest_e2m1(div(value, step)));
      }
    }
  }
  return slab;
}

std::vector<float> dequantize(const Slab& slab, float expert_scale) {
  std::vector<float> values;
  values.reserve(at(slab.rows * slab.cols));
  for (std::int64_t row = 0; row < slab.rows; ++row) {
    for (std::int64_t col = 0; col < slab.cols; ++col) {
      // The first product is exact: 2 significant bits times 4.
      const float code = e2m1_value(get_code(slab, row, col));
      const float exact = mul(code, ue4m3_value(get_scale(slab, row, col)));
      values.push_back(canonical(mul(exact, expert_scale)));
    }
  }
  return values;
}

bool global_scale_legal(float global_scale, GlobalScale kind) {
  return positive_finite(global_scale) &&
         positive_finite(imported_expert_scale(global_scale, kind));
}

float imported_expert_scale(float global_scale, GlobalScale kind) {
  return kind == GlobalScale::kDirect ? global_scale : div(1.0f, global_scale);
}

Slab import_nvfp4(const Checkpoint& checkpoint, Format format, InvalidScales* invalid,
                  std::int64_t expert) {
  Slab slab(format, checkpoint.rows, checkpoint.cols);
  for (std::int64_t row = 0; row < checkpoint.rows; ++row) {
    for (std::int64_t col = 0; col < checkpoint.cols; ++col) {
      const std::uint8_t byte = checkpoint.codes[at(row * (checkpoint.cols / 2) + col / 2)];
      set_code(slab, row, col, col % 2 == 0 ? byte & 15 : byte >> 4);
      if (col % 16 != 0) continue;
      std::uint8_t scale = checkpoint.scales[at(row * (checkpoint.cols / 16) + col / 16)];
      if (!ue4m3_legal(scale)) {
        if (invalid != nullptr) note_invalid(*invalid, expert, row, col);
        if (format == Format::kV2) scale = 0x00;
      }
      set_scale(slab, row, col, scale);
    }
  }
  return slab;
}

Checkpoint export_nvfp4(const Slab& slab) {
  Checkpoint checkpoint;
  checkpoint.rows = slab.rows;
  checkpoint.cols = slab.cols;
  for (std::int64_t row = 0; row < slab.rows; ++row) {
    for (std::int64_t col = 0; col < slab.cols; col += 2) {
      const int low = get_code(slab, row, col);
      const int high = get_code(slab, row, col + 1);
      checkpoint.codes.push_back(static_cast<std::uint8_t>(low | high << 4));
      if (col % 16 == 0) checkpoint.scales.push_back(get_scale(slab, row, col));
    }
  }
  return checkpoint;
}

}  // namespace memra::reference
