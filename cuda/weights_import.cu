// The two planes of safetensors checkpoints to NVFP4 or NVFP4_V2.

#include <type_traits>

#include "weights.h"
#include "weights_common.cuh"

namespace memra::cuda {
namespace {

struct ImportParams {
  Part part;
  const uint8_t* codes;
  uint64_t codes_stride;
  const uint8_t* scales;
  uint64_t scales_stride;
  uint8_t* dst;
  uint64_t dst_stride;
  memra_weight_report* report;
};

// Four nibbles to the low halves of four bytes.
__device__ inline uint32_t spread_nibbles(uint32_t nibbles) {
  uint32_t spread = nibbles & 0xFFFFu;
  spread = (spread | spread << 8) & 0x00FF00FFu;
  return (spread | spread << 4) & 0x0F0F0F0Fu;
}

template <class Layout>
__global__ void __launch_bounds__(kConvertThreads) import_nvfp4_kernel(ImportParams p) {
  dependency_wait();
  const Part& part = p.part;
  const GroupPlace place = group_place(part);
  if (!place.exists) return;
  for_each_row_block(part, [&](int64_t expert, int64_t row_begin) {
    uint8_t* dst = p.dst + expert * p.dst_stride;
    const int64_t row = row_begin + place.row;
    const int64_t src_row = part.row_begin + row;
    const int64_t src_group = part.column_begin / numerics::kGroupValues + place.group;
    const auto* words = reinterpret_cast<const uint32_t*>(p.codes + expert * p.codes_stride +
                                                          src_row * (part.source_columns / 2) +
                                                          src_group * numerics::kGroupCodeBytes);
    GroupBits bits;
    for (int half = 0; half < 2; ++half) {
      // Values 0..7 and 8..15 of the half; a byte of the result takes one of each.
      const uint32_t low = words[2 * half];
      const uint32_t high = words[2 * half + 1];
      bits.codes[2 * half] = spread_nibbles(low) | spread_nibbles(high) << 4;
      bits.codes[2 * half + 1] = spread_nibbles(low >> 16) | spread_nibbles(high >> 16) << 4;
    }
    const uint32_t scales =
        *reinterpret_cast<const uint16_t*>(p.scales + expert * p.scales_stride +
                                           src_row * (part.source_columns / numerics::kScaleBlock) +
                                           src_group * numerics::kGroupScaleBytes);
    const uint32_t legal =
        check_scales(scales, part.scale_index(expert, row, place.group), p.report);
    bits.scales = std::is_same_v<Layout, LayoutV2> ? legal : scales;
    store_group(Layout{}, dst + Layout::group_codes(part.rows, part.columns, row, place.group),
                dst + Layout::group_scales(part.rows, part.columns, row, place.group), bits);
  });
}

}  // namespace

Status import_nvfp4(const Device& device, const memra_import_args& args, memra_stream stream) {
  MEMRA_TRY(report_begin(device, args.report, stream));
  const ImportParams params{make_part(args.rows, args.columns, args.n_experts, args.slice),
                            static_cast<const uint8_t*>(args.codes),
                            args.codes_stride,
                            static_cast<const uint8_t*>(args.scales),
                            args.scales_stride,
                            static_cast<uint8_t*>(args.dst),
                            args.dst_stride,
                            args.report};
  MEMRA_TRY(launch_kernel(
      device, Launch{stream}, group_grid(params.part),
      args.format == MEMRA_NVFP4_V2 ? import_nvfp4_kernel<LayoutV2> : import_nvfp4_kernel<LayoutV1>,
      params));
  return report_end(device, args.report, args.rows, args.columns, stream);
}

Status weights_import_load() {
  MEMRA_TRY(load_kernel(import_nvfp4_kernel<LayoutV1>));
  return load_kernel(import_nvfp4_kernel<LayoutV2>);
}

}  // namespace memra::cuda
