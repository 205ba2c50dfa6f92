#include "weights.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "console.h"
#include "gguf.h"
#include "options.h"

namespace memra::bench {
namespace {

constexpr size_t kBlockBytes = 36;
constexpr size_t kBlockScaleBytes = 4;
constexpr int64_t kBlockValues = 64;
// Between the first blocks of two slabs: a prime, so that slabs are far apart before they repeat.
constexpr size_t kBlockStep = 7919;

class SyntheticWeights final : public WeightSource {
 public:
  explicit SyntheticWeights(const Shape& shape) : n_experts_(shape.n_experts) {
    for (int p = 0; p < kPlanes; ++p) {
      const Plane plane = static_cast<Plane>(p);
      Lcg lcg(static_cast<uint32_t>(1 + p));
      std::vector<std::byte>& slab = base_[p];
      slab.resize(slab_bytes(shape, plane));
      for (size_t i = 0; i < slab.size(); ++i) {
        const uint8_t byte = lcg.byte();
        const bool is_scale = i % kBlockBytes < kBlockScaleBytes;
        slab[i] = static_cast<std::byte>(is_scale ? (byte & 7) | 0x38 : byte);
      }
      // Mean squares: 8.56 of E2M1 values, 2.12 of the scales, 1/3 of the inputs (of an output of
      // the activation about as much).
      const double sigma =
          std::sqrt(static_cast<double>(plane_columns(shape, plane)) * 8.56 * 2.12 / 3.0);
      unit_scale_[p] = 2.0 / sigma;
    }
  }

  // All slabs of a plane hold the same blocks, each slab from another one on, but for one code
  // byte, whose place and value tell them apart: making gigabytes of random bytes would take longer
  // than the measurement.
  void fill(Plane plane, int64_t set, int64_t expert, std::span<std::byte> out) const override {
    const auto& base = base_[plane];
    const size_t code_bytes = kBlockBytes - kBlockScaleBytes;
    const size_t n_blocks = base.size() / kBlockBytes;
    const size_t n_codes = n_blocks * code_bytes;
    const size_t slab = static_cast<size_t>(set * n_experts_ + expert);
    const size_t first = slab * kBlockStep % n_blocks * kBlockBytes;
    std::memcpy(out.data(), base.data() + first, base.size() - first);
    std::memcpy(out.data() + base.size() - first, base.data(), first);
    const size_t place = slab % n_codes;
    const size_t change = 1 + slab / n_codes % 255;
    out[place / code_bytes * kBlockBytes + kBlockScaleBytes + place % code_bytes] ^=
        static_cast<std::byte>(change);
  }

  float scale(Plane plane, int64_t expert) const override {
    // Between 0.75 and 1.25 of the plane's scale, another one for each expert.
    const double spread = 0.75 + 0.5 * static_cast<double>(expert * 37 % 64) / 63.0;
    return static_cast<float>(unit_scale_[plane] * spread);
  }

  std::string description() const override { return "synthetic"; }

 private:
  int64_t n_experts_;
  std::array<std::vector<std::byte>, kPlanes> base_;
  std::array<double, kPlanes> unit_scale_ = {};
};

class GgufWeights final : public WeightSource {
 public:
  explicit GgufWeights(const std::string& path, uint32_t layer)
      : file_(path), layer_(find_moe_layer(Gguf(file_.bytes()), layer)) {
    description_ = format("%s layer %u (%s, scales per expert: %s)", path.c_str(), layer,
                          layer_.architecture.c_str(), layer_.has_scales ? "yes" : "none in file");
  }

  const GgufMoeLayer& layer() const { return layer_; }

  void fill(Plane plane, int64_t, int64_t expert, std::span<std::byte> out) const override {
    const GgufPlane& source = this->plane(plane);
    std::memcpy(out.data(), source.data + static_cast<uint64_t>(expert) * source.stride,
                source.slab_bytes);
  }

  float scale(Plane plane, int64_t expert) const override {
    return this->plane(plane).scales[static_cast<size_t>(expert)];
  }

  std::string description() const override { return description_; }

 private:
  const GgufPlane& plane(Plane plane) const {
    return plane == kGate ? layer_.gate : plane == kUp ? layer_.up : layer_.down;
  }

  MappedFile file_;
  GgufMoeLayer layer_;
  std::string description_;
};

// What llama.cpp computes for an architecture; where the file names a clamp it is applied.
Activation activation_of(const GgufMoeLayer& layer) {
  if (layer.architecture == "gpt-oss") return {MEMRA_SWIGLU_OAI, 7.0F, 1.702F};
  if (layer.limit <= 0) return {MEMRA_SWIGLU, 7.0F, 1.702F};
  const bool after_silu = layer.architecture == "step35";
  return {after_silu ? MEMRA_SWIGLU_POSTCLAMP : MEMRA_SWIGLU_PRECLAMP, layer.limit, 1.702F};
}

}  // namespace

int64_t plane_rows(const Shape& shape, Plane plane) {
  return plane == kDown ? shape.hidden_size : shape.intermediate_size;
}

int64_t plane_columns(const Shape& shape, Plane plane) {
  return plane == kDown ? shape.intermediate_size : shape.hidden_size;
}

size_t slab_bytes(const Shape& shape, Plane plane) {
  return static_cast<size_t>(plane_rows(shape, plane)) *
         static_cast<size_t>(plane_columns(shape, plane) / kBlockValues) * kBlockBytes;
}

std::unique_ptr<WeightSource> make_synthetic_weights(const Shape& shape) {
  return std::make_unique<SyntheticWeights>(shape);
}

std::unique_ptr<WeightSource> open_gguf_weights(Options* options) {
  auto weights = std::make_unique<GgufWeights>(options->gguf_path, options->gguf_layer);
  const GgufMoeLayer& layer = weights->layer();
  Shape& shape = options->shape;
  shape.hidden_size = static_cast<int64_t>(layer.hidden_size);
  shape.intermediate_size = static_cast<int64_t>(layer.intermediate_size);
  shape.n_experts = static_cast<int64_t>(layer.n_experts);
  if (!options->top_k_given && layer.top_k > 0) shape.top_k = static_cast<int64_t>(layer.top_k);
  if (!options->activation_given) options->activation = activation_of(layer);
  if (shape.top_k > shape.n_experts || shape.top_k > MEMRA_MAX_TOP_K) {
    throw GgufError(format("gguf: %lld experts per token of %lld; 1 to %d are possible",
                           static_cast<long long>(shape.top_k),
                           static_cast<long long>(shape.n_experts), MEMRA_MAX_TOP_K));
  }
  return weights;
}

}  // namespace memra::bench
