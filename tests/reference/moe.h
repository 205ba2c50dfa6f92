// Rules 4 to 6 of design section 4: the stages and the whole layer of the rows path.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/arithmetic.h"
#include "reference/floats.h"
#include "reference/formats.h"

namespace memra::reference {

// ---- Stages. Pair p is (token p / top_k, slot p % top_k); tables hold one entry a pair. ----

// Entries of one plane. A NULL slab skips the pair; an empty `bias` means no bias, a NULL entry in
// it no bias for that pair.
struct PairPlane {
  std::vector<const Slab*> slabs;  // [n_pairs]
  std::vector<float> scales;       // [n_pairs]
  std::vector<const float*> bias;  // empty or [n_pairs], each [rows]
};

// Gate and up as they enter the activation, and what leaves it. Rows of skipped pairs are +0.
struct GateUp {
  std::int64_t pairs = 0;
  std::int64_t intermediate = 0;
  std::vector<float> gate;  // [n_pairs, intermediate]
  std::vector<float> up;    // [n_pairs, intermediate]
  std::vector<float> act;   // [n_pairs, intermediate]
};

// Rules 2, 3, 4, 7. A pair is skipped where its gate or its up slab is NULL.
GateUp gate_up(const QuantizedRows& x, std::int64_t top_k, std::int64_t intermediate,
               const PairPlane& gate, const PairPlane& up, const ActivationParams& activation);

// Rules 2, 3, 6. `plane.scales` already hold mul(topk_weight, scale_down); `weights` serve the bias
// alone and may be empty without one. `y` is [tokens, hidden]: zeros, or the values to add to.
void down(const QuantizedRows& act, std::int64_t top_k, std::int64_t hidden, const PairPlane& plane,
          std::span<const float> weights, std::vector<float>& y);

// ---- The layer. ----

enum Plane { kGate = 0, kUp = 1, kDown = 2 };

// One plane of the local experts. A slab without bytes is a NULL pointer.
struct Bank {
  Format format = Format::kV1;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<Slab> slabs;    // [n_local]
  std::vector<float> scales;  // [n_local]
  std::vector<float> bias;    // empty or [n_local, rows]
};

struct MoeProblem {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t n_experts = 0;
  std::int64_t top_k = 0;
  std::int64_t local_offset = 0;  // local experts are [local_offset, local_offset + n_local)
  std::int64_t n_local = 0;
  ActivationParams activation;
  std::array<Bank, 3> banks;  // by Plane

  // Per-call tables [3 * n_local], plane-major; each overrides the banks where it is not empty.
  std::vector<const Slab*> table_slabs;
  std::vector<float> table_scales;

  std::int64_t tokens = 0;
  DType x_dtype = DType::kF32;
  std::int64_t x_stride = 0;  // in elements; hidden where dense
  std::vector<std::uint8_t> x;
  std::vector<std::int32_t> ids;  // [tokens, top_k]
  std::vector<float> weights;     // [tokens, top_k]

  DType y_dtype = DType::kF32;
  std::int64_t y_stride = 0;            // in elements
  std::vector<std::uint8_t> y_initial;  // what y holds before the call, gaps between rows included
  bool accumulate = false;

  std::int64_t n_pairs() const { return tokens * top_k; }
};

struct MoeResult {
  std::vector<std::uint8_t> y;  // y_initial with the rows rewritten, gaps as they were
  QuantizedRows x_q;            // [tokens, hidden]
  GateUp gate_up;
  QuantizedRows act_q;                  // [n_pairs, intermediate]
  std::vector<float> y_f32;             // [tokens, hidden] before it is rounded to y_dtype
  std::vector<std::uint8_t> pair_live;  // [n_pairs], 0 where the pair is skipped
  std::uint64_t invalid_ids = 0;        // ids >= n_experts or < -1
};

// What the tables of the stages hold; a skipped pair has NULL slabs on all three planes.
struct Tables {
  PairPlane gate;
  PairPlane up;
  PairPlane down;  // scales times the router weight
  std::vector<std::uint8_t> pair_live;
  std::uint64_t invalid_ids = 0;
};
Tables route(const MoeProblem& problem);

MoeResult moe_rows(const MoeProblem& problem);

}  // namespace memra::reference
