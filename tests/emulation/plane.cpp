#include "emulation/plane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "emulation/support.h"
#include "grouped_fragment.cuh"
#include "grouped_layout.cuh"
#include "grouped_pairs.cuh"
#include "grouped_products.h"
#include "grouped_tiles.cuh"
#include "reference/exact.h"
#include "reference/floats.h"

namespace memra::emulation {
namespace {

namespace ref = memra::reference;

constexpr int64_t kTokens = 13;  // no multiple of the swizzle's period
constexpr uint8_t kUntouched = 0x5A;
constexpr uint32_t kUntouchedWord = 0x5A5A5A5Au;

float row_scale_of(int64_t token) {
  return std::ldexp(1.0f, static_cast<int>(token % kTokens % 5) - 2);
}

}  // namespace

std::string PlaneSpec::text() const {
  return describe(wgmma, {{"units", units},
                          {"format", static_cast<int64_t>(format)},
                          {"rows", rows},
                          {"columns", columns},
                          {"outputs", outputs},
                          {"experts", n_experts},
                          {"scales", scales},
                          {"bias", bias},
                          {"packed", packed},
                          {"turn", turn},
                          {"multiprocessors", multiprocessors}});
}

Plane::Plane(const PlaneSpec& spec, uint64_t seed) : spec_(spec) {
  ref::Random random(seed);
  const int64_t n_experts = spec.n_experts;
  for (int64_t expert = 0; expert < n_experts; ++expert) {
    slabs_.push_back(ref::random_slab(random, ref::Format::kV1, spec.outputs, spec.columns,
                                      ref::ScaleCodes::kBand));
    if (spec.format != ref::Format::kV1) slabs_.back() = ref::convert(slabs_.back(), spec.format);
    SlabMemory placed = place_slab(slabs_.back(), expert);
    memory_.push_back(std::move(placed.memory));
    pointers_.push_back(placed.slab);
    scales_.push_back(random.uniform(0.5f, 1.5f));
  }
  for (const int32_t expert : spec.null_slabs)
    pointers_[static_cast<size_t>(expert)] = nullptr;
  biases_.resize(static_cast<size_t>(n_experts * spec.outputs));
  for (float& bias : biases_)
    bias = random.normal();
  for (int64_t expert = 0; expert < n_experts; ++expert)
    bias_table_.push_back(expert % 3 == 1 ? nullptr : &biases_[expert * spec.outputs]);
  tokens_.resize(static_cast<size_t>(kTokens * spec.columns));
  for (uint16_t& value : tokens_)
    value = ref::f32_to_f16(random.normal());

  experts_ = spec.experts;
  experts_.resize(static_cast<size_t>(n_experts), -1);
  int32_t next = 0;
  for (const int32_t count : spec.counts) {
    offsets_.push_back(next);
    next += count;
  }
  offsets_.resize(static_cast<size_t>(n_experts + 1), next);
}

bool Plane::is_live(int32_t expert) const {
  return expert >= 0 && expert < spec_.n_experts &&
         pointers_[static_cast<size_t>(expert)] != nullptr;
}

std::vector<uint32_t> Plane::run() {
  const int64_t rows = spec_.rows, columns = spec_.columns;
  Guarded<uint16_t> z(static_cast<size_t>(rows * columns));
  Guarded<float> zs(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = (row + shift_) % kTokens;
    zs[row] = row_scale_of(token);
    for (int64_t position = 0; position < columns; ++position)
      z[cuda::z_index(rows, row, position)] =
          tokens_[token * columns + cuda::column_at(columns, position)];
  }
  Guarded<uint32_t> out(static_cast<size_t>(rows * words_of_row()), kUntouched);
  Guarded<uint8_t> list(cuda::tile_list_bytes(rows, spec_.n_experts, spec_.units), 0xEE);
  auto n_active = static_cast<int32_t>(spec_.experts.size());

  const cuda::Device on = device(spec_.wgmma, spec_.multiprocessors);
  const cuda::TilePlan plan{reinterpret_cast<cuda::TileList*>(list.data()), spec_.units};
  cuda::PlaneProductArgs args{};
  args.rows = {&n_active, experts_.data(), offsets_.data(), spec_.n_experts, rows};
  args.tiles = plan;
  args.turn = spec_.turn;
  args.x = {z.data(), spec_.packed ? nullptr : zs.data(), columns};
  args.plane = {pointers_.data(), spec_.scales ? scales_.data() : nullptr,
                spec_.bias ? bias_table_.data() : nullptr};
  args.format = static_cast<memra_format>(spec_.format);
  args.outputs = spec_.outputs;
  if (spec_.packed) {
    args.packed = out.data();
  } else {
    args.out = reinterpret_cast<float*>(out.data());
  }
  EXPECT_EQ(cuda::plan_tiles(on, args.rows, {plan, plan}, {}), MEMRA_OK);
  EXPECT_EQ(cuda::plane_product(on, args, {}), MEMRA_OK);
  expect_no_faults(spec_.text());
  EXPECT_TRUE(list.intact() && out.intact() && z.intact() && zs.intact()) << spec_.text();
  for (const auto& memory : memory_)
    EXPECT_TRUE(memory->intact()) << spec_.text();
  return out.values();
}

std::vector<double> Plane::activations(int64_t begin, int64_t end) const {
  std::vector<double> x;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = (row + shift_) % kTokens;
    for (int64_t column = 0; column < spec_.columns; ++column) {
      const double value = ref::f16_to_f32(tokens_[token * spec_.columns + column]);
      x.push_back(value * row_scale_of(token));
    }
  }
  return x;
}

// An output's value, and how far from f64's it may be.
bool Plane::is_close(double dot, double magnitude, int32_t expert, int64_t row, int64_t output,
                     const uint32_t* words) const {
  const bool live = is_live(expert);
  const auto at = static_cast<size_t>(expert);
  double want = dot;
  const bool whole = live && !spec_.packed;  // packed outputs are before scales and bias
  if (whole && spec_.scales) want *= scales_[at];
  if (whole && spec_.bias && bias_table_[at] != nullptr) want += bias_table_[at][output];
  if (!spec_.packed) {
    return std::fabs(ref::from_bits(words[output]) - want) <= (live ? 1e-6 * magnitude : 0);
  }
  const float scale = row_scale_of((row + shift_) % kTokens) * cuda::kWeightUnit;
  cuda::OutputPair pair = cuda::unpack_outputs(words[output / 2]);
  pair.first *= scale;
  pair.second *= scale;
  const double got = output % 2 != 0 ? pair.second : pair.first;
  const double rounding = 0x1.01p-11 * std::max(std::fabs(pair.first), std::fabs(pair.second));
  return std::fabs(got - want) <= (live ? 1e-6 * magnitude + rounding : 0);
}

void Plane::expect_entry_right(size_t entry, const std::vector<uint32_t>& words) const {
  const int64_t begin = std::min<int64_t>(offsets_[entry], spec_.rows);
  const int64_t end = std::min<int64_t>(offsets_[entry + 1], spec_.rows);
  const int32_t expert = experts_[entry];
  const std::vector<double> x = activations(begin, end);
  std::vector<double> dots(static_cast<size_t>((end - begin) * spec_.outputs));
  if (is_live(expert)) dots = ref::exact_product(slabs_[static_cast<size_t>(expert)], x);
  for (int64_t row = begin; row < end; ++row) {
    // What a sum's magnitudes come to: weights are all of one size, and so are values.
    double norm = 0;
    for (int64_t column = 0; column < spec_.columns; ++column)
      norm += x[(row - begin) * spec_.columns + column] * x[(row - begin) * spec_.columns + column];
    const double magnitude = std::sqrt(norm * static_cast<double>(spec_.columns)) *
                             ref::weight_rms(ref::ScaleCodes::kBand);
    for (int64_t output = 0; output < spec_.outputs; ++output) {
      const double dot = dots[(row - begin) * spec_.outputs + output];
      if (is_close(dot, magnitude, expert, row, output, &words[row * words_of_row()])) continue;
      ADD_FAILURE() << "row " << row << " of expert " << expert << ", output " << output << " ("
                    << spec_.text() << ")";
      return;
    }
  }
}

void Plane::expect_right(const std::vector<uint32_t>& words) const {
  const int64_t listed = std::min<int64_t>(offsets_[spec_.experts.size()], spec_.rows);
  for (size_t entry = 0; entry < spec_.experts.size(); ++entry)
    expect_entry_right(entry, words);
  const auto first = words.begin() + listed * words_of_row();
  EXPECT_TRUE(std::all_of(first, words.end(), [](uint32_t w) { return w == kUntouchedWord; }))
      << "rows of no expert were written (" << spec_.text() << ")";
}

}  // namespace memra::emulation
