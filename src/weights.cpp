// Conversions of weights.

#include <cfenv>

#include "check.h"
#include "entry.h"
#include "layer.h"
#include "memra.h"
#include "numerics/nvfp4_layout.h"
#include "numerics/platform.h"
#include "structs.h"
#include "weights_check.h"

namespace memra {
namespace {

using numerics::slab_bytes;

Status check_report(const memra_weight_report* report) {
  return check_optional_pointer(report, alignof(memra_weight_report), "report");
}

// dst == src: slab by slab through the workspace.
Status check_in_place(const memra_repack_args& args, const Area& slabs) {
  if (args.dst_stride > args.src_stride) {
    return invalid("dst_stride") << " is " << args.dst_stride << ": in place it must be at most "
                                 << "src_stride, " << args.src_stride;
  }
  const uint64_t needed = as_bytes(slab_bytes(args.rows, args.columns));
  if (args.workspace_bytes < needed) {
    return fail(MEMRA_ERROR_WORKSPACE_TOO_SMALL) << "workspace_bytes is " << args.workspace_bytes
                                                 << ": in place it must be at least " << needed;
  }
  MEMRA_TRY(check_pointer(args.workspace, MEMRA_WORKSPACE_ALIGNMENT, "workspace"));
  const Area workspace{.begin = args.workspace, .item_bytes = args.workspace_bytes};
  MEMRA_TRY(check_area(workspace, "workspace"));
  return check_apart(workspace, "workspace", slabs, "src");
}

Status check_repack(memra_repack_args* args) {
  MEMRA_TRY(check_reserved(args->reserved, "reserved"));
  MEMRA_TRY(take_slice(&args->slice, args->rows, args->columns));
  Area src;
  Area dst;
  MEMRA_TRY(take_slabs(args->src, &args->src_stride, MEMRA_NVFP4, args->rows, args->columns,
                       args->n_experts, "src", "src_stride", &src));
  MEMRA_TRY(take_slabs(args->dst, &args->dst_stride, MEMRA_NVFP4_V2, args->slice.row_count,
                       args->slice.column_count, args->n_experts, "dst", "dst_stride", &dst));
  MEMRA_TRY(check_report(args->report));
  if (args->dst == args->src) return check_in_place(*args, src);
  return check_apart(dst, "dst", src, "src");
}

// 1 / g to nearest, whatever rounding or flushing the caller's thread has set.
float reciprocal(float g) {
  std::fenv_t caller;
  std::fegetenv(&caller);
  std::fesetenv(FE_DFL_ENV);
  // Volatile, so that the division stays between the two.
  const volatile float divisor = g;
  const volatile float result = numerics::div(1.0f, divisor);
  std::fesetenv(&caller);
  return result;
}

float expert_scale(float g, memra_global_scale kind) {
  return kind == MEMRA_GLOBAL_SCALE_RECIPROCAL ? reciprocal(g) : g;
}

// On bits: comparisons would flush subnormals where the caller's thread says so.
bool is_positive(float value) {
  const uint32_t bits = numerics::float_bits(value);
  return bits > 0 && bits < numerics::kInfBits;
}

Status check_global_scales(const memra_import_args& args) {
  MEMRA_TRY(check_range(args.global_scale, MEMRA_GLOBAL_SCALE_DIRECT, MEMRA_GLOBAL_SCALE_RECIPROCAL,
                        "global_scale"));
  MEMRA_TRY(check_pointer(args.global_scales, alignof(float), "global_scales"));
  MEMRA_TRY(check_pointer(args.expert_scales, alignof(float), "expert_scales"));
  for (int64_t e = 0; e < args.n_experts; ++e) {
    const float g = args.global_scales[e];
    if (!is_positive(g)) {
      return invalid("global_scales") << "[" << e << "] is " << g << ": must be finite and above 0";
    }
    if (!is_positive(expert_scale(g, args.global_scale))) {
      return invalid("global_scales")
             << "[" << e << "] is " << g << ": its reciprocal must be finite and above 0";
    }
  }
  return MEMRA_OK;
}

Status check_import(memra_import_args* args) {
  MEMRA_TRY(check_reserved(args->reserved, "reserved"));
  MEMRA_TRY(check_format(args->format, "format"));
  MEMRA_TRY(take_slice(&args->slice, args->rows, args->columns));
  MEMRA_TRY(check_pointer(args->codes, 4, "codes"));
  MEMRA_TRY(check_pointer(args->scales, 4, "scales"));
  const uint64_t codes_bytes = as_bytes(args->rows * (args->columns / 2));
  const uint64_t scales_bytes = as_bytes(args->rows * (args->columns / 16));
  MEMRA_TRY(take_stride(&args->codes_stride, codes_bytes, codes_bytes, 4, "codes_stride"));
  MEMRA_TRY(take_stride(&args->scales_stride, scales_bytes, scales_bytes, 4, "scales_stride"));
  const uint64_t count = as_bytes(args->n_experts);
  const Area codes{.begin = args->codes,
                   .count = count,
                   .stride = args->codes_stride,
                   .item_bytes = codes_bytes};
  const Area scales{.begin = args->scales,
                    .count = count,
                    .stride = args->scales_stride,
                    .item_bytes = scales_bytes};
  Area dst;
  MEMRA_TRY(check_area(codes, "codes", "codes_stride"));
  MEMRA_TRY(check_area(scales, "scales", "scales_stride"));
  MEMRA_TRY(take_slabs(args->dst, &args->dst_stride, args->format, args->slice.row_count,
                       args->slice.column_count, args->n_experts, "dst", "dst_stride", &dst));
  MEMRA_TRY(check_apart(dst, "dst", codes, "codes"));
  MEMRA_TRY(check_apart(dst, "dst", scales, "scales"));
  MEMRA_TRY(check_report(args->report));
  return check_global_scales(*args);
}

Status check_quantize(memra_quantize_args* args) {
  MEMRA_TRY(check_format(args->format, "format"));
  MEMRA_TRY(check_dtype(args->src_dtype, "src_dtype"));
  MEMRA_TRY(check_range(args->compute_expert_scale, 0, 1, "compute_expert_scale"));
  Area src;
  Area dst;
  MEMRA_TRY(take_floats({.data = args->src,
                         .dtype = args->src_dtype,
                         .rows = args->rows,
                         .columns = args->columns,
                         .n_experts = args->n_experts,
                         .rows_aligned = true,
                         .name = "src",
                         .row_stride_name = "src_row_stride",
                         .stride_name = "src_stride"},
                        &args->src_row_stride, &args->src_stride, &src));
  MEMRA_TRY(take_slabs(args->dst, &args->dst_stride, args->format, args->rows, args->columns,
                       args->n_experts, "dst", "dst_stride", &dst));
  MEMRA_TRY(check_apart(dst, "dst", src, "src"));
  MEMRA_TRY(check_pointer(args->expert_scales, alignof(float), "expert_scales"));
  return check_report(args->report);
}

Status check_dequantize(memra_dequantize_args* args) {
  MEMRA_TRY(check_reserved(args->reserved, "reserved"));
  MEMRA_TRY(check_format(args->format, "format"));
  MEMRA_TRY(check_dtype(args->dst_dtype, "dst_dtype"));
  MEMRA_TRY(take_slice(&args->slice, args->rows, args->columns));
  Area src;
  Area dst;
  MEMRA_TRY(take_slabs(args->src, &args->src_stride, args->format, args->rows, args->columns,
                       args->n_experts, "src", "src_stride", &src));
  MEMRA_TRY(take_floats({.data = args->dst,
                         .dtype = args->dst_dtype,
                         .rows = args->slice.row_count,
                         .columns = args->slice.column_count,
                         .n_experts = args->n_experts,
                         .rows_aligned = false,
                         .name = "dst",
                         .row_stride_name = "dst_row_stride",
                         .stride_name = "dst_stride"},
                        &args->dst_row_stride, &args->dst_stride, &dst));
  MEMRA_TRY(check_apart(dst, "dst", src, "src"));
  return check_optional_pointer(args->expert_scales, alignof(float), "expert_scales");
}

// Reads the arguments, checks them and, where there is work, runs convert(backend, args).
template <typename Args, typename Check, typename Convert>
Status run_conversion(memra_engine* engine, const Args* caller, Check&& check, Convert&& convert) {
  return run_on(engine, [&](const EngineState& state) -> Status {
    Args args;
    MEMRA_TRY(read_struct(caller, "args", &args));
    bool work = false;
    MEMRA_TRY(check_matrices(args.rows, args.columns, args.n_experts, &work));
    if (!work) return MEMRA_OK;
    MEMRA_TRY(check(&args));
    return convert(*state.backend, args);
  });
}

}  // namespace
}  // namespace memra

using memra::Backend;
using memra::Status;

extern "C" {

memra_status memra_bank_bytes(memra_format format, int64_t rows, int64_t columns, int64_t n_experts,
                              uint64_t* stride, uint64_t* bytes) {
  MEMRA_TRY(memra::check_format(format, "format"));
  MEMRA_TRY(memra::check_optional_pointer(stride, alignof(uint64_t), "stride"));
  MEMRA_TRY(memra::check_optional_pointer(bytes, alignof(uint64_t), "bytes"));
  MEMRA_TRY(memra::check_range(n_experts, 0, memra::kMaxExperts, "n_experts"));
  bool work = false;
  MEMRA_TRY(memra::check_matrices(rows, columns, 1, &work));
  const uint64_t distance = work ? memra::packed_stride(format, rows, columns) : 0;
  if (stride != nullptr) *stride = distance;
  if (bytes != nullptr) *bytes = distance * memra::as_bytes(n_experts);
  return MEMRA_OK;
}

memra_status memra_repack_v2_workspace_size(int64_t rows, int64_t columns, uint64_t* bytes) {
  MEMRA_TRY(memra::check_out(bytes, "bytes"));
  bool work = false;
  MEMRA_TRY(memra::check_matrices(rows, columns, 1, &work));
  *bytes = work ? memra::as_bytes(memra::slab_bytes(rows, columns)) : 0;
  return MEMRA_OK;
}

memra_status memra_repack_v2(memra_engine* engine, const memra_repack_args* args,
                             memra_stream stream) {
  return memra::run_conversion(engine, args, memra::check_repack,
                               [&](Backend& backend, const memra_repack_args& full) {
                                 return backend.repack_v2(full, stream);
                               });
}

memra_status memra_import_nvfp4(memra_engine* engine, const memra_import_args* args,
                                memra_stream stream) {
  return memra::run_conversion(engine, args, memra::check_import,
                               [&](Backend& backend, const memra_import_args& full) -> Status {
                                 MEMRA_TRY(backend.import_nvfp4(full, stream));
                                 for (int64_t e = 0; e < full.n_experts; ++e) {
                                   full.expert_scales[e] = memra::expert_scale(
                                       full.global_scales[e], full.global_scale);
                                 }
                                 return MEMRA_OK;
                               });
}

memra_status memra_quantize_nvfp4(memra_engine* engine, const memra_quantize_args* args,
                                  memra_stream stream) {
  return memra::run_conversion(engine, args, memra::check_quantize,
                               [&](Backend& backend, const memra_quantize_args& full) {
                                 return backend.quantize_nvfp4(full, stream);
                               });
}

memra_status memra_dequantize(memra_engine* engine, const memra_dequantize_args* args,
                              memra_stream stream) {
  return memra::run_conversion(engine, args, memra::check_dequantize,
                               [&](Backend& backend, const memra_dequantize_args& full) {
                                 return backend.dequantize(full, stream);
                               });
}

}  // extern "C"
