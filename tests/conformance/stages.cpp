#include "conformance/stages.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace memra::test {

using reference::BitReport;
using reference::Plane;

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

::testing::AssertionResult same(const char* name, const BitReport& report, const Buffer& buffer) {
  if (!report.same()) return ::testing::AssertionFailure() << name << ": " << report.text();
  return buffer.guards_intact();
}

}  // namespace

DeviceStages::DeviceStages(const DeviceProblem& device, const Solved& solved)
    : device_(device), solved_(solved), problem_(device.problem()), n_pairs_(problem_.n_pairs()) {
  Engine& engine = device.engine();
  const std::int64_t tokens = problem_.tokens;
  const std::int64_t hidden = problem_.hidden;
  const std::int64_t intermediate = problem_.intermediate;
  upload_tables();
  x_ = Input(engine, problem_.x, 16);
  weights_ = Input(engine, problem_.weights);
  order_ = Input(engine, expert_order());
  q_ = Buffer(engine, tokens * hidden, 16);
  q_permuted_ = Buffer(engine, tokens * hidden, 16);
  d_ = Buffer(engine, tokens * (hidden / 32) * 4, 16);
  act_ = Buffer(engine, n_pairs_ * intermediate * 4, 16);
  act_q_ = Buffer(engine, n_pairs_ * intermediate, 16);
  act_q_permuted_ = Buffer(engine, n_pairs_ * intermediate, 16);
  act_d_ = Buffer(engine, n_pairs_ * (intermediate / 32) * 4, 16);
  y_ = Buffer(engine, static_cast<std::int64_t>(problem_.y_initial.size()), 16);
}

void DeviceStages::upload_tables() {
  for (const Plane plane : {reference::kGate, reference::kUp, reference::kDown})
    has_bias_ = has_bias_ || device_.bias(plane, 0) != nullptr;
  ptrs_ = Input(engine(), std::vector<const void*>(at(3 * n_pairs_), nullptr));
  scales_ = Input(engine(), std::vector<float>(at(3 * n_pairs_), 0.0f));
  bias_ = Input(engine(), std::vector<const float*>(at(3 * n_pairs_), nullptr));
  replace_tables(reference::route(problem_), problem_);
}

void DeviceStages::replace_tables(const reference::Tables& tables,
                                  const reference::MoeProblem& problem) {
  std::vector<const void*> ptrs;
  std::vector<float> scales;
  std::vector<const float*> bias;
  const reference::PairPlane* planes[3] = {&tables.gate, &tables.up, &tables.down};
  for (const Plane plane : {reference::kGate, reference::kUp, reference::kDown}) {
    const reference::Bank& bank = problem.banks[plane];
    for (std::int64_t pair = 0; pair < n_pairs_; ++pair) {
      const reference::Slab* slab = planes[plane]->slabs[at(pair)];
      const float* row = planes[plane]->bias[at(pair)];
      ptrs.push_back(slab == nullptr ? nullptr : device_.slab(plane, slab - bank.slabs.data()));
      scales.push_back(planes[plane]->scales[at(pair)]);
      bias.push_back(row == nullptr ? nullptr
                                    : device_.bias(plane, (row - bank.bias.data()) / bank.rows));
    }
  }
  ptrs_.replace(bytes_of(ptrs));
  scales_.replace(bytes_of(scales));
  bias_.replace(bytes_of(bias));
}

std::vector<std::int32_t> DeviceStages::expert_order() const {
  std::vector<std::int32_t> order(at(n_pairs_));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return problem_.ids[at(a)] < problem_.ids[at(b)];
  });
  return order;
}

void DeviceStages::quantize(const Buffer& x, memra_dtype dtype, std::int64_t stride,
                            std::int64_t rows, std::int64_t columns, const Buffer& q,
                            const Buffer& d) const {
  q.fill(0x80);  // -128 is never a result
  d.fill(0xFF);
  memra_q8_1_args args = MEMRA_Q8_1_ARGS_INIT;
  args.x_dtype = dtype;
  args.x = x.data();
  args.x_stride = stride;
  args.rows = rows;
  args.columns = columns;
  args.q = q.as<std::int8_t>();
  args.d = d.as<float>();
  require(memra_quantize_q8_1(engine().get(), &args, engine().stream()));
  engine().synchronize();
}

void DeviceStages::quantize_x() const {
  quantize(x_.buffer(), abi(problem_.x_dtype), problem_.x_stride, problem_.tokens, problem_.hidden,
           q_, d_);
}

void DeviceStages::quantize_act() const {
  quantize(act_, MEMRA_F32, 0, n_pairs_, problem_.intermediate, act_q_, act_d_);
}

const Buffer* DeviceStages::in_order(const Buffer& q, const Buffer& permuted, std::int64_t rows,
                                     std::int64_t columns, std::uint32_t variant) const {
  if ((variant & MEMRA_ROWS_LANE_MAJOR) == 0) return &q;
  permuted.fill(0x80);
  require(memra_q8_to_lane_major(engine().get(), q.as<std::int8_t>(), rows, columns,
                                 permuted.as<std::int8_t>(), engine().stream()));
  engine().synchronize();
  return &permuted;
}

std::vector<std::uint32_t> DeviceStages::variants_of(bool lane_major_possible) const {
  constexpr std::uint32_t kBits[] = {MEMRA_ROWS_ILP, MEMRA_ROWS_ORD, MEMRA_ROWS_DEDUP_ORDER,
                                     MEMRA_ROWS_PACK, MEMRA_ROWS_LANE_MAJOR};
  std::vector<std::uint32_t> result = {MEMRA_ROWS_AUTO, MEMRA_ROWS_PLAIN};
  for (unsigned chosen = 1; chosen < 32; ++chosen) {
    std::uint32_t variant = 0;
    for (unsigned i = 0; i < 5; ++i)
      variant |= (chosen >> i & 1) != 0 ? kBits[i] : 0u;
    const auto has_both = [&](std::uint32_t a, std::uint32_t b) {
      return (variant & a) != 0 && (variant & b) != 0;
    };
    if (has_both(MEMRA_ROWS_ORD, MEMRA_ROWS_DEDUP_ORDER)) continue;
    if (has_both(MEMRA_ROWS_LANE_MAJOR, MEMRA_ROWS_ILP)) continue;
    if ((variant & MEMRA_ROWS_LANE_MAJOR) != 0 && !lane_major_possible) continue;
    result.push_back(variant);
  }
  return result;
}

std::vector<std::uint32_t> DeviceStages::gate_up_variants() const {
  return variants_of(problem_.banks[reference::kGate].format == reference::Format::kV2 &&
                     problem_.banks[reference::kUp].format == reference::Format::kV2);
}

std::vector<std::uint32_t> DeviceStages::down_variants() const {
  return variants_of(problem_.banks[reference::kDown].format == reference::Format::kV2);
}

memra_rows_gate_up_args DeviceStages::gate_up_args(std::uint32_t variant) const {
  memra_rows_gate_up_args args = MEMRA_ROWS_GATE_UP_ARGS_INIT;
  args.tokens = problem_.tokens;
  args.top_k = problem_.top_k;
  args.hidden_size = problem_.hidden;
  args.intermediate_size = problem_.intermediate;
  args.gate_format = abi(problem_.banks[reference::kGate].format);
  args.up_format = abi(problem_.banks[reference::kUp].format);
  args.activation = abi(problem_.activation.kind);
  args.limit = problem_.activation.limit;
  args.alpha = problem_.activation.alpha;
  args.variant = variant;
  args.ptrs = ptrs_.buffer().as<const void*>();
  args.scales = scales_.buffer().as<float>();
  args.bias = has_bias_ ? bias_.buffer().as<const float*>() : nullptr;
  args.order = order_.buffer().as<std::int32_t>();
  args.q = q_.as<std::int8_t>();
  args.d = d_.as<float>();
  args.out = act_.as<float>();
  return args;
}

void DeviceStages::gate_up(std::uint32_t variant) const {
  act_.fill(0xFF);
  memra_rows_gate_up_args args = gate_up_args(variant);
  args.q = in_order(q_, q_permuted_, problem_.tokens, problem_.hidden, variant)->as<std::int8_t>();
  require(memra_moe_rows_gate_up(engine().get(), &args, engine().stream()));
  engine().synchronize();
}

memra_rows_down_args DeviceStages::down_args(std::uint32_t variant) const {
  memra_rows_down_args args = MEMRA_ROWS_DOWN_ARGS_INIT;
  if (problem_.accumulate) args.flags = MEMRA_FLAG_ACCUMULATE;
  args.tokens = problem_.tokens;
  args.top_k = problem_.top_k;
  args.intermediate_size = problem_.intermediate;
  args.hidden_size = problem_.hidden;
  args.format = abi(problem_.banks[reference::kDown].format);
  args.y_dtype = abi(problem_.y_dtype);
  args.variant = variant;
  args.ptrs = ptrs_.buffer().as<const void*>();
  args.scales = scales_.buffer().as<float>();
  args.bias = has_bias_ ? bias_.buffer().as<const float*>() : nullptr;
  args.topk_weights = has_bias_ ? weights_.buffer().as<float>() : nullptr;
  args.q = act_q_.as<std::int8_t>();
  args.d = act_d_.as<float>();
  args.y = y_.data();
  args.y_stride = problem_.y_stride == problem_.hidden ? 0 : problem_.y_stride;
  return args;
}

void DeviceStages::down(std::uint32_t variant) const {
  y_.upload(problem_.y_initial);
  memra_rows_down_args args = down_args(variant);
  args.q = in_order(act_q_, act_q_permuted_, n_pairs_, problem_.intermediate, variant)
               ->as<std::int8_t>();
  require(memra_moe_rows_down(engine().get(), &args, engine().stream()));
  engine().synchronize();
}

void DeviceStages::feed_gate_up() const {
  q_.upload_values(solved_.result.x_q.q);
  d_.upload_values(solved_.result.x_q.d);
}

void DeviceStages::feed_quantize_act() const {
  act_.upload_values(solved_.result.gate_up.act);
}

void DeviceStages::feed_down() const {
  act_q_.upload_values(solved_.result.act_q.q);
  act_d_.upload_values(solved_.result.act_q.d);
}

::testing::AssertionResult DeviceStages::check_q(const Buffer& q, const Buffer& d,
                                                 const reference::QuantizedRows& expected) const {
  const auto q_report = reference::compare_bits(std::span<const std::int8_t>(expected.q),
                                                q.download_values<std::int8_t>(), expected.cols);
  if (auto result = same("q", q_report, q); !result) return result;
  return same("d",
              reference::compare_bits(std::span<const float>(expected.d),
                                      d.download_values<float>(), expected.cols / 32),
              d);
}

::testing::AssertionResult DeviceStages::check_x_q() const {
  return check_q(q_, d_, solved_.result.x_q);
}

::testing::AssertionResult DeviceStages::check_act_q() const {
  return check_q(act_q_, act_d_, solved_.result.act_q);
}

::testing::AssertionResult DeviceStages::check_act() const {
  return same("act",
              reference::compare_bits(std::span<const float>(solved_.result.gate_up.act),
                                      act_.download_values<float>(), problem_.intermediate),
              act_);
}

::testing::AssertionResult DeviceStages::check_y() const {
  const Bytes actual = y_.download();
  if (actual == solved_.result.y) return y_.guards_intact();
  return same("y",
              reference::compare_bits(solved_.result.y, actual, problem_.y_dtype, problem_.tokens,
                                      problem_.hidden, problem_.y_stride),
              y_)
         << " (or the bytes between its rows)";
}

::testing::AssertionResult DeviceStages::inputs_intact() const {
  const std::pair<const Input*, const char*> inputs[] = {
      {&x_, "x"},       {&ptrs_, "ptrs"},   {&scales_, "scales"},
      {&bias_, "bias"}, {&order_, "order"}, {&weights_, "topk_weights"}};
  for (const auto& [input, name] : inputs) {
    if (auto result = input->intact(name); !result) return result;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace memra::test
