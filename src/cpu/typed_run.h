#pragma once

// Runs of outputs in the caller's type, as f32.

#include <cstdint>

#include "memra.h"
#include "numerics/half.h"

namespace memra::cpu {

template <class Type>
void load_run(const void* y, std::int64_t index, float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = numerics::load_as_f32<Type>(y, index + i);
}

template <class Type>
void store_run(void* y, std::int64_t index, const float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    numerics::store_from_f32<Type>(y, index + i, values[i]);
}

inline void load_run(memra_dtype dtype, const void* y, std::int64_t index, float* values,
                     std::int64_t count) {
  if (dtype == MEMRA_F32) return load_run<numerics::F32>(y, index, values, count);
  if (dtype == MEMRA_F16) return load_run<numerics::F16>(y, index, values, count);
  load_run<numerics::Bf16>(y, index, values, count);
}

inline void store_run(memra_dtype dtype, void* y, std::int64_t index, const float* values,
                      std::int64_t count) {
  if (dtype == MEMRA_F32) return store_run<numerics::F32>(y, index, values, count);
  if (dtype == MEMRA_F16) return store_run<numerics::F16>(y, index, values, count);
  store_run<numerics::Bf16>(y, index, values, count);
}

}  // namespace memra::cpu
