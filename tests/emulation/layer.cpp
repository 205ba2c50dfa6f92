#include "emulation/layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "emulation/support.h"
#include "grouped.h"
#include "grouped_workspace.h"
#include "reference/exact.h"
#include "reference/floats.h"

namespace memra::emulation {
namespace {

namespace ref = memra::reference;

constexpr uint64_t kInvalidBefore = 5;
constexpr double kLargestF16 = 65000;

}  // namespace

Layer::Layer(const ref::MoeProblem& problem, bool wgmma, std::string name)
    : problem_(problem), wgmma_(wgmma), name_(std::move(name)) {
  fill_tables();
}

void Layer::fill_tables() {
  for (const ref::Bank& bank : problem_.banks) {
    for (int64_t expert = 0; expert < problem_.n_local; ++expert) {
      const ref::Slab& slab = bank.slabs[static_cast<size_t>(expert)];
      pointers_.push_back(nullptr);
      if (!slab.bytes.empty()) {
        SlabMemory placed = place_slab(slab, expert);
        slabs_.push_back(std::move(placed.memory));
        pointers_.back() = placed.slab;
      }
      scales_.push_back(bank.scales[static_cast<size_t>(expert)]);
      biases_.push_back(bank.bias.empty() ? nullptr : &bank.bias[expert * bank.rows]);
    }
  }
}

GroupedLayerArgs Layer::args() {
  const ref::MoeProblem& p = problem_;
  const auto format = [&](size_t plane) {
    return static_cast<memra_format>(p.banks[plane].format);
  };
  const bool biased =
      std::any_of(biases_.begin(), biases_.end(), [](const float* b) { return b != nullptr; });
  GroupedLayerArgs args;
  args.shape = {p.hidden,  p.intermediate, p.top_k,   p.n_experts, p.local_offset,
                p.n_local, format(0),      format(1), format(2)};
  args.activation = static_cast<memra_activation>(p.activation.kind);
  args.limit = p.activation.limit;
  args.alpha = p.activation.alpha;
  args.flags = p.accumulate ? MEMRA_FLAG_ACCUMULATE : 0;
  args.x_dtype = dtype_of(p.x_dtype);
  args.y_dtype = dtype_of(p.y_dtype);
  args.tokens = p.tokens;
  args.x_stride = p.x_stride;
  args.y_stride = p.y_stride;
  args.topk_ids = p.ids.data();
  args.topk_weights = p.weights.data();
  args.expert_ptrs = pointers_.data();
  args.expert_scales = scales_.data();
  args.expert_bias = biased ? biases_.data() : nullptr;
  args.invalid_ids = &invalid_ids_;
  return args;
}

std::vector<uint8_t> Layer::run(int multiprocessors, bool staged) {
  const cuda::Device on = device(wgmma_, multiprocessors);
  const Guarded<uint8_t> x(problem_.x);
  Guarded<uint8_t> y(problem_.y_initial);
  invalid_ids_ = kInvalidBefore;
  GroupedLayerArgs layer = args();
  Guarded<uint8_t> workspace(cuda::grouped_layer_workspace(layer.shape, layer.tokens));
  layer.x = x.data();
  layer.y = y.data();
  layer.workspace = workspace.data();
  if (!staged) {
    EXPECT_EQ(cuda::grouped_layer(on, layer, {}), MEMRA_OK) << name_;
  } else {
    // Products twice, and what the first has left is gone: the second must have done the work anew.
    const cuda::GroupedWorkspace places(layer.shape, layer.tokens);
    const int64_t n_pairs = layer.tokens * layer.shape.top_k;
    const auto forget = [&](uint64_t begin, int64_t bytes) {
      std::memset(workspace.data() + begin, 0x7F, static_cast<size_t>(bytes));
    };
    for (uint32_t stage = 1; stage < MEMRA_GROUPED_ALL; stage *= 2) {
      layer.stages = stage;
      EXPECT_EQ(cuda::grouped_layer(on, layer, {}), MEMRA_OK) << name_;
      if (stage == MEMRA_GROUPED_GATE_UP) {
        forget(places.act, 2 * n_pairs * layer.shape.intermediate_size);
        forget(places.exponents, n_pairs * (layer.shape.intermediate_size / 16));
      } else if (stage == MEMRA_GROUPED_DOWN) {
        forget(places.packed, 2 * n_pairs * layer.shape.hidden_size);
      } else {
        continue;
      }
      EXPECT_EQ(cuda::grouped_layer(on, layer, {}), MEMRA_OK) << name_;
    }
  }
  expect_no_faults(name_);
  EXPECT_TRUE(workspace.intact() && x.intact() && y.intact()) << name_;
  for (const auto& slab : slabs_)
    EXPECT_TRUE(slab->intact()) << name_;
  return y.values();
}

void Layer::expect_row_right(const std::vector<uint8_t>& y, const std::vector<double>& want,
                             int64_t token, bool live) const {
  const ref::MoeProblem& p = problem_;
  double error = 0, size = 0, largest = 0;
  for (int64_t column = 0; column < p.hidden; ++column) {
    const double got = ref::load(y, p.y_dtype, token * p.y_stride + column);
    const double exact = want[token * p.hidden + column];
    ASSERT_EQ(std::isnan(got), std::isnan(exact)) << "token " << token << ", " << name_;
    ASSERT_TRUE(live || p.accumulate || got == 0) << "token " << token << ", " << name_;
    if (std::isnan(exact)) continue;
    error += (got - exact) * (got - exact);
    size += exact * exact;
    largest = std::max(largest, std::fabs(exact));
  }
  // Beyond f16, and next to nothing: no measure.
  if ((p.y_dtype == ref::DType::kF16 && largest > kLargestF16) || largest < 1e-36) return;
  const double tolerance = p.y_dtype == ref::DType::kBF16 ? 4e-3 : 1.5e-3;
  EXPECT_LE(std::sqrt(error / size), tolerance) << "token " << token << ", " << name_;
}

void Layer::expect_right(const std::vector<uint8_t>& y) const {
  const ref::MoeProblem& p = problem_;
  const ref::Tables tables = ref::route(p);
  EXPECT_EQ(invalid_ids_ - kInvalidBefore, tables.invalid_ids) << name_;
  const std::vector<double> want = ref::moe_exact(p);
  const int64_t bytes = ref::dtype_bytes(p.y_dtype);
  for (int64_t token = 0; token < p.tokens; ++token) {
    const auto slots = tables.pair_live.begin() + token * p.top_k;
    const bool live = std::any_of(slots, slots + p.top_k, [](uint8_t l) { return l != 0; });
    expect_row_right(y, want, token, live);
    const auto gap = (token * p.y_stride + p.hidden) * bytes;
    const auto end =
        std::min<int64_t>((token + 1) * p.y_stride * bytes, static_cast<int64_t>(y.size()));
    EXPECT_TRUE(gap >= end ||
                std::equal(y.begin() + gap, y.begin() + end, p.y_initial.begin() + gap))
        << "behind token " << token << ", " << name_;
  }
}

}  // namespace memra::emulation
