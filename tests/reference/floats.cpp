#include "reference/floats.h"

#include <cmath>
#include <cstring>

namespace memra::reference {
namespace {

// An IEEE-like binary format of 16 bits: 1 sign bit, then exponent, then mantissa.
struct SmallFloat {
  int mantissa_bits;
  int bias;
  int exponent_mask;  // the exponent field of Inf and NaN
};
constexpr SmallFloat kF16Layout{10, 15, 0x1F};
constexpr SmallFloat kBF16Layout{7, 127, 0xFF};

float decode(const SmallFloat& layout, std::uint16_t bits) {
  const int mantissa = bits & ((1 << layout.mantissa_bits) - 1);
  const int exponent = (bits >> layout.mantissa_bits) & layout.exponent_mask;
  const float sign = (bits & 0x8000) ? -1.0f : 1.0f;
  if (exponent == layout.exponent_mask) {
    return mantissa ? canonical_nan() : sign * HUGE_VALF;
  }
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<float>(mantissa), 1 - layout.bias - layout.mantissa_bits);
  }
  const float significand = static_cast<float>(mantissa + (1 << layout.mantissa_bits));
  return sign * std::ldexp(significand, exponent - layout.bias - layout.mantissa_bits);
}

// x is not NaN. The double arithmetic here is exact but for the one rounding of nearbyint.
std::uint16_t encode(const SmallFloat& layout, float x) {
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(x));
  const int infinity = layout.exponent_mask << layout.mantissa_bits;
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  const int exponent = std::isinf(x) ? 1024 : std::ilogb(magnitude);
  if (exponent > layout.bias) return static_cast<std::uint16_t>(sign | infinity);

  const int lowest = 1 - layout.bias;
  const int scale = exponent < lowest ? lowest : exponent;
  // In units of the last place; a normal number has its hidden bit set here, which raises the
  // exponent field by one, as does a mantissa rounded up to the next power of two.
  const int units =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, layout.mantissa_bits - scale)));
  const int bits = ((scale - lowest) << layout.mantissa_bits) + units;
  return static_cast<std::uint16_t>(sign | bits);
}

template <typename T>
T load_as(std::span<const std::uint8_t> bytes, std::int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store_as(std::span<std::uint8_t> bytes, std::int64_t index, T value) {
  std::memcpy(bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

float f16_to_f32(std::uint16_t bits) {
  return decode(kF16Layout, bits);
}
float bf16_to_f32(std::uint16_t bits) {
  return decode(kBF16Layout, bits);
}

std::uint16_t f32_to_f16(float x) {
  return x != x ? kCanonicalNanF16 : encode(kF16Layout, x);
}
std::uint16_t f32_to_bf16(float x) {
  return x != x ? kCanonicalNanBF16 : encode(kBF16Layout, x);
}

std::int64_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

float load(std::span<const std::uint8_t> bytes, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::kF16:
      return f16_to_f32(load_as<std::uint16_t>(bytes, index));
    case DType::kBF16:
      return bf16_to_f32(load_as<std::uint16_t>(bytes, index));
    case DType::kF32:
      break;
  }
  return load_as<float>(bytes, index);
}

void store(std::span<std::uint8_t> bytes, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::kF16:
      return store_as(bytes, index, f32_to_f16(value));
    case DType::kBF16:
      return store_as(bytes, index, f32_to_bf16(value));
    case DType::kF32:
      break;
  }
  store_as(bytes, index, canonical(value));
}

std::int64_t strided_elements(std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + cols;
}

std::vector<float> widen(std::span<const std::uint8_t> bytes, DType dtype, std::int64_t rows,
                         std::int64_t cols, std::int64_t stride) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      values[static_cast<std::size_t>(r * cols + c)] = load(bytes, dtype, r * stride + c);
    }
  }
  return values;
}

std::vector<std::uint8_t> narrow(std::span<const float> values, DType dtype) {
  std::vector<std::uint8_t> bytes(values.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    store(bytes, dtype, static_cast<std::int64_t>(i), values[i]);
  }
  return bytes;
}

}  // namespace memra::reference
