// Which tensors make an MoE layer, by the names and shapes that llama.cpp's converter writes:
// blk.N.ffn_{gate,up,down}_exps.weight (or the fused ffn_gate_up_exps, gate rows first), each with
// an optional ".scale" of one f32 per expert.
#include <cmath>
#include <cstring>

#include "gguf.h"

namespace memra::bench {
namespace {

constexpr uint64_t kBlockValues = 64;
constexpr uint64_t kBlockBytes = 36;
constexpr uint64_t kRowMultiple = 8;

[[noreturn]] void fail(const std::string& text) {
  throw GgufError("gguf: " + text);
}

std::string shape_text(const GgufTensor& tensor) {
  std::string text = "[";
  for (uint32_t d = 0; d < tensor.n_dims; ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(tensor.dims[d]);
  }
  return text + "]";
}

// A model in several files: the wanted layer may be in another one.
std::string missing_hint(const Gguf& gguf) {
  const auto count = gguf.unsigned_value("split.count");
  if (!count || *count < 2) return "";
  return "; this is part " + std::to_string(gguf.unsigned_value("split.no").value_or(0) + 1) +
         " of " + std::to_string(*count) + ", try another part";
}

const GgufTensor* require_weight(const Gguf& gguf, const std::string& name) {
  const GgufTensor* tensor = gguf.find_tensor(name);
  if (tensor == nullptr) fail("tensor '" + name + "' is missing" + missing_hint(gguf));
  if (tensor->type != kGgmlNvfp4) {
    fail("tensor '" + name + "' has ggml type " + std::to_string(tensor->type) +
         "; the probe needs 40 (NVFP4)");
  }
  if (tensor->n_dims != 3) {
    fail("tensor '" + name + "' has shape " + shape_text(*tensor) +
         "; [columns, rows, experts] is expected");
  }
  return tensor;
}

void require_shape(const GgufTensor& tensor, uint64_t columns, uint64_t rows, uint64_t experts) {
  if (tensor.dims[0] != columns || tensor.dims[1] != rows || tensor.dims[2] != experts) {
    fail("tensor '" + std::string(tensor.name) + "' has shape " + shape_text(tensor) +
         "; the layer's other tensors ask for [" + std::to_string(columns) + ", " +
         std::to_string(rows) + ", " + std::to_string(experts) + "]");
  }
}

std::vector<float> read_scales(const Gguf& gguf, const std::string& name, uint64_t n_experts,
                               bool* found) {
  const GgufTensor* tensor = gguf.find_tensor(name);
  if (tensor == nullptr) return std::vector<float>(n_experts, 1.0F);
  if (tensor->type != kGgmlF32) {
    fail("tensor '" + name + "' has ggml type " + std::to_string(tensor->type) +
         "; 0 (F32) is expected");
  }
  if (tensor->n_dims != 1 || tensor->dims[0] != n_experts) {
    fail("tensor '" + name + "' has shape " + shape_text(*tensor) + "; one value for each of " +
         std::to_string(n_experts) + " experts is expected");
  }
  const auto bytes = gguf.tensor_bytes(*tensor);
  std::vector<float> scales(n_experts);
  std::memcpy(scales.data(), bytes.data(), bytes.size());
  for (uint64_t e = 0; e < n_experts; ++e) {
    if (!std::isfinite(scales[e])) {
      fail("tensor '" + name + "': the scale of expert " + std::to_string(e) + " is not finite");
    }
  }
  *found = true;
  return scales;
}

GgufPlane make_plane(const Gguf& gguf, const GgufTensor& tensor, uint64_t first_row,
                     uint64_t rows) {
  const auto bytes = gguf.tensor_bytes(tensor);
  const uint64_t row_bytes = tensor.dims[0] / kBlockValues * kBlockBytes;
  GgufPlane plane;
  plane.data = bytes.data() + first_row * row_bytes;
  plane.stride = tensor.dims[1] * row_bytes;
  plane.slab_bytes = rows * row_bytes;
  return plane;
}

void require_multiple(uint64_t value, uint64_t multiple, const char* name) {
  if (value == 0 || value % multiple != 0) {
    fail(std::string(name) + " is " + std::to_string(value) + "; a positive multiple of " +
         std::to_string(multiple) + " is needed");
  }
}

}  // namespace

GgufMoeLayer find_moe_layer(const Gguf& gguf, uint32_t layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".ffn_";
  const GgufTensor& down = *require_weight(gguf, prefix + "down_exps.weight");

  GgufMoeLayer result;
  result.intermediate_size = down.dims[0];
  result.hidden_size = down.dims[1];
  result.n_experts = down.dims[2];
  require_multiple(result.hidden_size, kBlockValues, "hidden_size");
  require_multiple(result.intermediate_size, kBlockValues, "intermediate_size");
  static_assert(kBlockValues % kRowMultiple == 0);
  if (result.n_experts == 0) fail("tensor '" + std::string(down.name) + "' has no experts");
  // The bytes of `down` lie inside the file from here on, so its dimensions are sane numbers.
  result.down = make_plane(gguf, down, 0, result.hidden_size);

  const uint64_t inter = result.intermediate_size;
  const std::string fused = prefix + "gate_up_exps";
  if (gguf.find_tensor(fused + ".weight") != nullptr) {
    const GgufTensor& tensor = *require_weight(gguf, fused + ".weight");
    require_shape(tensor, result.hidden_size, 2 * inter, result.n_experts);
    result.gate = make_plane(gguf, tensor, 0, inter);
    result.up = make_plane(gguf, tensor, inter, inter);
    result.gate.scales = read_scales(gguf, fused + ".scale", result.n_experts, &result.has_scales);
    result.up.scales = result.gate.scales;
  } else {
    for (const bool is_gate : {true, false}) {
      const std::string name = prefix + (is_gate ? "gate_exps" : "up_exps");
      const GgufTensor& tensor = *require_weight(gguf, name + ".weight");
      require_shape(tensor, result.hidden_size, inter, result.n_experts);
      GgufPlane& plane = is_gate ? result.gate : result.up;
      plane = make_plane(gguf, tensor, 0, inter);
      plane.scales = read_scales(gguf, name + ".scale", result.n_experts, &result.has_scales);
    }
  }
  result.down.scales =
      read_scales(gguf, prefix + "down_exps.scale", result.n_experts, &result.has_scales);

  result.architecture = gguf.string_value("general.architecture").value_or("unknown");
  result.top_k = gguf.unsigned_value(result.architecture + ".expert_used_count").value_or(0);
  const auto limit = gguf.float_element(result.architecture + ".swiglu_clamp_exp", layer);
  if (limit && std::isfinite(*limit) && *limit > 0) result.limit = *limit;
  return result;
}

}  // namespace memra::bench
