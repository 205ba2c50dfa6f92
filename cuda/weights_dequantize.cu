// NVFP4 and NVFP4_V2 to floats.

#include "numerics/quantize_nvfp4.h"
#include "weights.h"
#include "weights_common.cuh"

namespace memra::cuda {
namespace {

struct DequantizeParams {
  Part part;
  const uint8_t* src;
  uint64_t src_stride;
  const float* expert_scales;  // or null
  void* dst;
  int64_t dst_row_stride;
  int64_t dst_stride;
  bool aligned;
};

template <class Layout, class Type>
__global__ void __launch_bounds__(kConvertThreads) dequantize_kernel(DequantizeParams p) {
  using Storage = typename Type::Storage;
  dependency_wait();
  const Part& part = p.part;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  if (unit * kUnitColumns >= part.columns) return;
  for_each_row_block(part, [&](int64_t expert, int64_t row_begin) {
    const uint8_t* src = p.src + expert * p.src_stride;
    const int64_t row = row_begin + threadIdx.y;
    const int64_t src_row = part.row_begin + row;
    // A unit is all low or all high nibbles of the 8 bytes of a half.
    const int64_t src_unit = part.column_begin / kUnitColumns + unit;
    const int64_t half = src_unit / 2;
    const auto* words = reinterpret_cast<const uint32_t*>(
        src + Layout::group_codes(part.source_rows, part.source_columns, src_row, half / 2) +
        half % 2 * (numerics::kGroupCodeBytes / 2));
    const uint32_t codes[2] = {words[0], words[1]};
    const int shift = src_unit % 2 * 4;
    const float block_scale = numerics::ue4m3_decode(
        src[Layout::scale_byte(part.source_rows, part.source_columns, src_row, half)]);
    const float expert_scale = p.expert_scales != nullptr ? p.expert_scales[expert] : 1.0f;
    Unit<Storage> out;
    for (int i = 0; i < kUnitColumns; ++i) {
      const uint32_t code = codes[i / 4] >> (i % 4 * 8 + shift) & 15u;
      Type::store(&out.values[i], numerics::dequantize_value(code, block_scale, expert_scale));
    }
    store_unit(static_cast<Storage*>(p.dst) + expert * p.dst_stride + row * p.dst_row_stride +
                   unit * kUnitColumns,
               out, p.aligned);
  });
}

using Kernel = void (*)(DequantizeParams);

template <class Layout>
Kernel choose(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return dequantize_kernel<Layout, numerics::F16>;
    case MEMRA_BF16:
      return dequantize_kernel<Layout, numerics::Bf16>;
    default:
      return dequantize_kernel<Layout, numerics::F32>;
  }
}

Kernel choose(memra_format format, memra_dtype dtype) {
  return format == MEMRA_NVFP4_V2 ? choose<LayoutV2>(dtype) : choose<LayoutV1>(dtype);
}

}  // namespace

Status dequantize(const Device& device, const memra_dequantize_args& args, memra_stream stream) {
  const DequantizeParams params{
      make_part(args.rows, args.columns, args.n_experts, args.slice),
      static_cast<const uint8_t*>(args.src),
      args.src_stride,
      args.expert_scales,
      args.dst,
      args.dst_row_stride,
      args.dst_stride,
      rows_aligned(args.dst, args.dst_row_stride, args.dst_stride, args.n_experts, args.dst_dtype)};
  return launch_kernel(device, Launch{stream}, unit_grid(params.part),
                       choose(args.format, args.dst_dtype), params);
}

Status weights_dequantize_load() {
  for (const memra_format format : {MEMRA_NVFP4, MEMRA_NVFP4_V2}) {
    for (const memra_dtype dtype : {MEMRA_F32, MEMRA_F16, MEMRA_BF16}) {
      MEMRA_TRY(load_kernel(choose(format, dtype)));
    }
  }
  return MEMRA_OK;
}

}  // namespace memra::cuda
