#include "grouped_accuracy.h"

#include <algorithm>
#include <cmath>

#include "inputs.h"

namespace memra::bench {
namespace {

// Multiplications of the reference: about a second.
constexpr double kPlaneWork = 1e8;
constexpr double kLayerWork = 5e8;
constexpr int64_t kMaxRows = 64;
constexpr int64_t kMaxTokens = 8;

using Row = std::vector<double>;

// `most` of 0 .. count - 1, the first and the last among them.
std::vector<int64_t> spread(int64_t count, int64_t most) {
  const int64_t n = std::min(count, most);
  std::vector<int64_t> picked;
  picked.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    picked.push_back(n == 1 ? 0 : i * (count - 1) / (n - 1));
  return picked;
}

Row widen(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// An expert's slab of the first bank, its scale included.
class Slab {
 public:
  Slab(const GroupedBanks& banks, Plane plane, int32_t expert)
      : rows_(plane_rows(banks.shape(), plane)), columns_(plane_columns(banks.shape(), plane)) {
    const Session& session = banks.session();
    const auto count = static_cast<size_t>(rows_) * static_cast<size_t>(columns_);
    const Memory memory = session.device_memory(count * sizeof(float));
    const Memory scale = session.upload(std::vector<float>{banks.fixture(0).scale(plane, expert)});
    memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
    args.format = banks.format();
    args.rows = rows_;
    args.columns = columns_;
    args.n_experts = 1;
    args.src = banks.fixture(0).slab(plane, expert);
    args.expert_scales = scale.as<float>();
    args.dst = memory.as();
    args.dst_dtype = MEMRA_F32;
    check(memra_dequantize(session.engine(), &args, session.stream()), "memra_dequantize");
    values_ = session.download<float>(memory);
  }

  Row times(const Row& x) const {
    Row products;
    for (int64_t row = 0; row < rows_; ++row) {
      const float* const weights = values_.data() + row * columns_;
      double sum = 0;
      for (int64_t i = 0; i < columns_; ++i)
        sum += static_cast<double>(weights[i]) * x[static_cast<size_t>(i)];
      products.push_back(sum);
    }
    return products;
  }

 private:
  int64_t rows_, columns_;
  std::vector<float> values_;
};

Accuracy plane_accuracy(const GroupedCalls& calls, const GroupedPlanes& planes, Plane plane) {
  const Shape& shape = calls.shape();
  const double row_work =
      static_cast<double>(shape.hidden_size) * static_cast<double>(shape.intermediate_size);
  const auto most = std::clamp<int64_t>(std::llround(kPlaneWork / row_work), 4, kMaxRows);
  planes.launch_product(0, plane);
  AccuracySums sums;
  for (const int64_t row : spread(shape.n_pairs(), most)) {
    const int32_t pair = planes.order()[static_cast<size_t>(row)];
    const int32_t expert = calls.ids()[static_cast<size_t>(pair)];
    const Row exact = Slab(calls.banks(), plane, expert).times(widen(planes.input(plane, row)));
    sums.add_row(planes.output(plane, row), exact);
  }
  return sums.result();
}

Row token_output(const GroupedCalls& calls, int64_t token) {
  const Shape& shape = calls.shape();
  Row x;
  for (int64_t i = 0; i < shape.hidden_size; ++i)
    x.push_back(bf16_value(calls.x()[static_cast<size_t>(token * shape.hidden_size + i)]));
  Row y(static_cast<size_t>(shape.hidden_size));
  for (int64_t slot = 0; slot < shape.top_k; ++slot) {
    const auto pair = static_cast<size_t>(token * shape.top_k + slot);
    const int32_t expert = calls.ids()[pair];
    Row act = Slab(calls.banks(), kGate, expert).times(x);
    const Row up = Slab(calls.banks(), kUp, expert).times(x);
    for (size_t i = 0; i < act.size(); ++i)
      act[i] = act[i] / (1 + std::exp(-act[i])) * up[i];
    const Row down = Slab(calls.banks(), kDown, expert).times(act);
    for (size_t i = 0; i < y.size(); ++i)
      y[i] += calls.topk_weights()[pair] * down[i];
  }
  return y;
}

Accuracy layer_accuracy(const GroupedCalls& calls) {
  const Shape& shape = calls.shape();
  const double token_work = kPlanes * static_cast<double>(shape.top_k) *
                            static_cast<double>(shape.hidden_size) *
                            static_cast<double>(shape.intermediate_size);
  const auto most = std::clamp<int64_t>(std::llround(kLayerWork / token_work), 2, kMaxTokens);
  const std::vector<float> y = calls.output(0);
  AccuracySums sums;
  for (const int64_t token : spread(shape.tokens, most)) {
    const auto hidden = static_cast<size_t>(shape.hidden_size);
    sums.add_row({y.data() + static_cast<size_t>(token) * hidden, hidden},
                 token_output(calls, token));
  }
  return sums.result();
}

}  // namespace

bool GroupedAccuracy::within_limits() const {
  return layer.relative_l2 <= kLayerLimit &&
         std::all_of(std::begin(planes), std::end(planes),
                     [](const Accuracy& plane) { return plane.relative_l2 <= kPlaneLimit; });
}

GroupedAccuracy measure_accuracy(const GroupedCalls& calls, const GroupedPlanes& planes) {
  GroupedAccuracy accuracy;
  for (const Plane plane : {kGate, kUp, kDown})
    accuracy.planes[plane] = plane_accuracy(calls, planes, plane);
  accuracy.layer = layer_accuracy(calls);
  return accuracy;
}

}  // namespace memra::bench
