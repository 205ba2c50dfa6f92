#include "dense.h"

#include <algorithm>
#include <cmath>

#include "inputs.h"

namespace memra::bench {
namespace {

constexpr uint32_t kActivationSeed = 25;
constexpr double kMinRepeatBytes = 300e6;
constexpr int64_t kMinCopies = 3;
constexpr int64_t kMaxCopies = 64;
constexpr size_t kElement = sizeof(uint16_t);

int64_t copies_for(double product_bytes) {
  const auto enough = static_cast<int64_t>(std::ceil(kMinRepeatBytes / product_bytes));
  return std::clamp(enough, kMinCopies, kMaxCopies);
}

}  // namespace

DenseProduct::DenseProduct(const DenseBlas& blas, const GroupedCalls& calls, bool is_down)
    : blas_(blas), calls_(calls), is_down_(is_down) {
  const Shape& shape = calls.shape();
  const Session& session = calls.banks().session();
  rows_ = shape.n_pairs();
  columns_ = plane_columns(shape, first_plane());
  outputs_ = plane_rows(shape, first_plane()) * (is_down ? 1 : 2);
  const auto bytes = [](int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows) * static_cast<size_t>(columns) * kElement;
  };
  const size_t x_bytes = bytes(rows_, columns_);
  const size_t w_bytes = bytes(outputs_, columns_);
  const size_t out_bytes = bytes(rows_, outputs_);
  count_ = copies_for(static_cast<double>(x_bytes + w_bytes + out_bytes));
  const auto copies = static_cast<size_t>(count_);
  x_ = session.device_memory(copies * x_bytes);
  w_ = session.device_memory(copies * w_bytes);
  out_ = session.device_memory(copies * out_bytes);

  std::vector<uint16_t> x;
  if (is_down) {
    for (const float value : random_floats(shape.tokens * columns_, kActivationSeed))
      x.push_back(f16_bits(value));
  } else {
    for (const uint16_t value : calls.x())
      x.push_back(f16_bits(bf16_value(value)));
  }
  const Memory device_x = session.upload(x);
  const int64_t repeats = count_ * shape.top_k;
  for (int64_t i = 0; i < repeats; ++i) {
    session.copy(x_.as<std::byte>() + static_cast<size_t>(i) * device_x.bytes(), device_x.as(),
                 device_x.bytes());
  }
  for (int64_t copy = 0; copy < count_; ++copy)
    make_weights(copy);
  launch(0);
  session.synchronize();
}

void DenseProduct::make_weights(int64_t copy) const {
  const GroupedBanks& banks = calls_.banks();
  const int64_t n_planes = is_down_ ? 1 : 2;
  const int64_t plane_values = outputs_ / n_planes * columns_;
  for (int64_t i = 0; i < n_planes; ++i) {
    memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
    args.format = banks.format();
    args.rows = outputs_ / n_planes;
    args.columns = columns_;
    args.n_experts = 1;
    args.src = banks.fixture(0).slab(static_cast<Plane>(first_plane() + i),
                                     copy % calls_.shape().n_experts);
    args.dst = w_.as<uint16_t>() + copy * outputs_ * columns_ + i * plane_values;
    args.dst_dtype = MEMRA_F16;
    const Session& session = banks.session();
    check(memra_dequantize(session.engine(), &args, session.stream()), "memra_dequantize");
  }
}

double DenseProduct::flops() const {
  return 2.0 * static_cast<double>(rows_) * static_cast<double>(outputs_) *
         static_cast<double>(columns_);
}

void DenseProduct::launch(int64_t call) const {
  blas_.multiply(x_.as<const uint16_t>() + call * rows_ * columns_,
                 w_.as<const uint16_t>() + call * outputs_ * columns_,
                 out_.as<uint16_t>() + call * rows_ * outputs_, rows_, outputs_, columns_);
}

}  // namespace memra::bench
