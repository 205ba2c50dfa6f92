#include "cpu/weights.h"

#include <algorithm>
#include <cstring>

#include "cpu/scale_audit.h"
#include "numerics/half.h"
#include "numerics/nvfp4_layout.h"
#include "numerics/quantize_nvfp4.h"
#include "numerics/ue4m3.h"

namespace memra::cpu {
namespace {

namespace nv = memra::numerics;

// Bytes of a unit of a plain copy or fill.
constexpr std::uint64_t kCopyUnit = 1 << 20;

// A slice with its counts spelt out.
memra_slice whole(memra_slice slice, std::int64_t rows, std::int64_t columns) {
  if (slice.row_count == 0) slice.row_count = rows - slice.row_begin;
  if (slice.column_count == 0) slice.column_count = columns - slice.column_begin;
  return slice;
}

// Calls body(expert, row_block) for each block of 8 rows of each expert.
template <class Body>
void for_row_blocks(std::int64_t n_experts, std::int64_t rows, ThreadPool& pool, const Body& body) {
  const std::int64_t blocks = rows / nv::kRowMultiple;
  pool.parallel_for(n_experts * blocks,
                    [&](std::int64_t unit) { body(unit / blocks, unit % blocks); });
}

const std::uint8_t* bytes_at(const void* base, std::uint64_t offset) {
  return static_cast<const std::uint8_t*>(base) + offset;
}
std::uint8_t* bytes_at(void* base, std::uint64_t offset) {
  return static_cast<std::uint8_t*>(base) + offset;
}

struct RepackBatch {
  const void* src;
  std::uint64_t src_stride;
  std::int64_t first_expert, n_experts;
};

// V1 slabs of `batch`, the first of them at batch.src, to their places in args.dst.
void repack_batch(const memra_repack_args& args, const memra_slice& slice, const RepackBatch& batch,
                  ScaleAudit& audit, ThreadPool& pool) {
  for_row_blocks(batch.n_experts, slice.row_count, pool, [&](std::int64_t e, std::int64_t block) {
    const std::int64_t expert = batch.first_expert + e;
    const std::uint8_t* const src =
        bytes_at(batch.src, static_cast<std::uint64_t>(e) * batch.src_stride);
    std::uint8_t* const dst =
        bytes_at(args.dst, static_cast<std::uint64_t>(expert) * args.dst_stride);
    ScaleAudit::Part part;
    for (std::int64_t r = block * nv::kRowMultiple; r < (block + 1) * nv::kRowMultiple; ++r) {
      const std::int64_t src_row = slice.row_begin + r;
      for (std::int64_t g = 0; g < slice.column_count / nv::kGroupValues; ++g) {
        const std::int64_t src_group = slice.column_begin / nv::kGroupValues + g;
        std::memcpy(dst + nv::LayoutV2::group_codes(slice.row_count, slice.column_count, r, g),
                    src + nv::LayoutV1::group_codes(args.rows, args.columns, src_row, src_group),
                    nv::kGroupCodeBytes);
        const std::uint8_t* const from =
            src + nv::LayoutV1::group_scales(args.rows, args.columns, src_row, src_group);
        std::uint8_t* const to =
            dst + nv::LayoutV2::group_scales(slice.row_count, slice.column_count, r, g);
        for (std::int64_t i = 0; i < nv::kGroupScaleBytes; ++i) {
          part.see(from[i], expert, src_row, src_group * nv::kGroupScaleBytes + i);
          to[i] = static_cast<std::uint8_t>(nv::ue4m3_sanitize(from[i]));
        }
      }
    }
    audit.merge(part);
  });
}

// Values w and w + 8 of a half share a byte of a slab; a checkpoint's bytes hold neighbours.
void import_half(const std::uint8_t* src, std::uint8_t* dst) {
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = src[i], high = src[4 + i];
    dst[2 * i] = static_cast<std::uint8_t>((low & 15u) | (high & 15u) << 4);
    dst[2 * i + 1] = static_cast<std::uint8_t>(low >> 4 | (high & 0xF0u));
  }
}

template <class Layout, bool kSanitize>
void import_as(const memra_import_args& args, ThreadPool& pool) {
  const memra_slice slice = whole(args.slice, args.rows, args.columns);
  ScaleAudit audit;
  for_row_blocks(args.n_experts, slice.row_count, pool, [&](std::int64_t e, std::int64_t block) {
    const auto expert = static_cast<std::uint64_t>(e);
    const std::uint8_t* const codes = bytes_at(args.codes, expert * args.codes_stride);
    const std::uint8_t* const scales = bytes_at(args.scales, expert * args.scales_stride);
    std::uint8_t* const dst = bytes_at(args.dst, expert * args.dst_stride);
    ScaleAudit::Part part;
    for (std::int64_t r = block * nv::kRowMultiple; r < (block + 1) * nv::kRowMultiple; ++r) {
      const std::int64_t src_row = slice.row_begin + r;
      for (std::int64_t b = 0; b < slice.column_count / nv::kScaleBlock; ++b) {
        const std::int64_t src_block = slice.column_begin / nv::kScaleBlock + b;
        const std::uint32_t scale = scales[src_row * (args.columns / nv::kScaleBlock) + src_block];
        part.see(scale, e, src_row, src_block);
        dst[Layout::scale_byte(slice.row_count, slice.column_count, r, b)] =
            static_cast<std::uint8_t>(kSanitize ? nv::ue4m3_sanitize(scale) : scale);
        import_half(
            codes + (src_row * args.columns + src_block * nv::kScaleBlock) / 2,
            dst + Layout::group_codes(slice.row_count, slice.column_count, r, b / 2) + b % 2 * 8);
      }
    }
    audit.merge(part);
  });
  audit.write(args.report);
}

template <class Layout, class Type>
void dequantize_as(const memra_dequantize_args& args, ThreadPool& pool) {
  const memra_slice slice = whole(args.slice, args.rows, args.columns);
  for_row_blocks(args.n_experts, slice.row_count, pool, [&](std::int64_t e, std::int64_t block) {
    const std::uint8_t* const src =
        bytes_at(args.src, static_cast<std::uint64_t>(e) * args.src_stride);
    const float expert_scale = args.expert_scales != nullptr ? args.expert_scales[e] : 1.0f;
    for (std::int64_t r = block * nv::kRowMultiple; r < (block + 1) * nv::kRowMultiple; ++r) {
      const std::int64_t src_row = slice.row_begin + r;
      const std::int64_t dst = e * args.dst_stride + r * args.dst_row_stride;
      for (std::int64_t b = 0; b < slice.column_count / nv::kScaleBlock; ++b) {
        const std::int64_t src_block = slice.column_begin / nv::kScaleBlock + b;
        const float scale =
            nv::ue4m3_decode(src[Layout::scale_byte(args.rows, args.columns, src_row, src_block)]);
        const std::uint8_t* const codes =
            src + Layout::group_codes(args.rows, args.columns, src_row, src_block / 2) +
            src_block % 2 * 8;
        const std::int64_t to = dst + b * nv::kScaleBlock;
        for (int i = 0; i < 8; ++i) {
          nv::store_from_f32<Type>(args.dst, to + i,
                                   nv::dequantize_value(codes[i] & 15u, scale, expert_scale));
          nv::store_from_f32<Type>(
              args.dst, to + i + 8,
              nv::dequantize_value(static_cast<std::uint32_t>(codes[i]) >> 4, scale, expert_scale));
        }
      }
    }
  });
}

template <class Layout>
void dequantize_from(const memra_dequantize_args& args, ThreadPool& pool) {
  if (args.dst_dtype == MEMRA_F32) return dequantize_as<Layout, nv::F32>(args, pool);
  if (args.dst_dtype == MEMRA_F16) return dequantize_as<Layout, nv::F16>(args, pool);
  dequantize_as<Layout, nv::Bf16>(args, pool);
}

}  // namespace

void repack_v2(const memra_repack_args& args, ThreadPool& pool) {
  const memra_slice slice = whole(args.slice, args.rows, args.columns);
  ScaleAudit audit;
  if (args.dst != args.src) {
    repack_batch(args, slice, {args.src, args.src_stride, 0, args.n_experts}, audit, pool);
  } else {
    // Some slabs at a time go through the workspace. A slab's new place ends before the old place
    // of the next one begins, so nothing is overwritten before it is read.
    const auto slab = static_cast<std::uint64_t>(nv::slab_bytes(args.rows, args.columns));
    const auto batch = static_cast<std::int64_t>(args.workspace_bytes / slab);
    for (std::int64_t first = 0; first < args.n_experts; first += batch) {
      const std::int64_t count = std::min(batch, args.n_experts - first);
      for (std::int64_t e = 0; e < count; ++e) {
        copy_bytes(bytes_at(args.workspace, static_cast<std::uint64_t>(e) * slab),
                   bytes_at(args.src, static_cast<std::uint64_t>(first + e) * args.src_stride),
                   slab, pool);
      }
      repack_batch(args, slice, {args.workspace, slab, first, count}, audit, pool);
    }
  }
  audit.write(args.report);
}

void import_nvfp4(const memra_import_args& args, ThreadPool& pool) {
  if (args.format == MEMRA_NVFP4) return import_as<nv::LayoutV1, false>(args, pool);
  import_as<nv::LayoutV2, true>(args, pool);
}

void dequantize(const memra_dequantize_args& args, ThreadPool& pool) {
  if (args.format == MEMRA_NVFP4) return dequantize_from<nv::LayoutV1>(args, pool);
  dequantize_from<nv::LayoutV2>(args, pool);
}

void copy_bytes(void* dst, const void* src, std::uint64_t bytes, ThreadPool& pool) {
  pool.parallel_for(
      static_cast<std::int64_t>((bytes + kCopyUnit - 1) / kCopyUnit), [&](std::int64_t unit) {
        const std::uint64_t begin = static_cast<std::uint64_t>(unit) * kCopyUnit;
        std::memcpy(bytes_at(dst, begin), bytes_at(src, begin), std::min(kCopyUnit, bytes - begin));
      });
}

void fill_bytes(void* dst, std::int32_t value, std::uint64_t bytes, ThreadPool& pool) {
  pool.parallel_for(
      static_cast<std::int64_t>((bytes + kCopyUnit - 1) / kCopyUnit), [&](std::int64_t unit) {
        const std::uint64_t begin = static_cast<std::uint64_t>(unit) * kCopyUnit;
        std::memset(bytes_at(dst, begin), value & 0xFF, std::min(kCopyUnit, bytes - begin));
      });
}

}  // namespace memra::cpu
