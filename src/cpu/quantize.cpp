// memra_quantize_nvfp4: floats to slabs.

#include <atomic>
#include <cstdint>

#include "cpu/scale_audit.h"
#include "cpu/weights.h"
#include "numerics/half.h"
#include "numerics/nvfp4_layout.h"
#include "numerics/quantize_nvfp4.h"

namespace memra::cpu {
namespace {

namespace nv = memra::numerics;

template <class Type>
float load(const memra_quantize_args& args, std::int64_t expert, std::int64_t row,
           std::int64_t column) {
  return nv::load_as_f32<Type>(args.src,
                               expert * args.src_stride + row * args.src_row_stride + column);
}

void raise_to(float& shared_maximum, float value) {
  const std::atomic_ref maximum(shared_maximum);
  float current = maximum.load(std::memory_order_relaxed);
  while (value > current &&
         !maximum.compare_exchange_weak(current, value, std::memory_order_relaxed)) {
  }
}

// Leaves amax / (6 * 448) of each matrix in expert_scales.
template <class Type>
void compute_scales(const memra_quantize_args& args, ThreadPool& pool) {
  for (std::int64_t e = 0; e < args.n_experts; ++e)
    args.expert_scales[e] = 0.0f;
  const std::int64_t blocks = args.rows / nv::kRowMultiple;
  pool.parallel_for(args.n_experts * blocks, [&](std::int64_t unit) {
    const std::int64_t expert = unit / blocks, begin = unit % blocks * nv::kRowMultiple;
    float amax = 0.0f;
    for (std::int64_t r = begin; r < begin + nv::kRowMultiple; ++r) {
      for (std::int64_t c = 0; c < args.columns; ++c) {
        amax = nv::amax_step(amax, load<Type>(args, expert, r, c));
      }
    }
    raise_to(args.expert_scales[expert], amax);
  });
  for (std::int64_t e = 0; e < args.n_experts; ++e) {
    args.expert_scales[e] = nv::expert_scale_from_amax(args.expert_scales[e]);
  }
}

// 16 values: eight code bytes, and the scale byte as the result.
std::uint32_t encode_block(const float* x, float expert_scale, std::uint8_t* codes) {
  float amax = 0.0f;
  for (int i = 0; i < nv::kScaleBlock; ++i)
    amax = nv::amax_step(amax, x[i]);
  const std::uint32_t scale = nv::block_scale_code(amax, expert_scale);
  const float step = nv::block_step(scale, expert_scale);
  for (int i = 0; i < 8; ++i) {
    codes[i] =
        static_cast<std::uint8_t>(nv::value_code(x[i], step) | nv::value_code(x[i + 8], step) << 4);
  }
  return scale;
}

template <class Layout, class Type>
void quantize_as(const memra_quantize_args& args, ThreadPool& pool) {
  if (args.compute_expert_scale != 0) compute_scales<Type>(args, pool);
  ScaleAudit audit;
  const std::int64_t row_blocks = args.rows / nv::kRowMultiple;
  pool.parallel_for(args.n_experts * row_blocks, [&](std::int64_t unit) {
    const std::int64_t expert = unit / row_blocks, begin = unit % row_blocks * nv::kRowMultiple;
    std::uint8_t* const dst =
        static_cast<std::uint8_t*>(args.dst) + static_cast<std::uint64_t>(expert) * args.dst_stride;
    const float scale = args.expert_scales[expert];
    const bool usable = nv::is_finite(scale) && scale > 0.0f;
    ScaleAudit::Part part;
    for (std::int64_t r = begin; r < begin + nv::kRowMultiple; ++r) {
      for (std::int64_t b = 0; b < args.columns / nv::kScaleBlock; ++b) {
        float x[nv::kScaleBlock];
        for (int i = 0; i < nv::kScaleBlock; ++i) {
          x[i] = load<Type>(args, expert, r, b * nv::kScaleBlock + i);
          part.found.non_finite += nv::is_finite(x[i]) ? 0 : 1;
          if (!usable) x[i] = 0.0f;
        }
        std::uint8_t* const codes =
            dst + Layout::group_codes(args.rows, args.columns, r, b / 2) + b % 2 * 8;
        dst[Layout::scale_byte(args.rows, args.columns, r, b)] =
            static_cast<std::uint8_t>(encode_block(x, usable ? scale : 1.0f, codes));
      }
    }
    audit.merge(part);
  });
  audit.write(args.report);
}

template <class Layout>
void quantize_to(const memra_quantize_args& args, ThreadPool& pool) {
  if (args.src_dtype == MEMRA_F32) return quantize_as<Layout, nv::F32>(args, pool);
  if (args.src_dtype == MEMRA_F16) return quantize_as<Layout, nv::F16>(args, pool);
  quantize_as<Layout, nv::Bf16>(args, pool);
}

}  // namespace

void quantize_nvfp4(const memra_quantize_args& args, ThreadPool& pool) {
  if (args.format == MEMRA_NVFP4) return quantize_to<nv::LayoutV1>(args, pool);
  quantize_to<nv::LayoutV2>(args, pool);
}

}  // namespace memra::cpu
