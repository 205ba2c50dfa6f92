// The stages of the grouped path by themselves.

#include <algorithm>
#include <cstdint>

#include "cpu/grouped.h"
#include "cpu/grouped_tiles.h"
#include "numerics/activation.h"

namespace memra::cpu {

std::int32_t F16Rows::exponent(std::int64_t source_row) const {
  const std::int8_t* const all = exponents + source_row * exponents_per_row;
  std::int32_t largest = numerics::kMinNormalExponent;
  for (std::int64_t i = 0; i < exponents_per_row; ++i) {
    if (all[i] == kNotFinite) return kNotFinite;
    largest = std::max<std::int32_t>(largest, all[i]);
  }
  return largest;
}

float F16Rows::scale(std::int64_t row) const {
  const std::int64_t from = source(row);
  if (zs != nullptr) return zs[from];
  const std::int32_t k = exponent(from);
  return k == kNotFinite ? numerics::bits_float(numerics::kCanonicalNan)
                         : numerics::power_of_two(k);
}

void F16Rows::widen(const GroupedKernels& kernels, std::int64_t first_row, std::int64_t rows,
                    std::int64_t begin, std::int64_t count, float* out) const {
  for (std::int64_t r = 0; r < rows; ++r, out += kTileDepth) {
    const std::int64_t from = source(first_row + r);
    const std::uint16_t* const values = z + from * columns + begin;
    if (zs != nullptr || exponents_per_row == 1) {
      kernels.widen(values, 1.0f, out, count);
      continue;
    }
    const std::int32_t whole = exponent(from);
    for (std::int64_t i = 0; i < count; i += kBlock) {
      const std::int8_t k = exponents[from * exponents_per_row + (begin + i) / kBlock];
      // What is no normal float beside the row's largest value adds nothing to the sum.
      const bool counts = whole != kNotFinite && k - whole >= numerics::kMinNormalExponent;
      kernels.widen(values + i, counts ? numerics::power_of_two(k - whole) : 0.0f, out + i, kBlock);
    }
  }
}

void gather_f16(const memra_moe_gather_f16_args& args, const GroupedKernels& kernels,
                ThreadPool& pool) {
  const std::int64_t element = args.x_dtype == MEMRA_F32 ? 4 : 2;
  const std::int64_t rows = args.row_count != nullptr
                                ? std::clamp<std::int64_t>(*args.row_count, 0, args.rows)
                                : args.rows;
  pool.parallel_for(rows, [&](std::int64_t row) {
    auto* const z = static_cast<std::uint16_t*>(args.z) + row * args.columns;
    const std::int64_t entry = args.index != nullptr ? args.index[row] : row;
    const std::int64_t from = entry / args.top_k;
    if (entry < 0 || from >= args.source_rows) {
      std::fill_n(z, args.columns, std::uint16_t{0});
      args.zs[row] = 1.0f;
      return;
    }
    const auto* const x = static_cast<const std::uint8_t*>(args.x) + from * args.x_stride * element;
    const std::int8_t k = kernels.narrow({x, args.x_dtype, args.columns, z});
    args.zs[row] =
        k == kNotFinite ? numerics::bits_float(numerics::kCanonicalNan) : numerics::power_of_two(k);
  });
}

void grouped_gemm(const memra_moe_grouped_gemm_args& args, const GroupedKernels& kernels,
                  ThreadPool& pool) {
  const F16Rows x{
      .z = static_cast<const std::uint16_t*>(args.z), .columns = args.columns, .zs = args.zs};
  const ExpertRows experts{args.n_active, args.active_experts, args.offsets, args.n_experts,
                           args.rows};
  const std::int64_t plane = args.plane * args.n_experts;
  for_tiles(experts, args.outputs, pool, [&](const Tile& tile) {
    const bool known = tile.expert >= 0 && tile.expert < args.n_experts;
    const std::int64_t entry = plane + (known ? tile.expert : 0);
    const auto* const slab = known ? static_cast<const std::uint8_t*>(args.ptrs[entry]) : nullptr;
    float* out = args.out + tile.row * args.outputs + tile.output;
    if (slab == nullptr) {
      for (std::int64_t r = 0; r < tile.rows; ++r, out += args.outputs)
        std::fill_n(out, tile.outputs, 0.0f);
      return;
    }
    TileSums<1> sums;
    sums.compute(kernels, x, tile, {{slab, args.format, args.outputs}}, 0);
    const float scale = args.scales != nullptr ? args.scales[entry] : 1.0f;
    const float* const bias = args.bias != nullptr ? args.bias[entry] : nullptr;
    for (std::int64_t r = 0; r < tile.rows; ++r, out += args.outputs) {
      const float* const dots = sums.row(0, r);
      for (std::int64_t i = 0; i < tile.outputs; ++i) {
        out[i] = numerics::canon(numerics::plane_value(
            dots[i], scale, bias != nullptr, bias != nullptr ? bias[tile.output + i] : 0.0f));
      }
    }
  });
}

}  // namespace memra::cpu
