// The grouped path as a whole: activations to f16, gate and up with the activation, down, and the
// weighted sum over slots.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/grouped.h"
#include "cpu/grouped_tiles.h"
#include "cpu/typed_run.h"
#include "numerics/dot.h"

namespace memra::cpu {
namespace {

static_assert(kTileOutputs == F16Rows::kBlock, "a tile of activations has one exponent a row");

// Down is done in two halves of its outputs, so that the f32 outputs of all pairs fit where the
// activations of the tokens were.
constexpr std::int64_t kParts = 2;

// Byte offsets of a call's intermediates.
struct Workspace {
  std::uint64_t next = 0, active = 0, offsets = 0, n_active = 0;  // of route()
  std::uint64_t order = 0, inverse = 0;
  std::uint64_t z = 0, z_exponents = 0;      // f16 [tokens, hidden], int8 [tokens]
  std::uint64_t out = 0;                     // f32 [n_pairs, hidden / kParts], in the place of z
  std::uint64_t act = 0, act_exponents = 0;  // f16 [n_pairs, intermediate], int8 [.. / kBlock]
  std::uint64_t bytes = 0;

  Workspace(const GroupedShape& shape, std::int64_t tokens) {
    const auto t = static_cast<std::uint64_t>(tokens);
    const auto n = t * static_cast<std::uint64_t>(shape.top_k);
    const auto h = static_cast<std::uint64_t>(shape.hidden_size);
    const auto m = static_cast<std::uint64_t>(shape.intermediate_size);
    const auto e = static_cast<std::uint64_t>(shape.n_local_experts);
    next = take(route_workspace(shape.n_local_experts));
    active = take(e * 4);
    offsets = take((e + 1) * 4);
    n_active = take(4);
    order = take(n * 4);
    inverse = take(n * 4);
    z_exponents = take(t);
    z = out = take(std::max(t * h * 2, n * (h / kParts) * 4));
    act = take(n * m * 2);
    act_exponents = take(n * (m / F16Rows::kBlock));
  }

 private:
  // Cache lines: threads write to neighbouring tables.
  std::uint64_t take(std::uint64_t size) {
    const std::uint64_t begin = bytes;
    bytes = (bytes + size + 63) / 64 * 64;
    return begin;
  }
};

class Layer {
 public:
  Layer(const GroupedLayerArgs& args, const RowsKernels& kernels, ThreadPool& pool)
      : args_(args),
        shape_(args.shape),
        kernels_(kernels),
        pool_(pool),
        n_pairs_(args.tokens * args.shape.top_k) {
    const Workspace places(shape_, args.tokens);
    next_ = at<std::int32_t>(places.next);
    n_active_ = at<std::int32_t>(places.n_active);
    active_ = at<std::int32_t>(places.active);
    offsets_ = at<std::int32_t>(places.offsets);
    order_ = at<std::int32_t>(places.order);
    inverse_ = at<std::int32_t>(places.inverse);
    z_ = at<std::uint16_t>(places.z);
    z_exponents_ = at<std::int8_t>(places.z_exponents);
    out_ = at<float>(places.out);
    act_ = at<std::uint16_t>(places.act);
    act_exponents_ = at<std::int8_t>(places.act_exponents);
  }

  void run() const {
    if (wants(MEMRA_GROUPED_ROUTE)) route_pairs();
    if (wants(MEMRA_GROUPED_GATHER)) narrow_tokens();
    if (wants(MEMRA_GROUPED_GATE_UP)) gate_up();
    const std::int64_t part = shape_.hidden_size / kParts;
    for (std::int64_t begin = 0; begin < shape_.hidden_size; begin += part) {
      if (wants(MEMRA_GROUPED_DOWN)) down(begin, part);
      if (wants(MEMRA_GROUPED_SUM)) add_slots(begin, part);
    }
  }

 private:
  template <typename T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(args_.workspace) + offset);
  }
  bool wants(std::uint32_t stage) const { return (args_.stages & stage) != 0; }
  std::int64_t entry(std::int64_t plane, std::int64_t expert) const {
    return plane * shape_.n_local_experts + expert;
  }
  const std::uint8_t* slab(std::int64_t entry) const {
    return static_cast<const std::uint8_t*>(args_.expert_ptrs[entry]);
  }
  const float* bias(std::int64_t entry) const {
    return args_.expert_bias != nullptr ? args_.expert_bias[entry] : nullptr;
  }
  ExpertRows experts() const {
    return {n_active_, active_, offsets_, shape_.n_local_experts, n_pairs_};
  }

  void route_pairs() const {
    memra_moe_route_args route_args{};
    route_args.tokens = args_.tokens;
    route_args.top_k = shape_.top_k;
    route_args.n_experts = shape_.n_experts;
    route_args.local_expert_offset = shape_.local_expert_offset;
    route_args.n_local_experts = shape_.n_local_experts;
    route_args.topk_ids = args_.topk_ids;
    route_args.expert_ptrs = args_.expert_ptrs;
    route_args.n_active = n_active_;
    route_args.active_experts = active_;
    route_args.offsets = offsets_;
    route_args.pair_order = order_;
    route_args.inverse = inverse_;
    route_args.invalid_ids = args_.invalid_ids;
    route_args.workspace = next_;
    route(route_args);
  }

  // Once a token: pairs find its row by their order.
  void narrow_tokens() const {
    const std::int64_t element = args_.x_dtype == MEMRA_F32 ? 4 : 2;
    pool_.parallel_for(args_.tokens, [&](std::int64_t token) {
      const auto* const x =
          static_cast<const std::uint8_t*>(args_.x) + token * args_.x_stride * element;
      z_exponents_[token] = kernels_.grouped.narrow(
          {x, args_.x_dtype, shape_.hidden_size, z_ + token * shape_.hidden_size});
    });
  }

  void gate_up() const {
    const F16Rows x{.z = z_,
                    .columns = shape_.hidden_size,
                    .exponents = z_exponents_,
                    .index = order_,
                    .top_k = shape_.top_k};
    const std::int64_t width = shape_.intermediate_size;
    for_tiles(experts(), width, pool_, [&](const Tile& tile) {
      const std::int64_t gate = entry(0, tile.expert), up = entry(1, tile.expert);
      TileSums<2> sums;
      sums.compute(kernels_.grouped, x, tile,
                   {{slab(gate), shape_.gate_format, width}, {slab(up), shape_.up_format, width}},
                   0);
      const float* const gate_bias = bias(gate);
      const float* const up_bias = bias(up);
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        float values[kTileOutputs];
        kernels_.finish_gate_up(
            {args_.activation, args_.limit, args_.alpha, args_.expert_scales[gate],
             args_.expert_scales[up], sums.row(0, r), sums.row(1, r),
             gate_bias != nullptr ? gate_bias + tile.output : nullptr,
             up_bias != nullptr ? up_bias + tile.output : nullptr, values, tile.outputs});
        const std::int64_t at = (tile.row + r) * width + tile.output;
        act_exponents_[at / F16Rows::kBlock] =
            kernels_.grouped.narrow({values, MEMRA_F32, tile.outputs, act_ + at});
      }
    });
  }

  // Outputs [begin, begin + count) of every pair.
  void down(std::int64_t begin, std::int64_t count) const {
    const F16Rows x{.z = act_,
                    .columns = shape_.intermediate_size,
                    .exponents = act_exponents_,
                    .exponents_per_row = shape_.intermediate_size / F16Rows::kBlock};
    for_tiles(experts(), count, pool_, [&](const Tile& tile) {
      TileSums<1> sums;
      sums.compute(kernels_.grouped, x, tile,
                   {{slab(entry(2, tile.expert)), shape_.down_format, shape_.hidden_size}}, begin);
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        std::copy_n(sums.row(0, r), tile.outputs, out_ + (tile.row + r) * count + tile.output);
      }
    });
  }

  // Rule 6: slots in order, in f32.
  void add_slots(std::int64_t begin, std::int64_t count) const {
    constexpr std::int64_t kRun = 512;
    pool_.parallel_for(args_.tokens, [&](std::int64_t token) {
      for (std::int64_t i = 0; i < count; i += kRun) {
        const std::int64_t run = std::min(kRun, count - i);
        const std::int64_t y_index = token * args_.y_stride + begin + i;
        float y[kRun] = {};
        if ((args_.flags & MEMRA_FLAG_ACCUMULATE) != 0) {
          load_run(args_.y_dtype, args_.y, y_index, y, run);
        }
        for (std::int64_t slot = 0; slot < shape_.top_k; ++slot) {
          const std::int64_t pair = token * shape_.top_k + slot;
          if (inverse_[pair] < 0) continue;
          const std::int64_t down = entry(2, args_.topk_ids[pair] - shape_.local_expert_offset);
          const float weight = args_.topk_weights[pair];
          const float* const rows_bias = bias(down);
          kernels_.add_slot({numerics::pair_scale(weight, args_.expert_scales[down]), weight,
                             out_ + inverse_[pair] * count + i,
                             rows_bias != nullptr ? rows_bias + begin + i : nullptr, y, run});
        }
        store_run(args_.y_dtype, args_.y, y_index, y, run);
      }
    });
  }

  const GroupedLayerArgs& args_;
  const GroupedShape& shape_;
  const RowsKernels& kernels_;
  ThreadPool& pool_;
  const std::int64_t n_pairs_;
  std::int32_t* next_;
  std::int32_t* n_active_;
  std::int32_t* active_;
  std::int32_t* offsets_;
  std::int32_t* order_;
  std::int32_t* inverse_;
  std::uint16_t* z_;
  std::int8_t* z_exponents_;
  float* out_;
  std::uint16_t* act_;
  std::int8_t* act_exponents_;
};

}  // namespace

std::uint64_t grouped_workspace(const GroupedShape& shape, std::int64_t tokens) {
  return Workspace(shape, tokens).bytes;
}

void grouped_layer(const GroupedLayerArgs& args, const RowsKernels& kernels, ThreadPool& pool) {
  Layer(args, kernels, pool).run();
}

}  // namespace memra::cpu
