// NVFP4 to NVFP4_V2.

#include "weights.h"
#include "weights_common.cuh"

namespace memra::cuda {
namespace {

struct RepackParams {
  Part part;
  int64_t first_expert;  // that slab 0 of src and dst is, for the report
  const uint8_t* src;
  uint64_t src_stride;
  uint8_t* dst;
  uint64_t dst_stride;
  memra_weight_report* report;
};

__global__ void __launch_bounds__(kConvertThreads) repack_v2_kernel(RepackParams p) {
  dependency_wait();
  const Part& part = p.part;
  const GroupPlace place = group_place(part);
  if (!place.exists) return;
  for_each_row_block(part, [&](int64_t expert, int64_t row_begin) {
    const uint8_t* src = p.src + expert * p.src_stride;
    uint8_t* dst = p.dst + expert * p.dst_stride;
    const int64_t row = row_begin + place.row;
    const int64_t src_row = part.row_begin + row;
    const int64_t src_group = part.column_begin / numerics::kGroupValues + place.group;
    const auto* words = reinterpret_cast<const uint32_t*>(
        src + LayoutV1::group_codes(part.source_rows, part.source_columns, src_row, src_group));
    GroupBits bits;
    for (int i = 0; i < 4; ++i)
      bits.codes[i] = words[i];
    const uint32_t scales = *reinterpret_cast<const uint16_t*>(
        src + LayoutV1::group_scales(part.source_rows, part.source_columns, src_row, src_group));
    bits.scales =
        check_scales(scales, part.scale_index(p.first_expert + expert, row, place.group), p.report);
    store_group(LayoutV2{}, dst + LayoutV2::group_codes(part.rows, part.columns, row, place.group),
                dst + LayoutV2::group_scales(part.rows, part.columns, row, place.group), bits);
  });
}

Status launch(const Device& device, const RepackParams& params, memra_stream stream) {
  return launch_kernel(device, Launch{stream}, group_grid(params.part), repack_v2_kernel, params);
}

// Slabs go through the workspace in rising order. A slab of dst ends no later than the slab of src
// with the same number, so no slab is overwritten before it was read.
Status repack_in_place(const Device& device, const memra_repack_args& args, RepackParams params,
                       memra_stream stream) {
  const auto slab_bytes = static_cast<uint64_t>(numerics::slab_bytes(args.rows, args.columns));
  const auto* src = static_cast<const uint8_t*>(args.src);
  auto* workspace = static_cast<uint8_t*>(args.workspace);
  const int64_t batch = std::max<int64_t>(1, args.workspace_bytes / slab_bytes);
  for (int64_t begin = 0; begin < args.n_experts; begin += batch) {
    const int64_t count = std::min(batch, args.n_experts - begin);
    const uint8_t* from = src + begin * args.src_stride;
    if (args.src_stride == slab_bytes) {
      MEMRA_CUDA_TRY(cudaMemcpyAsync(workspace, from, count * slab_bytes, cudaMemcpyDefault,
                                     static_cast<cudaStream_t>(stream)));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        MEMRA_CUDA_TRY(cudaMemcpyAsync(workspace + i * slab_bytes, from + i * args.src_stride,
                                       slab_bytes, cudaMemcpyDefault,
                                       static_cast<cudaStream_t>(stream)));
      }
    }
    params.part.n_experts = count;
    params.first_expert = begin;
    params.src = workspace;
    params.src_stride = slab_bytes;
    params.dst = static_cast<uint8_t*>(args.dst) + begin * args.dst_stride;
    MEMRA_TRY(launch(device, params, stream));
  }
  return MEMRA_OK;
}

}  // namespace

Status repack_v2(const Device& device, const memra_repack_args& args, memra_stream stream) {
  MEMRA_TRY(report_begin(device, args.report, stream));
  const RepackParams params{make_part(args.rows, args.columns, args.n_experts, args.slice),
                            0,
                            static_cast<const uint8_t*>(args.src),
                            args.src_stride,
                            static_cast<uint8_t*>(args.dst),
                            args.dst_stride,
                            args.report};
  if (args.dst == args.src) {
    MEMRA_TRY(repack_in_place(device, args, params, stream));
  } else {
    MEMRA_TRY(launch(device, params, stream));
  }
  return report_end(device, args.report, args.rows, args.columns, stream);
}

Status weights_repack_load() {
  return load_kernel(repack_v2_kernel);
}

}  // namespace memra::cuda
