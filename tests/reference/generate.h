// Seeded problems for tests, scaled so that gate and up before the activation are of order 1: a
// comparison of saturated outputs proves nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/moe.h"

namespace memra::reference {

// splitmix64: the same stream on every machine, no library distribution.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits();
  std::int64_t below(std::int64_t n);    // 0 .. n - 1
  float uniform();                       // [0, 1)
  float uniform(float low, float high);  // [low, high)
  float normal();                        // near N(0, 1): a sum of uniforms, no libm

 private:
  std::uint64_t state_;
};

enum class ScaleCodes {
  kAll,   // every legal code, 0x00 .. 0x7E
  kBand,  // 1, 1.125 .. 1.875: codes 0x38 .. 0x3F
};

Slab random_slab(Random& random, Format format, std::int64_t rows, std::int64_t cols,
                 ScaleCodes scales);
// Root mean square of the weights of such slabs, without the expert scale.
double weight_rms(ScaleCodes scales);

enum class IdPattern {
  kDistinct,     // random, distinct in each token
  kOneExpert,    // all on the last expert
  kWithInvalid,  // distinct, with -1, n_experts, INT_MIN, INT_MAX mixed in; token 0 has no valid id
  kDuplicates,   // each drawn alone, so that a token may name an expert twice
};

// What a row of x holds. Special rows are put at the tokens that `special_rows` names.
enum class RowKind {
  kNormal,
  kZero,
  kOneNan,
  kOneInf,
  kTiny41,       // all near 1e-41
  kTiny38,       // all near 1e-38
  kTinyMixed,    // 1e-41, 1e-38 and 1
  kOneHuge,      // normal with one 1e5 (f16: 6e4)
  kBlockOf6000,  // normal with one group of 32 at 6000
};

struct SpecialRow {
  std::int64_t token;
  RowKind kind;
};

struct ProblemSpec {
  std::int64_t hidden = 128;
  std::int64_t intermediate = 64;
  std::int64_t n_experts = 4;
  std::int64_t top_k = 2;
  std::int64_t tokens = 3;
  std::int64_t local_offset = 0;
  std::int64_t n_local = -1;  // -1: all
  std::uint64_t seed = 1;

  Format gate_format = Format::kV1;
  Format up_format = Format::kV1;
  Format down_format = Format::kV1;
  ScaleCodes scales = ScaleCodes::kBand;
  bool bias = false;  // on every plane
  ActivationParams activation;
  float pre_activation = 1.0f;  // root mean square of gate and up for normal rows

  IdPattern ids = IdPattern::kDistinct;
  std::vector<SpecialRow> special_rows;
  DType x_dtype = DType::kF32;
  DType y_dtype = DType::kF32;
  std::int64_t x_padding = 0;  // elements between the rows
  std::int64_t y_padding = 0;
  bool accumulate = false;  // y_initial random; otherwise it is 0xFF throughout

  ProblemSpec& with_format(Format format);  // on every plane
};

MoeProblem make_problem(const ProblemSpec& spec);

// The same problem in other clothes, for comparisons that must not change a bit.
MoeProblem with_format(const MoeProblem& problem, Format format);
MoeProblem only_tokens(const MoeProblem& problem, std::int64_t first, std::int64_t count);

void fill_row(MoeProblem& problem, std::int64_t token, RowKind kind, Random& random);

}  // namespace memra::reference
