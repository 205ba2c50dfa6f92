#pragma once

// Makes maps for the copy engine.

#include "device.h"
#include "tensor_map.cuh"

namespace memra::cuda {

// Of a tensor that begins at address 0.
Status make_tensor_map(const Device& device, const TensorShape& shape, TensorMap* map);

}  // namespace memra::cuda
