// The copy engine's boxes of tensors.
#pragma once

#include <cstdint>

#include "tensor_map.cuh"

namespace memra::emulation {

// Copies a box to shared memory; at: coordinates of its first word.
void tensor_copy(std::uint32_t to, const cuda::TensorMap& map, const std::int32_t* at, int n_dims,
                 std::uint32_t barrier);

}  // namespace memra::emulation
