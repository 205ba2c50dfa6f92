#include "tensor_map.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "driver.h"

namespace memra::cuda {

Status make_tensor_map(const Device& device, const TensorShape& shape, TensorMap* map) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  constexpr cuuint32_t kDense[TensorShape::kMostDims] = {1, 1, 1, 1, 1};
  cuuint64_t words[TensorShape::kMostDims], strides[TensorShape::kMostDims - 1];
  std::copy(std::begin(shape.words), std::end(shape.words), words);
  std::copy(std::begin(shape.strides), std::end(shape.strides), strides);
  CUtensorMap made;
  const CUresult result = device.driver->encode_tensor_map(
      &made, CU_TENSOR_MAP_DATA_TYPE_UINT32, static_cast<cuuint32_t>(shape.n_dims), nullptr, words,
      strides, shape.box, kDense, CU_TENSOR_MAP_INTERLEAVE_NONE,
      shape.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return driver_failure(*device.driver, result, "cuTensorMapEncodeTiled");
  }
  std::memcpy(map->bytes, &made, sizeof(made));
  return MEMRA_OK;
}

}  // namespace memra::cuda
