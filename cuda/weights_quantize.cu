// Floats to NVFP4 or NVFP4_V2.

#include "numerics/quantize_nvfp4.h"
#include "weights.h"
#include "weights_common.cuh"

namespace memra::cuda {
namespace {

struct QuantizeParams {
  Part part;
  const void* src;
  int64_t src_row_stride;
  int64_t src_stride;
  bool aligned;
  uint8_t* dst;
  uint64_t dst_stride;
  float* expert_scales;
  memra_weight_report* report;
};

template <class Type>
__device__ void load_values(const QuantizeParams& p, int64_t expert, int64_t row, int64_t unit,
                            float (&x)[kUnitColumns]) {
  using Storage = typename Type::Storage;
  const Unit<Storage> in = load_unit(static_cast<const Storage*>(p.src) + expert * p.src_stride +
                                         row * p.src_row_stride + unit * kUnitColumns,
                                     p.aligned);
  for (int i = 0; i < kUnitColumns; ++i)
    x[i] = Type::load(&in.values[i]);
}

// The largest finite magnitude of each matrix, as bits, in expert_scales.
template <class Type>
__global__ void __launch_bounds__(kConvertThreads) amax_kernel(QuantizeParams p) {
  dependency_wait();
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const bool exists = unit * kUnitColumns < p.part.columns;
  for (int64_t expert = blockIdx.z; expert < p.part.n_experts; expert += gridDim.z) {
    float amax = 0.0f;
    for (int64_t row = blockIdx.y * 8 + threadIdx.y; exists && row < p.part.rows;
         row += gridDim.y * 8) {
      float x[kUnitColumns];
      load_values<Type>(p, expert, row, unit, x);
      for (int i = 0; i < kUnitColumns; ++i)
        amax = numerics::amax_step(amax, x[i]);
    }
    const uint32_t bits = __reduce_max_sync(~0u, numerics::float_bits(amax));
    if (threadIdx.x == 0 && bits != 0) {
      atomicMax(reinterpret_cast<unsigned*>(&p.expert_scales[expert]), bits);
    }
  }
}

__global__ void __launch_bounds__(kConvertThreads)
    expert_scale_kernel(float* expert_scales, int64_t n_experts) {
  dependency_wait();
  const int64_t expert = static_cast<int64_t>(blockIdx.x) * kConvertThreads + threadIdx.x;
  if (expert >= n_experts) return;
  expert_scales[expert] = numerics::expert_scale_from_amax(expert_scales[expert]);
}

// A lane has 8 values, a pair of lanes a half of 16 under one scale.
template <class Layout, class Type>
__global__ void __launch_bounds__(kConvertThreads) quantize_kernel(QuantizeParams p) {
  dependency_wait();
  const Part& part = p.part;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const bool exists = unit * kUnitColumns < part.columns;
  const bool is_high = threadIdx.x % 2 != 0;
  for_each_row_block(part, [&](int64_t expert, int64_t row_begin) {
    uint8_t* dst = p.dst + expert * p.dst_stride;
    const int64_t row = row_begin + threadIdx.y;
    const float expert_scale = p.expert_scales[expert];
    const bool usable = expert_scale > 0.0f && numerics::is_finite(expert_scale);

    float x[kUnitColumns] = {};
    if (exists) load_values<Type>(p, expert, row, unit, x);
    float amax = 0.0f;
    uint32_t n_non_finite = 0;
    for (int i = 0; i < kUnitColumns; ++i) {
      amax = numerics::amax_step(amax, x[i]);
      n_non_finite += numerics::is_finite(x[i]) ? 0 : 1;
    }
    amax = numerics::amax_step(amax, __shfl_xor_sync(~0u, amax, 1));
    const uint32_t scale_code = usable ? numerics::block_scale_code(amax, expert_scale) : 0;
    const float step = usable ? numerics::block_step(scale_code, expert_scale) : 0.0f;

    uint32_t codes[2] = {};  // one a byte
    for (int i = 0; i < kUnitColumns; ++i) {
      codes[i / 4] |= numerics::value_code(x[i], step) << (i % 4 * 8);
    }
    // The low nibbles of the half's 8 bytes are one lane's, the high ones the other's; each lane
    // completes four bytes.
    const uint32_t received = __shfl_xor_sync(~0u, is_high ? codes[0] : codes[1], 1);
    const uint32_t word = is_high ? received | codes[1] << 4 : codes[0] | received << 4;
    const uint32_t next_scale = __shfl_down_sync(~0u, scale_code, 2);
    if (exists) {
      const int64_t group = unit / 4;
      *reinterpret_cast<uint32_t*>(dst + Layout::group_codes(part.rows, part.columns, row, group) +
                                   unit % 4 * 4) = word;
      if (unit % 4 == 0) {
        *reinterpret_cast<uint16_t*>(dst +
                                     Layout::group_scales(part.rows, part.columns, row, group)) =
            static_cast<uint16_t>(scale_code | next_scale << 8);
      }
    }

    const uint32_t n_in_warp = __reduce_add_sync(~0u, n_non_finite);
    if (p.report != nullptr && threadIdx.x == 0 && n_in_warp != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&p.report->non_finite),
                static_cast<unsigned long long>(n_in_warp));
    }
  });
}

using Kernel = void (*)(QuantizeParams);

Kernel choose_amax(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return amax_kernel<numerics::F16>;
    case MEMRA_BF16:
      return amax_kernel<numerics::Bf16>;
    default:
      return amax_kernel<numerics::F32>;
  }
}

template <class Layout>
Kernel choose_quantize(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return quantize_kernel<Layout, numerics::F16>;
    case MEMRA_BF16:
      return quantize_kernel<Layout, numerics::Bf16>;
    default:
      return quantize_kernel<Layout, numerics::F32>;
  }
}

Kernel choose_quantize(memra_format format, memra_dtype dtype) {
  return format == MEMRA_NVFP4_V2 ? choose_quantize<LayoutV2>(dtype)
                                  : choose_quantize<LayoutV1>(dtype);
}

Status compute_expert_scales(const Device& device, const QuantizeParams& params, memra_dtype dtype,
                             memra_stream stream) {
  const int64_t n_experts = params.part.n_experts;
  MEMRA_CUDA_TRY(cudaMemsetAsync(params.expert_scales, 0, n_experts * sizeof(float),
                                 static_cast<cudaStream_t>(stream)));
  // Few blocks of many rows: an atomic for each warp is then cheap.
  Grid grid = unit_grid(params.part);
  grid.blocks.y = std::min(grid.blocks.y, 32u);
  MEMRA_TRY(launch_kernel(device, Launch{stream}, grid, choose_amax(dtype), params));
  const auto n_blocks = static_cast<unsigned>((n_experts + kConvertThreads - 1) / kConvertThreads);
  return launch_kernel(device, Launch{stream}, Grid{n_blocks, kConvertThreads}, expert_scale_kernel,
                       params.expert_scales, n_experts);
}

}  // namespace

Status quantize_nvfp4(const Device& device, const memra_quantize_args& args, memra_stream stream) {
  MEMRA_TRY(report_begin(device, args.report, stream));
  const QuantizeParams params{
      make_part(args.rows, args.columns, args.n_experts,
                memra_slice{0, args.rows, 0, args.columns}),
      args.src,
      args.src_row_stride,
      args.src_stride,
      rows_aligned(args.src, args.src_row_stride, args.src_stride, args.n_experts, args.src_dtype),
      static_cast<uint8_t*>(args.dst),
      args.dst_stride,
      args.expert_scales,
      args.report};
  if (args.compute_expert_scale != 0) {
    MEMRA_TRY(compute_expert_scales(device, params, args.src_dtype, stream));
  }
  // No report_end: it names invalid scale codes, and none is ever written.
  return launch_kernel(device, Launch{stream}, unit_grid(params.part),
                       choose_quantize(args.format, args.src_dtype), params);
}

Status weights_quantize_load() {
  MEMRA_TRY(load_kernel(expert_scale_kernel));
  for (const memra_dtype dtype : {MEMRA_F32, MEMRA_F16, MEMRA_BF16}) {
    MEMRA_TRY(load_kernel(choose_amax(dtype)));
    MEMRA_TRY(load_kernel(choose_quantize(MEMRA_NVFP4, dtype)));
    MEMRA_TRY(load_kernel(choose_quantize(MEMRA_NVFP4_V2, dtype)));
  }
  return MEMRA_OK;
}

}  // namespace memra::cuda
