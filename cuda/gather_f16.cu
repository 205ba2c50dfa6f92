// Rows of activations to f16 under a power of two each, in the order of grouped_layout.cuh.

#include <algorithm>
#include <type_traits>

#include "grouped.h"
#include "grouped_layout.cuh"
#include "launch.h"
#include "numerics/f16_rows.h"
#include "numerics/half.h"
#include "ptx.cuh"

namespace memra::cuda {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kHeld = 2;  // steps of a row that a thread reads once; of longer rows the rest twice
// A block of 128 columns is eight neighbouring lanes: lane % 8 is 4 * slab + step.
constexpr int kBlockLanes = 2 * kSlabSteps;

MEMRA_HD constexpr int64_t lanes_of(int64_t columns) {
  return (columns + kBlockColumns - 1) / kBlockColumns * kBlockLanes;
}

struct Params {
  const void* x;
  int64_t x_stride;
  int64_t source_rows;
  int64_t columns;
  int64_t rows;  // of z
  uint16_t* z;
  float* zs;
  int64_t top_k;
  // Of a gather: a block makes one row of z.
  const int32_t* index;      // or null
  const int32_t* row_count;  // or null
  // Of a scatter: a block takes one row of x to all its places.
  const int32_t* inverse;
};

struct Shared {
  uint32_t amax[kMaxThreads / 32];
  int32_t places[MEMRA_MAX_TOP_K];
};

// Where a lane's step is, and its column.
struct Place {
  int64_t block;
  int half, step;
  bool exists;

  __device__ Place(const Params& p, int64_t lane_of_row)
      : block(lane_of_row / kBlockLanes),
        half(static_cast<int>(lane_of_row) / kSlabSteps % 2),
        step(static_cast<int>(lane_of_row) % kSlabSteps),
        exists(slab() < n_slabs(p.columns)) {}
  __device__ int64_t slab() const { return 2 * block + half; }
};

// The columns of a step as they lie in memory; zeros before load().
template <class Type>
struct Step {
  using Storage = typename Type::Storage;
  using Run = std::conditional_t<sizeof(Storage) == 4, uint4, uint2>;
  static_assert(sizeof(Run) == kRunColumns * sizeof(Storage));
  Run runs[kStepRuns];

  __device__ void load(const Params& p, const Storage* row, const Place& place) {
    if (!place.exists) return;
    const int64_t first = run_column(p.columns, place.slab(), place.step, 0);
    const int64_t apart = run_column(p.columns, place.slab(), place.step, 1) - first;
#pragma unroll
    for (int i = 0; i < kStepRuns; ++i)
      runs[i] = *reinterpret_cast<const Run*>(row + first + i * apart);
  }
  __device__ void widen(int run, float (&x)[kRunColumns]) const {
    Storage values[kRunColumns];
    __builtin_memcpy(values, &runs[run], sizeof(values));
#pragma unroll
    for (int i = 0; i < kRunColumns; ++i)
      x[i] = Type::load(&values[i]);
  }
  __device__ uint32_t amax_bits() const {
    uint32_t amax = 0;
#pragma unroll
    for (int run = 0; run < kStepRuns; ++run) {
      float x[kRunColumns];
      widen(run, x);
#pragma unroll
      for (int i = 0; i < kRunColumns; ++i)
        amax = max(amax, numerics::magnitude_bits(x[i]));
    }
    return amax;
  }
};

// What the whole row says.
struct RowScale {
  int32_t k = 0;
  bool finite = true;

  __device__ explicit RowScale(uint32_t amax_bits) {
    finite = amax_bits < numerics::kInfBits;
    k = finite ? numerics::f16_exponent(amax_bits) : 0;
  }
  __device__ float zs() const {
    return finite ? numerics::power_of_two(k) : numerics::bits_float(numerics::kCanonicalNan);
  }
};

// The two chunks of a lane's step. Two lanes, of the same step of the two slabs of a block,
// exchange one each, so that eight lanes write a slab's 128 bytes together.
struct Chunks {
  uint4 first, second;  // of the block's first slab, and of its second

  template <class Type>
  __device__ Chunks(const Step<Type>& step, const RowScale& scale, const Place& place) {
    static_assert(decode_order(0) == 0 && decode_order(1) == 2 && decode_order(2) == 1 &&
                  decode_order(3) == 3);
    uint32_t even[kStepRuns], odd[kStepRuns];
#pragma unroll
    for (int run = 0; run < kStepRuns; ++run) {
      float x[kRunColumns];
      step.widen(run, x);
      uint32_t f16[kRunColumns];
#pragma unroll
      for (int i = 0; i < kRunColumns; ++i)
        f16[i] = scale.finite ? numerics::f16_scaled(x[i], scale.k) : 0u;
      even[run] = f16[0] | f16[2] << 16;
      odd[run] = f16[1] | f16[3] << 16;
    }
    uint32_t received[kStepRuns];
#pragma unroll
    for (int i = 0; i < kStepRuns; ++i)
      received[i] = __shfl_xor_sync(~0u, place.half == 0 ? odd[i] : even[i], kSlabSteps);
    const uint4 theirs = make_uint4(received[0], received[1], received[2], received[3]);
    first = place.half == 0 ? make_uint4(even[0], even[1], even[2], even[3]) : theirs;
    second = place.half == 0 ? theirs : make_uint4(odd[0], odd[1], odd[2], odd[3]);
  }
  __device__ void store(const Params& p, const Place& place, int64_t row) const {
    const int64_t slab = 2 * place.block;
    const int at = swizzled_chunk(row, 2 * place.step + place.half);
    if (slab < n_slabs(p.columns)) {
      store_global(reinterpret_cast<uint4*>(p.z + slab_row(p.rows, slab, row) + at), first);
    }
    if (slab + 1 < n_slabs(p.columns)) {
      store_global(reinterpret_cast<uint4*>(p.z + slab_row(p.rows, slab + 1, row) + at), second);
    }
  }
};

// By the whole block; also makes visible what threads have left in shared memory.
__device__ inline uint32_t block_max(uint32_t value, Shared& shared) {
  const int n_warps = static_cast<int>(blockDim.x) / 32;
  value = __reduce_max_sync(~0u, value);
  if (threadIdx.x % 32 == 0) shared.amax[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < n_warps; ++warp)
    value = max(value, shared.amax[warp]);
  return value;
}

// The row of x that a row of z is made from, or -1.
__device__ inline int64_t source_of(const Params& p, int64_t row) {
  const int64_t entry = p.index != nullptr ? p.index[row] : row;
  return entry >= 0 && entry / p.top_k < p.source_rows ? entry / p.top_k : -1;
}

template <class Type, bool kScatter>
__global__ void __launch_bounds__(kMaxThreads) convert_rows_kernel(Params p) {
  using Storage = typename Type::Storage;
  __shared__ Shared shared;
  dependency_wait();
  dependency_release();
  const int64_t row = blockIdx.x;
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  if (!kScatter && p.row_count != nullptr && row >= *p.row_count) return;
  const int64_t source = kScatter ? row : source_of(p, row);
  const Storage* const x = static_cast<const Storage*>(p.x) + max(source, int64_t{0}) * p.x_stride;
  // Lanes of whole warps, of which the last may have nothing to do.
  const int64_t warp_first = thread / 32 * 32;
  const int64_t lanes = lanes_of(p.columns);
  if (kScatter && thread < p.top_k) shared.places[thread] = p.inverse[row * p.top_k + thread];

  Step<Type> held[kHeld] = {};
  uint32_t amax = 0;
  if (source >= 0) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      held[i].load(p, x, Place(p, thread + i * threads));
    for (int64_t at = thread + kHeld * threads; at < lanes; at += threads) {
      Step<Type> step{};
      step.load(p, x, Place(p, at));
      amax = max(amax, step.amax_bits());
    }
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    amax = max(amax, held[i].amax_bits());
  const RowScale scale(block_max(amax, shared));

  const auto store = [&](const Step<Type>& step, const Place& place) {
    const Chunks chunks(step, scale, place);
    if constexpr (kScatter) {
      for (int slot = 0; slot < p.top_k; ++slot) {
        if (shared.places[slot] >= 0) chunks.store(p, place, shared.places[slot]);
      }
    } else {
      chunks.store(p, place, row);
    }
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (warp_first + i * threads < lanes) store(held[i], Place(p, thread + i * threads));
  }
  for (int64_t at = thread + kHeld * threads; at - thread + warp_first < lanes; at += threads) {
    Step<Type> step{};
    const Place place(p, at);
    if (source >= 0) step.load(p, x, place);
    store(step, place);
  }
  if constexpr (kScatter) {
    if (thread < p.top_k && shared.places[thread] >= 0) p.zs[shared.places[thread]] = scale.zs();
  } else {
    if (thread == 0) p.zs[row] = scale.zs();
  }
}

using Kernel = void (*)(Params);

template <bool kScatter>
Kernel choose_kernel(memra_dtype dtype) {
  switch (dtype) {
    case MEMRA_F16:
      return convert_rows_kernel<numerics::F16, kScatter>;
    case MEMRA_BF16:
      return convert_rows_kernel<numerics::Bf16, kScatter>;
    default:
      return convert_rows_kernel<numerics::F32, kScatter>;
  }
}

// Blocks for `rows`, with the fewest threads that read them once. Their number fits: rows are fewer
// than 2^31.
Grid grid_of(int64_t rows, int64_t columns) {
  const int64_t lanes = lanes_of(columns);
  const int64_t warps = (lanes + 32 * kHeld - 1) / (32 * kHeld);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(warps * 32, kMaxThreads));
  return Grid{static_cast<unsigned>(rows), std::max(threads, unsigned{MEMRA_MAX_TOP_K})};
}

}  // namespace

Status gather_f16(const Device& device, const memra_moe_gather_f16_args& args,
                  const Launch& launch) {
  const Params params{args.x,         args.x_stride, args.source_rows,
                      args.columns,   args.rows,     static_cast<uint16_t*>(args.z),
                      args.zs,        args.top_k,    args.index,
                      args.row_count, nullptr};
  return launch_kernel(device, launch, grid_of(args.rows, args.columns),
                       choose_kernel<false>(args.x_dtype), params);
}

Status scatter_f16(const Device& device, const ScatterF16Args& args, const Launch& launch) {
  const Params params{args.x,
                      args.x_stride,
                      args.tokens,
                      args.columns,
                      args.tokens * args.top_k,
                      static_cast<uint16_t*>(args.z),
                      args.zs,
                      args.top_k,
                      nullptr,
                      nullptr,
                      args.inverse};
  return launch_kernel(device, launch, grid_of(args.tokens, args.columns),
                       choose_kernel<true>(args.x_dtype), params);
}

Status gather_f16_load() {
  for (const memra_dtype dtype : {MEMRA_F32, MEMRA_F16, MEMRA_BF16}) {
    MEMRA_TRY(load_kernel(choose_kernel<false>(dtype)));
    MEMRA_TRY(load_kernel(choose_kernel<true>(dtype)));
  }
  return MEMRA_OK;
}

}  // namespace memra::cuda
