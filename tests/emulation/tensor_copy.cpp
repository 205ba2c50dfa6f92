#include "emulation/tensor_copy.h"

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulation/async.h"
#include "emulation/machine.h"
#include "tensor_map.h"

namespace memra::cuda {

// In place of cuda/tensor_map.cpp: a map is the shape itself.
Status make_tensor_map(const Device& /*device*/, const TensorShape& shape, TensorMap* map) {
  static_assert(sizeof(shape) <= sizeof(map->bytes));
  std::memcpy(map->bytes, &shape, sizeof(shape));
  return MEMRA_OK;
}

}  // namespace memra::cuda

namespace memra::emulation {
namespace {

using cuda::TensorShape;

constexpr std::uint32_t kChunk = TensorShape::kChunkBytes, kLine = 128;

// Words of dimension 0 of a box, those beyond the tensor zero.
void read_words(const TensorShape& shape, const std::int64_t* at, std::uint8_t* to) {
  const std::uint32_t bytes = 4 * shape.box[0];
  std::memset(to, 0, bytes);
  std::uint64_t address = 0;
  for (int d = 1; d < shape.n_dims; ++d) {
    if (at[d] < 0 || static_cast<std::uint64_t>(at[d]) >= shape.words[d]) return;
    address += static_cast<std::uint64_t>(at[d]) * shape.strides[d - 1];
  }
  for (std::uint32_t i = 0; i < shape.box[0]; ++i) {
    const std::int64_t word = at[0] + i;
    if (word < 0 || static_cast<std::uint64_t>(word) >= shape.words[0]) continue;
    const auto* const from =
        std::bit_cast<const std::uint8_t*>(address + static_cast<std::uint64_t>(word) * 4);
    if (from == nullptr) machine().fatal("a tensor at address 0");
    std::memcpy(to + 4 * i, from, 4);
  }
}

// Chunks of each line trade places.
void swizzle(std::vector<std::uint8_t>& box) {
  for (std::size_t line = 0; line < box.size() / kLine; ++line) {
    std::array<std::uint8_t, kLine> as_read;
    std::memcpy(as_read.data(), &box[line * kLine], kLine);
    for (std::size_t chunk = 0; chunk < kLine / kChunk; ++chunk)
      std::memcpy(&box[line * kLine + (chunk ^ line % 8) * kChunk], &as_read[chunk * kChunk],
                  kChunk);
  }
}

}  // namespace

void tensor_copy(std::uint32_t to, const cuda::TensorMap& map, const std::int32_t* at, int n_dims,
                 std::uint32_t barrier) {
  TensorShape shape;
  std::memcpy(&shape, map.bytes, sizeof(shape));
  Machine& m = machine();
  if (shape.n_dims != n_dims) m.fatal("a copy with coordinates of another tensor");
  if (to % (shape.swizzled ? 8 * kLine : kLine) != 0) {
    m.fatal("a box of a tensor to address " + std::to_string(to));
  }
  if (shape.swizzled && 4 * shape.box[0] != kLine) m.fatal("a swizzled box of other lines");
  if (at[0] * 4 % static_cast<std::int32_t>(kChunk) != 0) m.fatal("a box begins inside a chunk");
  for (int d = 1; d < n_dims; ++d)
    if (shape.strides[d - 1] % kChunk != 0) m.fatal("a stride of a tensor is not aligned");
  std::uint32_t rows = 1;
  for (int d = 1; d < n_dims; ++d)
    rows *= shape.box[d];
  std::vector<std::uint8_t> box(std::size_t{4} * rows * shape.box[0]);
  for (std::uint32_t row = 0; row < rows; ++row) {
    std::int64_t place[TensorShape::kMostDims] = {at[0]};
    std::uint32_t left = row;
    for (int d = 1; d < n_dims; ++d) {
      place[d] = std::int64_t{at[d]} + left % shape.box[d];
      left /= shape.box[d];
    }
    read_words(shape, place, &box[std::size_t{4} * row * shape.box[0]]);
  }
  if (shape.swizzled) swizzle(box);
  bulk_copy(to, std::make_shared<const std::vector<std::uint8_t>>(std::move(box)), barrier);
}

}  // namespace memra::emulation
