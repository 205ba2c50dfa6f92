// The layer in f64, from the formats' definitions alone: what the grouped path must come close to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/moe.h"

namespace memra::reference {

double exact_weight(const Slab& slab, std::int64_t row, std::int64_t col);
double exact_activation(const ActivationParams& params, double g, double u);

// x [rows, slab.cols] times a slab: [rows, slab.rows].
std::vector<double> exact_product(const Slab& slab, std::span<const double> x);

// y [tokens, hidden] of a problem, its initial values added where it accumulates. A token with a
// NaN or an Inf in x, and a pair that is not skipped, is NaN throughout.
std::vector<double> moe_exact(const MoeProblem& problem);

}  // namespace memra::reference
