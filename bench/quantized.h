// int8 activations as the stages take them.
#pragma once

#include <cstdint>

#include "session.h"

namespace memra::bench {

// One matrix in both orders, with its scales.
struct Quantized {
  Memory q;
  Memory q_lane_major;
  Memory d;

  // In the order that a variant reads.
  const int8_t* values(uint32_t variant) const {
    const bool lane_major = (variant & MEMRA_ROWS_LANE_MAJOR) != 0;
    return (lane_major ? q_lane_major : q).as<const int8_t>();
  }
  const float* scales() const { return d.as<const float>(); }
};

Quantized make_quantized(const Session& session, int64_t rows, int64_t columns);

// Enqueues the quantisation of x [rows, columns] into `to`.
void quantize(const Session& session, const Memory& x, memra_dtype dtype, int64_t rows,
              int64_t columns, const Quantized& to);

}  // namespace memra::bench
