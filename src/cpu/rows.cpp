#include "cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "cpu/typed_run.h"
#include "numerics/nvfp4_layout.h"

namespace memra::cpu {
namespace {

namespace nv = memra::numerics;

// Rows of one unit of work: large enough to amortise the hand-out, small enough that all threads
// finish together.
constexpr std::int64_t kMaxUnitRows = 256;
constexpr std::int64_t kUnitsPerThread = 8;
// Rows that pairs of one expert go through together where they are too many for one decoding, so
// that their weights stay in L2.
constexpr std::int64_t kSharedRows = 64;
// Pairs that are searched for others of the same expert.
constexpr std::int64_t kWindow = 256;

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
        ordered_((args.variant & (MEMRA_ROWS_DEDUP_ORDER | MEMRA_ROWS_ORD)) != 0) {}

  std::int64_t units() const { return n_pairs_ * units_per_pair_; }

  // Whatever the variant, pairs of one expert share the decoding of its weights: the first of them
  // in a window does the work of all.
  void operator()(std::int64_t unit) const {
    const std::int64_t place = unit / units_per_pair_;
    const std::int64_t begin = unit % units_per_pair_ * rows_per_unit_;
    const RowRange rows{begin, std::min(rows_per_unit_, args_.intermediate_size - begin)};
    const std::int64_t pair = pair_at(place);
    if (slab(0, pair) == nullptr || slab(1, pair) == nullptr) {
      std::fill_n(args_.out + pair * args_.intermediate_size + rows.begin, rows.count, 0.0f);
      return;
    }
    const std::int64_t window = place / kWindow * kWindow;
    for (std::int64_t i = place - 1; i >= window; --i) {
      if (same_expert(pair_at(i), pair)) return;
      if (ordered_) break;
    }
    std::int64_t pairs[kWindow];
    std::int64_t count = 0;
    for (std::int64_t i = place; i < std::min(window + kWindow, n_pairs_); ++i) {
      const bool same = same_expert(pair_at(i), pair);
      if (same) pairs[count++] = pair_at(i);
      if (ordered_ && !same) break;
    }
    const std::int64_t step = count > kMaxTogether ? kSharedRows : rows.count;
    for (std::int64_t r = 0; r < rows.count; r += step) {
      const RowRange part{rows.begin + r, std::min(step, rows.count - r)};
      for (std::int64_t i = 0; i < count; i += kMaxTogether)
        run(pairs + i, std::min(kMaxTogether, count - i), part);
    }
  }

 private:
  std::int64_t pair_at(std::int64_t place) const { return ordered_ ? args_.order[place] : place; }

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

  // For pairs of one expert, at most kMaxTogether.
  void run(const std::int64_t* pairs, std::int64_t count, RowRange rows) const {
    float values[2][kMaxTogether][kMaxUnitRows];
    DotsRow x[2][kMaxTogether];
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = pairs[i] / args_.top_k;
      for (int plane = 0; plane < 2; ++plane) {
        x[plane][i] = {args_.q + token * args_.hidden_size,
                       args_.d + token * (args_.hidden_size / nv::kGroupValues), values[plane][i]};
      }
    }
    SlabRows slab_rows{slab(0, pairs[0]), args_.intermediate_size, args_.hidden_size, rows.begin,
                       rows.count};
    gate_dots_(slab_rows, x[0], count);
    slab_rows.slab = slab(1, pairs[0]);
    up_dots_(slab_rows, x[1], count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t pair = pairs[i];
      kernels_.finish_gate_up({args_.activation, args_.limit, args_.alpha, args_.scales[pair],
                               args_.scales[n_pairs_ + pair], values[0][i], values[1][i],
                               bias(0, pair, rows.begin), bias(1, pair, rows.begin),
                               args_.out + pair * args_.intermediate_size + rows.begin,
                               rows.count});
    }
  }

  const memra_rows_gate_up_args& args_;
  const RowsKernels& kernels_;
  const DotsFunction gate_dots_, up_dots_;
  const std::int64_t n_pairs_, rows_per_unit_, units_per_pair_;
  const bool ordered_;
};

// Rule 6 for the tokens and rows of a unit of work.
class Down {
 public:
  Down(const memra_rows_down_args& args, const RowsKernels& kernels, DotsFunction dots,
       std::int64_t rows_per_unit)
      : args_(args),
        kernels_(kernels),
        dots_(dots),
        n_pairs_(args.tokens * args.top_k),
        rows_per_unit_(rows_per_unit),
        tokens_per_unit_(kWindow / args.top_k) {
    static_assert(kWindow >= MEMRA_MAX_TOP_K);
  }

  std::int64_t units() const { return row_units() * token_units(); }

  // Units of the same rows come together: experts that they share are then in cache.
  void operator()(std::int64_t unit) const {
    const std::int64_t row = unit / token_units() * rows_per_unit_;
    const std::int64_t token = unit % token_units() * tokens_per_unit_;
    const std::int64_t tokens = std::min(tokens_per_unit_, args_.tokens - token);
    const std::int64_t end = std::min(row + rows_per_unit_, args_.hidden_size);
    // As many rows as there is room for all dots of; legal counts are multiples of 8.
    const std::int64_t step = std::clamp<std::int64_t>(
        kDots / (tokens * args_.top_k) / nv::kRowMultiple * nv::kRowMultiple, nv::kRowMultiple,
        kMaxUnitRows);
    for (std::int64_t begin = row; begin < end; begin += step)
      run(token, tokens, {begin, std::min(step, end - begin)});
  }

 private:
  static constexpr std::int64_t kDots = 8192;
  static_assert(kDots / kWindow >= nv::kRowMultiple);

  std::int64_t row_units() const {
    return (args_.hidden_size + rows_per_unit_ - 1) / rows_per_unit_;
  }
  std::int64_t token_units() const {
    return (args_.tokens + tokens_per_unit_ - 1) / tokens_per_unit_;
  }
  std::int64_t entry(std::int64_t pair) const { return 2 * n_pairs_ + pair; }
  const void* slab(std::int64_t pair) const { return args_.ptrs[entry(pair)]; }

  void run(std::int64_t token, std::int64_t tokens, RowRange rows) const {
    const std::int64_t first = token * args_.top_k, end = first + tokens * args_.top_k;
    float dots[kDots];
    bool done[kWindow] = {};
    for (std::int64_t pair = first; pair < end; ++pair) {
      if (done[pair - first] || slab(pair) == nullptr) continue;
      DotsRow x[kMaxTogether];
      std::int64_t count = 0;
      for (std::int64_t other = pair; other < end && count < kMaxTogether; ++other) {
        if (slab(other) != slab(pair) || done[other - first]) continue;
        done[other - first] = true;
        x[count++] = {args_.q + other * args_.intermediate_size,
                      args_.d + other * (args_.intermediate_size / nv::kGroupValues),
                      dots + (other - first) * rows.count};
      }
      dots_({static_cast<const std::uint8_t*>(slab(pair)), args_.hidden_size,
             args_.intermediate_size, rows.begin, rows.count},
            x, count);
    }
    for (std::int64_t t = token; t < token + tokens; ++t)
      add_slots(t, rows, dots + (t - token) * args_.top_k * rows.count);
  }

  void add_slots(std::int64_t token, RowRange rows, const float* dots) const {
    const std::int64_t y_index = token * args_.y_stride + rows.begin;
    float y[kMaxUnitRows] = {};
    if ((args_.flags & MEMRA_FLAG_ACCUMULATE) != 0) {
      load_run(args_.y_dtype, args_.y, y_index, y, rows.count);
    }
    for (std::int64_t slot = 0; slot < args_.top_k; ++slot) {
      const std::int64_t pair = token * args_.top_k + slot;
      if (slab(pair) == nullptr) continue;
      const float* const bias = args_.bias != nullptr ? args_.bias[entry(pair)] : nullptr;
      kernels_.add_slot(
          {args_.scales[entry(pair)], bias != nullptr ? args_.topk_weights[pair] : 0.0f,
           dots + slot * rows.count, bias != nullptr ? bias + rows.begin : nullptr, y, rows.count});
    }
    store_run(args_.y_dtype, args_.y, y_index, y, rows.count);
  }

  const memra_rows_down_args& args_;
  const RowsKernels& kernels_;
  const DotsFunction dots_;
  const std::int64_t n_pairs_, rows_per_unit_, tokens_per_unit_;
};

}  // namespace

void rows_gate_up(const memra_rows_gate_up_args& args, const RowsKernels& kernels,
                  const DotsFunctions& dots, ThreadPool& pool) {
  const GateUp work(args, kernels, dots,
                    unit_rows(args.tokens * args.top_k * args.intermediate_size, pool));
  pool.parallel_for(work.units(), work);
}

void rows_down(const memra_rows_down_args& args, const RowsKernels& kernels,
               const DotsFunctions& dots, ThreadPool& pool) {
  const Down work(args, kernels, dots.pick(args.format, args.variant),
                  unit_rows(args.hidden_size, pool));
  pool.parallel_for(work.units(), work);
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
