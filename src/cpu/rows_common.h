#pragma once

// Loops that every set of kernels compiles for itself. Always inlined, so that no copy compiled for
// one instruction set can serve another.

#include <cstdint>

#include "cpu/rows_kernels.h"
#include "numerics/activation.h"
#include "numerics/dot.h"
#include "numerics/half.h"
#include "numerics/q8.h"

namespace memra::cpu {

// Local arrays of a fixed length, without branches inside: compilers make vectors of such loops.
inline constexpr std::int64_t kRunStep = 8;

// Rule 4 for kRunStep rows.
MEMRA_HD void plane_values(const float* dots, float scale, const float* bias, float* values) {
  if (bias != nullptr) {
    for (int i = 0; i < kRunStep; ++i) {
      values[i] = numerics::plane_value(dots[i], scale, true, bias[i]);
    }
  } else {
    for (int i = 0; i < kRunStep; ++i) {
      values[i] = numerics::plane_value(dots[i], scale, false, 0.0f);
    }
  }
}

template <numerics::Activation kActivation>
MEMRA_HD void finish_gate_up_as(const GateUpRun& run) {
  const numerics::ActivationParams params{run.limit, run.alpha};
  for (std::int64_t begin = 0; begin < run.count; begin += kRunStep) {
    float g[kRunStep], u[kRunStep], out[kRunStep];
    plane_values(run.gate_dots + begin, run.gate_scale,
                 run.gate_bias != nullptr ? run.gate_bias + begin : nullptr, g);
    plane_values(run.up_dots + begin, run.up_scale,
                 run.up_bias != nullptr ? run.up_bias + begin : nullptr, u);
    for (int i = 0; i < kRunStep; ++i)
      out[i] = numerics::activate<kActivation>(g[i], u[i], params);
    for (int i = 0; i < kRunStep; ++i)
      run.out[begin + i] = out[i];
  }
}

MEMRA_HD void finish_gate_up_loop(const GateUpRun& run) {
  switch (run.activation) {
    case MEMRA_SWIGLU:
      return finish_gate_up_as<numerics::Activation::kSwiglu>(run);
    case MEMRA_SWIGLU_PRECLAMP:
      return finish_gate_up_as<numerics::Activation::kSwigluPreclamp>(run);
    case MEMRA_SWIGLU_POSTCLAMP:
      return finish_gate_up_as<numerics::Activation::kSwigluPostclamp>(run);
    default:
      return finish_gate_up_as<numerics::Activation::kSwigluOai>(run);
  }
}

MEMRA_HD void add_slot_loop(const SlotRun& run) {
  for (std::int64_t i = 0; i < run.count; ++i) {
    run.y[i] = numerics::slot_step(run.scale, run.dots[i], run.y[i]);
  }
  if (run.bias == nullptr) return;
  for (std::int64_t i = 0; i < run.count; ++i) {
    run.y[i] = numerics::slot_bias_step(run.topk_weight, run.bias[i], run.y[i]);
  }
}

template <class Type>
MEMRA_HD void quantize_as(const QuantizeRun& run) {
  for (std::int64_t begin = 0; begin < run.columns; begin += numerics::kGroup) {
    float x[numerics::kGroup];
    for (int i = 0; i < numerics::kGroup; ++i) {
      x[i] = numerics::load_as_f32<Type>(run.x, begin + i);
    }
    std::int8_t q[numerics::kGroup];
    run.d[begin / numerics::kGroup] = numerics::q8_group(x, q);
    for (int i = 0; i < numerics::kGroup; ++i) {
      run.q[begin + (run.lane_major ? lane_major_position(i) : i)] = q[i];
    }
  }
}

MEMRA_HD void quantize_loop(const QuantizeRun& run) {
  switch (run.x_dtype) {
    case MEMRA_F32:
      return quantize_as<numerics::F32>(run);
    case MEMRA_F16:
      return quantize_as<numerics::F16>(run);
    default:
      return quantize_as<numerics::Bf16>(run);
  }
}

}  // namespace memra::cpu
