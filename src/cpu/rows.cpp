#include "cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "numerics/half.h"
#include "numerics/nvfp4_layout.h"

namespace memra::cpu {
namespace {

namespace nv = memra::numerics;

// Rows of one unit of work: large enough to amortise the hand-out, small enough that all threads
// finish together.
constexpr std::int64_t kMaxUnitRows = 64;
constexpr std::int64_t kUnitsPerThread = 8;
// Rows that pairs of one expert go through together, so that their weights stay in L2.
constexpr std::int64_t kSharedRows = 16;

std::int64_t unit_rows(std::int64_t total_rows, const ThreadPool& pool) {
  const std::int64_t even = total_rows / (kUnitsPerThread * pool.threads());
  return std::clamp<std::int64_t>(even / nv::kRowMultiple * nv::kRowMultiple, nv::kRowMultiple,
                                  kMaxUnitRows);
}

struct RowRange {
  std::int64_t begin, count;
};

class GateUp {
 public:
  GateUp(const memra_rows_gate_up_args& args, const RowsKernels& kernels, const DotsFunctions& dots,
         std::int64_t rows_per_unit)
      : args_(args),
        kernels_(kernels),
        gate_dots_(dots.pick(args.gate_format, args.variant)),
        up_dots_(dots.pick(args.up_format, args.variant)),
        n_pairs_(args.tokens * args.top_k),
        rows_per_unit_(rows_per_unit),
        units_per_pair_((args.intermediate_size + rows_per_unit - 1) / rows_per_unit),
        shares_((args.variant & MEMRA_ROWS_DEDUP_ORDER) != 0) {}

  std::int64_t units() const { return n_pairs_ * units_per_pair_; }

  void operator()(std::int64_t unit) const {
    const std::int64_t place = unit / units_per_pair_;
    const std::int64_t begin = unit % units_per_pair_ * rows_per_unit_;
    const RowRange rows{begin, std::min(rows_per_unit_, args_.intermediate_size - begin)};
    if (!shares_) {
      run(pair_at(place), rows);
      return;
    }
    // The first pair of an expert's run does the work of all of it.
    if (place > 0 && same_expert(pair_at(place - 1), pair_at(place))) return;
    std::int64_t end = place + 1;
    while (end < n_pairs_ && same_expert(pair_at(place), pair_at(end)))
      ++end;
    for (std::int64_t r = 0; r < rows.count; r += kSharedRows) {
      const RowRange part{rows.begin + r, std::min(kSharedRows, rows.count - r)};
      for (std::int64_t i = place; i < end; ++i)
        run(pair_at(i), part);
    }
  }

 private:
  std::int64_t pair_at(std::int64_t place) const {
    const bool ordered = (args_.variant & (MEMRA_ROWS_DEDUP_ORDER | MEMRA_ROWS_ORD)) != 0;
    return ordered ? args_.order[place] : place;
  }

  const std::uint8_t* slab(int plane, std::int64_t pair) const {
    return static_cast<const std::uint8_t*>(args_.ptrs[plane * n_pairs_ + pair]);
  }

  bool same_expert(std::int64_t a, std::int64_t b) const {
    return slab(0, a) == slab(0, b) && slab(1, a) == slab(1, b);
  }

  const float* bias(int plane, std::int64_t pair, std::int64_t row) const {
    const float* const bias = args_.bias != nullptr ? args_.bias[plane * n_pairs_ + pair] : nullptr;
    return bias != nullptr ? bias + row : nullptr;
  }

  void run(std::int64_t pair, RowRange rows) const {
    float* const out = args_.out + pair * args_.intermediate_size + rows.begin;
    const std::uint8_t* const gate = slab(0, pair);
    const std::uint8_t* const up = slab(1, pair);
    if (gate == nullptr || up == nullptr) {
      std::fill_n(out, rows.count, 0.0f);
      return;
    }
    const std::int64_t token = pair / args_.top_k;
    const std::int8_t* const q = args_.q + token * args_.hidden_size;
    const float* const d = args_.d + token * (args_.hidden_size / nv::kGroupValues);
    SlabRows slab_rows{gate, args_.intermediate_size, args_.hidden_size, rows.begin, rows.count};
    float gate_values[kMaxUnitRows];
    float up_values[kMaxUnitRows];
    gate_dots_(slab_rows, q, d, gate_values);
    slab_rows.slab = up;
    up_dots_(slab_rows, q, d, up_values);
    kernels_.finish_gate_up({args_.activation, args_.limit, args_.alpha, args_.scales[pair],
                             args_.scales[n_pairs_ + pair], gate_values, up_values,
                             bias(0, pair, rows.begin), bias(1, pair, rows.begin), out,
                             rows.count});
  }

  const memra_rows_gate_up_args& args_;
  const RowsKernels& kernels_;
  const DotsFunction gate_dots_, up_dots_;
  const std::int64_t n_pairs_, rows_per_unit_, units_per_pair_;
  const bool shares_;
};

template <class Type>
void load_run(const void* y, std::int64_t index, float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = nv::load_as_f32<Type>(y, index + i);
}

template <class Type>
void store_run(void* y, std::int64_t index, const float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    nv::store_from_f32<Type>(y, index + i, values[i]);
}

void load_run(memra_dtype dtype, const void* y, std::int64_t index, float* values,
              std::int64_t count) {
  if (dtype == MEMRA_F32) return load_run<nv::F32>(y, index, values, count);
  if (dtype == MEMRA_F16) return load_run<nv::F16>(y, index, values, count);
  load_run<nv::Bf16>(y, index, values, count);
}

void store_run(memra_dtype dtype, void* y, std::int64_t index, const float* values,
               std::int64_t count) {
  if (dtype == MEMRA_F32) return store_run<nv::F32>(y, index, values, count);
  if (dtype == MEMRA_F16) return store_run<nv::F16>(y, index, values, count);
  store_run<nv::Bf16>(y, index, values, count);
}

// Rule 6 for some rows of one token.
void down_run(const memra_rows_down_args& args, const RowsKernels& kernels, DotsFunction dots,
              std::int64_t token, RowRange rows) {
  const std::int64_t n_pairs = args.tokens * args.top_k;
  const std::int64_t y_index = token * args.y_stride + rows.begin;
  float y[kMaxUnitRows] = {};
  if ((args.flags & MEMRA_FLAG_ACCUMULATE) != 0) {
    load_run(args.y_dtype, args.y, y_index, y, rows.count);
  }
  for (std::int64_t pair = token * args.top_k; pair < (token + 1) * args.top_k; ++pair) {
    const std::int64_t entry = 2 * n_pairs + pair;
    const auto* const slab = static_cast<const std::uint8_t*>(args.ptrs[entry]);
    if (slab == nullptr) continue;
    const SlabRows slab_rows{slab, args.hidden_size, args.intermediate_size, rows.begin,
                             rows.count};
    float values[kMaxUnitRows];
    dots(slab_rows, args.q + pair * args.intermediate_size,
         args.d + pair * (args.intermediate_size / nv::kGroupValues), values);
    const float* const bias = args.bias != nullptr ? args.bias[entry] : nullptr;
    kernels.add_slot({args.scales[entry], bias != nullptr ? args.topk_weights[pair] : 0.0f, values,
                      bias != nullptr ? bias + rows.begin : nullptr, y, rows.count});
  }
  store_run(args.y_dtype, args.y, y_index, y, rows.count);
}

}  // namespace

void rows_gate_up(const memra_rows_gate_up_args& args, const RowsKernels& kernels,
                  const DotsFunctions& dots, ThreadPool& pool) {
  const GateUp work(args, kernels, dots,
                    unit_rows(args.tokens * args.top_k * args.intermediate_size, pool));
  pool.parallel_for(work.units(), work);
}

void rows_down(const memra_rows_down_args& args, const RowsKernels& kernels,
               const DotsFunctions& dots, ThreadPool& pool) {
  const DotsFunction function = dots.pick(args.format, args.variant);
  const std::int64_t rows_per_unit = unit_rows(args.tokens * args.hidden_size, pool);
  const std::int64_t runs = (args.hidden_size + rows_per_unit - 1) / rows_per_unit;
  // Tokens of one run of rows come together: experts that they share are then in cache.
  pool.parallel_for(runs * args.tokens, [&](std::int64_t unit) {
    const std::int64_t begin = unit / args.tokens * rows_per_unit;
    down_run(args, kernels, function, unit % args.tokens,
             {begin, std::min(rows_per_unit, args.hidden_size - begin)});
  });
}

void read_slabs(const ReadSlabs& slabs, const RowsKernels& kernels, ThreadPool& pool) {
  constexpr std::int64_t kUnitBytes = 1 << 18;
  const std::int64_t parts = (slabs.slab_bytes + kUnitBytes - 1) / kUnitBytes;
  pool.parallel_for(slabs.planes * slabs.n_pairs * parts, [&](std::int64_t unit) {
    const void* const slab = slabs.ptrs[slabs.first_plane * slabs.n_pairs + unit / parts];
    if (slab == nullptr) return;
    const std::int64_t begin = unit % parts * kUnitBytes;
    kernels.read(static_cast<const std::uint8_t*>(slab) + begin,
                 static_cast<std::uint64_t>(std::min(kUnitBytes, slabs.slab_bytes - begin)));
  });
}

void quantize_q8(const QuantizeQ8Args& args, const RowsKernels& kernels, ThreadPool& pool) {
  // About 10 us of work: less does not pay for waking a thread.
  constexpr std::int64_t kUnitValues = 1 << 14;
  const memra_q8_1_args& q8 = args.q8;
  const std::int64_t element = q8.x_dtype == MEMRA_F32 ? 4 : 2;
  const std::int64_t parts = (q8.columns + kUnitValues - 1) / kUnitValues;  // of a row
  const std::int64_t rows_per_unit = std::max<std::int64_t>(1, kUnitValues / q8.columns);
  const std::int64_t units = (q8.rows + rows_per_unit - 1) / rows_per_unit * parts;
  pool.parallel_for(units, [&](std::int64_t unit) {
    const std::int64_t first = unit / parts * rows_per_unit, begin = unit % parts * kUnitValues;
    for (std::int64_t row = first; row < std::min(first + rows_per_unit, q8.rows); ++row) {
      const std::int64_t at = row * q8.columns + begin;
      const auto* const x = static_cast<const std::uint8_t*>(q8.x);
      kernels.quantize({x + (row * q8.x_stride + begin) * element, q8.x_dtype, args.lane_major,
                        q8.q + at, q8.d + at / nv::kGroupValues,
                        std::min(kUnitValues, q8.columns - begin)});
    }
  });
}

void q8_to_lane_major(const std::int8_t* q, std::int64_t rows, std::int64_t columns,
                      std::int8_t* out, ThreadPool& pool) {
  constexpr std::int64_t kUnit = 1 << 14;
  const std::int64_t values = rows * columns;
  pool.parallel_for((values + kUnit - 1) / kUnit, [&](std::int64_t unit) {
    const std::int64_t end = std::min(values, (unit + 1) * kUnit);
    for (std::int64_t begin = unit * kUnit; begin < end; begin += nv::kGroupValues) {
      for (std::int32_t i = 0; i < nv::kGroupValues; ++i) {
        out[begin + lane_major_position(i)] = q[begin + i];
      }
    }
  });
}

}  // namespace memra::cpu
