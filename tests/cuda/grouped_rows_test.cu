// What the stages around the grouped path's matrix kernels leave in memory, bit for bit: the order
// of f16 activations is the backend's own, so it is told here and not through the ABI.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "grouped.h"
#include "grouped_activation.cuh"
#include "grouped_fragment.cuh"
#include "grouped_layout.cuh"
#include "grouped_pairs.cuh"
#include "numerics/dot.h"
#include "numerics/f16_rows.h"
#include "numerics/half.h"
#include "world.h"

namespace memra::cuda {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceBuffer;

constexpr memra_dtype kDtypes[] = {MEMRA_F32, MEMRA_F16, MEMRA_BF16};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename T>
std::vector<T> download(const DeviceBuffer& buffer) {
  const std::vector<uint8_t> bytes = buffer.bytes();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Values as they are in a type, in rows that are `stride` apart.
struct Matrix {
  memra_dtype dtype;
  int64_t rows, columns, stride;
  std::vector<uint8_t> bytes;

  Matrix(memra_dtype dtype_in, int64_t rows_in, int64_t columns_in)
      : dtype(dtype_in),
        rows(rows_in),
        columns(columns_in),
        stride(columns_in + 8),
        bytes(static_cast<size_t>(rows * stride * (dtype == MEMRA_F32 ? 4 : 2)), 0xFF) {}

  void set(int64_t row, int64_t column, float value) {
    const int64_t at = row * stride + column;
    switch (dtype) {
      case MEMRA_F16:
        return numerics::store_from_f32<numerics::F16>(bytes.data(), at, value);
      case MEMRA_BF16:
        return numerics::store_from_f32<numerics::Bf16>(bytes.data(), at, value);
      default:
        return numerics::store_from_f32<numerics::F32>(bytes.data(), at, value);
    }
  }
  float get(int64_t row, int64_t column) const {
    const int64_t at = row * stride + column;
    switch (dtype) {
      case MEMRA_F16:
        return numerics::load_as_f32<numerics::F16>(bytes.data(), at);
      case MEMRA_BF16:
        return numerics::load_as_f32<numerics::Bf16>(bytes.data(), at);
      default:
        return numerics::load_as_f32<numerics::F32>(bytes.data(), at);
    }
  }
};

// Rows of many magnitudes, of zeros, of tiny values, and with a NaN or an Inf.
Matrix make_rows(memra_dtype dtype, int64_t rows, int64_t columns, uint32_t seed) {
  Matrix x(dtype, rows, columns);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const int exponent = dtype == MEMRA_F16 ? static_cast<int>(random() % 40) - 25
                                            : static_cast<int>(random() % 250) - 126;
    for (int64_t column = 0; column < columns; ++column) {
      const float value = std::ldexp(uniform(random), exponent);
      const bool is_tiny = row % 7 == 5;
      x.set(row, column, row % 7 == 1 ? -0.0f : is_tiny ? 1e-41f * value : value);
    }
    if (row % 7 == 2) x.set(row, static_cast<int64_t>(random() % columns), kNan);
    if (row % 7 == 3) x.set(row, columns - 1, -kInf);
    if (row % 7 == 4) x.set(row, 0, dtype == MEMRA_F16 ? 65504.0f : 3e38f);
  }
  return x;
}

// z and zs on the host, as they must be. Rows begin as poison.
struct Rows {
  int64_t rows, columns;
  std::vector<uint16_t> z;
  std::vector<uint32_t> zs;

  Rows(int64_t rows_in, int64_t columns_in)
      : rows(rows_in),
        columns(columns_in),
        z(static_cast<size_t>(rows * columns), 0xFFFF),
        zs(static_cast<size_t>(rows), 0xFFFFFFFF) {}

  // source < 0: a row of zeros.
  void set(int64_t row, const Matrix& x, int64_t source) {
    uint32_t amax = 0;
    for (int64_t i = 0; i < columns && source >= 0; ++i)
      amax = std::max(amax, numerics::magnitude_bits(x.get(source, i)));
    const bool is_finite = amax < numerics::kInfBits;
    const int32_t k = is_finite ? numerics::f16_exponent(amax) : 0;
    zs[static_cast<size_t>(row)] =
        is_finite ? numerics::float_bits(numerics::power_of_two(k)) : numerics::kCanonicalNan;
    for (int64_t position = 0; position < columns; ++position) {
      const bool is_zero = source < 0 || !is_finite;
      z[static_cast<size_t>(z_index(rows, row, position))] =
          is_zero ? uint16_t{0}
                  : numerics::f16_scaled(x.get(source, column_at(columns, position)), k);
    }
  }
};

class CudaGroupedRows : public CudaTest {
 protected:
  static constexpr int64_t kSources = 15;
  // Less than a block of 128, one and a half, and more than a block of threads reads at once.
  static constexpr int64_t kWidths[] = {64, 128, 192, 704, 4096, 4160, 8192, 8256};

  void expect_rows(const Rows& expected, const DeviceBuffer& z, const DeviceBuffer& zs) {
    ASSERT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(download<uint16_t>(z), expected.z) << expected.columns;
    EXPECT_EQ(download<uint32_t>(zs), expected.zs) << expected.columns;
  }

  Device device_;  // without dependent launch
};

TEST_F(CudaGroupedRows, Gather) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  for (const int64_t columns : kWidths) {
    for (const memra_dtype dtype : kDtypes) {
      const Matrix x = make_rows(dtype, kSources, columns, 3);
      const DeviceBuffer in(x.bytes);
      for (const int64_t top_k : {1, 3}) {
        std::vector<int32_t> index = {kMin, -1, kMax, static_cast<int32_t>(kSources * top_k)};
        for (int32_t i = 0; i < kSources * top_k; i += 2)
          index.push_back(i * 7 % static_cast<int32_t>(kSources * top_k));
        const auto rows = static_cast<int64_t>(index.size());
        const int64_t count = rows - 2;
        const DeviceBuffer indices(index),
            row_count(std::vector<int32_t>{static_cast<int32_t>(count)});
        const DeviceBuffer z(static_cast<size_t>(rows * columns * 2)),
            zs(static_cast<size_t>(rows * 4));
        memra_moe_gather_f16_args args = MEMRA_MOE_GATHER_F16_ARGS_INIT;
        args.x_dtype = dtype;
        args.x = in.as();
        args.x_stride = x.stride;
        args.source_rows = kSources;
        args.rows = rows;
        args.columns = columns;
        args.z = z.as();
        args.zs = zs.as<float>();
        args.index = indices.as<int32_t>();
        args.top_k = top_k;
        args.row_count = row_count.as<int32_t>();
        ASSERT_EQ(gather_f16(device_, args, {}), MEMRA_OK);
        Rows expected(rows, columns);
        for (int64_t row = 0; row < count; ++row) {
          const int64_t entry = index[static_cast<size_t>(row)];
          expected.set(row, x, entry >= 0 && entry / top_k < kSources ? entry / top_k : -1);
        }
        expect_rows(expected, z, zs);
      }
    }
  }
}

TEST_F(CudaGroupedRows, Scatter) {
  for (const int64_t columns : kWidths) {
    for (const memra_dtype dtype : kDtypes) {
      for (const int64_t top_k : {1, 5, MEMRA_MAX_TOP_K}) {
        const Matrix x = make_rows(dtype, kSources, columns, 4);
        std::vector<int32_t> inverse(static_cast<size_t>(kSources * top_k));
        for (size_t i = 0; i < inverse.size(); ++i)
          inverse[i] = static_cast<int32_t>(i);
        std::shuffle(inverse.begin(), inverse.end(), std::mt19937(5));
        for (int32_t& place : inverse)
          place = place % 4 == 1 ? -1 : place;
        const int64_t rows = kSources * top_k;
        const DeviceBuffer in(x.bytes), places(inverse);
        const DeviceBuffer z(static_cast<size_t>(rows * columns * 2)),
            zs(static_cast<size_t>(rows * 4));
        ScatterF16Args args;
        args.x = in.as();
        args.x_dtype = dtype;
        args.x_stride = x.stride;
        args.tokens = kSources;
        args.top_k = top_k;
        args.columns = columns;
        args.inverse = places.as<int32_t>();
        args.z = z.as();
        args.zs = zs.as<float>();
        ASSERT_EQ(scatter_f16(device_, args, {}), MEMRA_OK);
        Rows expected(rows, columns);
        for (size_t pair = 0; pair < inverse.size(); ++pair) {
          if (inverse[pair] >= 0) {
            expected.set(inverse[pair], x, static_cast<int64_t>(pair) / top_k);
          }
        }
        expect_rows(expected, z, zs);
      }
    }
  }
}

// Pairs of local experts [2, 8), of which expert 4 has no bias, and some that are skipped.
class CudaSumSlots : public CudaTest {
 protected:
  static constexpr int64_t kTokens = 5, kLocal = 6, kOffset = 2;

  struct Case {
    int64_t columns, top_k;
    memra_dtype dtype;
    bool bias, accumulate;
  };

  std::vector<float> random_values(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values)
      value = normal(random_);
    return values;
  }

  void expect_sums(const Case& c) {
    const int64_t n_pairs = kTokens * c.top_k;
    std::vector<int32_t> inverse, ids;
    for (int64_t pair = 0; pair < n_pairs; ++pair) {
      // The second token has no pair at all.
      const bool is_last = pair + 1 == n_pairs;
      const bool is_skipped = !is_last && (pair / c.top_k == 1 || random_() % 4 == 0);
      inverse.push_back(is_skipped ? -1 : static_cast<int32_t>(n_pairs - 1 - pair));
      ids.push_back(is_skipped ? std::numeric_limits<int32_t>::min()
                               : static_cast<int32_t>(kOffset + random_() % kLocal));
    }
    std::vector<float> weights = random_values(n_pairs);
    weights[0] = 0.0f;
    const std::vector<float> scales = random_values(kLocal);
    const std::vector<float> bias = random_values(kLocal * c.columns);
    std::vector<float> out = random_values(n_pairs * c.columns);
    out[3] = kNan;
    // The scale of the last pair's row times its weight is beyond f32, and what it gives is not.
    weights.back() = 64.0f;
    for (int64_t column = 0; column < c.columns; ++column)
      out[static_cast<size_t>(column)] *= 0x1p-100f;
    std::vector<int8_t> exponents;
    for (int64_t place = 0; place < n_pairs; ++place)
      exponents.push_back(place == 0 ? static_cast<int8_t>(kMostExponent)
                          : place == n_pairs / 2
                              ? kNotFinite
                              : static_cast<int8_t>(static_cast<int>(random_() % 7) - 17));
    std::vector<uint32_t> packed;
    for (size_t i = 0; i < out.size(); i += 2) {
      packed.push_back(pack_outputs(out[i], out[i + 1]));
      const OutputPair kept = unpack_outputs(packed.back());
      const float scale = row_scale(exponents[i / static_cast<size_t>(c.columns)]) * kWeightUnit;
      out[i] = kept.first * scale;
      out[i + 1] = kept.second * scale;
    }
    const DeviceBuffer inverse_in(inverse), ids_in(ids), weights_in(weights), scales_in(scales),
        bias_in(bias), packed_in(packed), exponents_in(exponents);
    std::vector<const float*> bias_rows;
    for (int64_t e = 0; e < kLocal; ++e)
      bias_rows.push_back(e == 2 ? nullptr : bias_in.as<float>() + e * c.columns);
    const DeviceBuffer bias_table(bias_rows);
    Matrix y(c.dtype, kTokens, c.columns);
    for (int64_t i = 0; i < kTokens * c.columns; ++i)
      y.set(i / c.columns, i % c.columns, 0.37f * static_cast<float>(i % 11));
    const DeviceBuffer y_out(y.bytes);
    SumSlotsArgs args;
    args.tokens = kTokens;
    args.top_k = c.top_k;
    args.columns = c.columns;
    args.inverse = inverse_in.as<int32_t>();
    args.exponents = exponents_in.as<int8_t>();
    args.topk_ids = ids_in.as<int32_t>();
    args.topk_weights = weights_in.as<float>();
    args.local_expert_offset = kOffset;
    args.scales = scales_in.as<float>();
    if (c.bias) args.bias = bias_table.as<const float*>();
    args.y = y_out.as();
    args.y_dtype = c.dtype;
    args.y_stride = y.stride;
    args.accumulate = c.accumulate;
    ASSERT_EQ(sum_slots(device_, args, packed_in.as<uint32_t>(), {}), MEMRA_OK);
    ASSERT_CUDA(cudaDeviceSynchronize());
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t column = 0; column < c.columns; ++column) {
        float sum = c.accumulate ? y.get(token, column) : 0.0f;
        for (int64_t pair = token * c.top_k; pair < (token + 1) * c.top_k; ++pair) {
          const auto at = static_cast<size_t>(pair);
          if (inverse[at] < 0) continue;
          const auto expert = static_cast<size_t>(ids[at] - kOffset);
          sum =
              numerics::slot_step(numerics::pair_scale(weights[at], scales[expert]),
                                  out[static_cast<size_t>(inverse[at] * c.columns + column)], sum);
          if (!c.bias || bias_rows[expert] == nullptr) continue;
          const size_t entry = expert * static_cast<size_t>(c.columns);
          sum =
              numerics::slot_bias_step(weights[at], bias[entry + static_cast<size_t>(column)], sum);
        }
        y.set(token, column, sum);
      }
    }
    EXPECT_EQ(y_out.bytes(), y.bytes) << c.columns << ", " << c.top_k << ", " << c.dtype;
  }

  Device device_;
  std::mt19937 random_{6};
};

TEST_F(CudaSumSlots, AreInTheOrderOfSlots) {
  for (const int64_t columns : {64, 192, 2048, 4160}) {
    for (const int64_t top_k : {1, 8, 13, MEMRA_MAX_TOP_K}) {
      for (const memra_dtype dtype : kDtypes) {
        for (const bool bias : {false, true})
          expect_sums({columns, top_k, dtype, bias, (columns / 64 + top_k) % 2 == 0});
      }
    }
  }
}

}  // namespace
}  // namespace memra::cuda
