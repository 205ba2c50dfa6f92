// A reader of what the probe needs from a GGUF file (versions 2 and 3): metadata, tensor directory,
// and the NVFP4 expert tensors of one MoE layer. It reads untrusted bytes: every length and offset
// is checked against the end of the file before it is used, and every fault is a GgufError.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace memra::bench {

class GgufError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Tensor types by ggml's numbering (not memra's).
inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlNvfp4 = 40;

// A metadata value. Numbers are kept as the bytes of the file, so nothing is converted until asked
// for; an array of fixed-size numbers likewise.
struct GgufValue {
  uint32_t type = 0;                 // GGUF's number of the type; of the elements, for an array
  bool is_array = false;             //
  uint64_t count = 1;                // elements; 1 for a scalar
  std::string_view text;             // for a scalar string
  std::span<const std::byte> bytes;  // numbers and booleans, `count` of them
};

struct GgufTensor {
  std::string_view name;
  uint32_t type = 0;
  uint32_t n_dims = 0;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  // dims[0] is contiguous
  uint64_t offset = 0;                          // from the start of the data section
};

// The directory of a file. Views point into the bytes given to the constructor, which must outlive
// it.
class Gguf {
 public:
  explicit Gguf(std::span<const std::byte> file);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  const GgufValue* find_value(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  // Absent, an array, or of another kind: nothing.
  std::optional<uint64_t> unsigned_value(std::string_view key) const;
  std::optional<std::string_view> string_value(std::string_view key) const;
  // Element `index` of an array of f32 (or the scalar, whatever the index).
  std::optional<float> float_element(std::string_view key, uint64_t index) const;

  // The bytes of a tensor of type F32 or NVFP4; other types are an error, as are bytes that lie
  // outside the file.
  std::span<const std::byte> tensor_bytes(const GgufTensor& tensor) const;

 private:
  std::span<const std::byte> file_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t data_offset_ = 0;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

// One plane of the experts of a layer: expert e is `slab_bytes` bytes of interleaved NVFP4 at
// data + e * stride.
struct GgufPlane {
  const std::byte* data = nullptr;
  uint64_t stride = 0;
  uint64_t slab_bytes = 0;
  std::vector<float> scales;  // one f32 per expert, 1 where the file has none
};

struct GgufMoeLayer {
  std::string architecture;
  uint64_t hidden_size = 0;
  uint64_t intermediate_size = 0;
  uint64_t n_experts = 0;
  uint64_t top_k = 0;  // 0: the file does not say
  float limit = 0;     // clamp of the experts' activation in this layer; 0: the file names none
  bool has_scales = false;
  GgufPlane gate;
  GgufPlane up;
  GgufPlane down;
};

// The experts of block `layer`, as separate gate and up tensors or as a fused one.
GgufMoeLayer find_moe_layer(const Gguf& gguf, uint32_t layer);

// A file mapped read-only. Open, stat and map faults are GgufErrors that name the path.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace memra::bench
