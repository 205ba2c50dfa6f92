// Where slabs and their scales come from: synthetic bytes, or a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shape.h"

namespace memra::bench {

struct Options;

enum Plane : int { kGate = 0, kUp = 1, kDown = 2 };
inline constexpr int kPlanes = 3;

// x = x * 1664525 + 1013904223; what is used is the top byte, or the top 24 bits as a fraction.
class Lcg {
 public:
  explicit Lcg(uint32_t seed) : x_(seed) {}
  uint8_t byte() { return static_cast<uint8_t>(next() >> 24); }
  // In [0, 1).
  float unit() { return static_cast<float>(next() >> 8) * 0x1p-24F; }

 private:
  uint32_t next() { return x_ = x_ * 1664525U + 1013904223U; }
  uint32_t x_;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Slab of an expert in slab set `set`, as interleaved NVFP4. `out` has the slab's size.
  virtual void fill(Plane plane, int64_t set, int64_t expert, std::span<std::byte> out) const = 0;
  virtual float scale(Plane plane, int64_t expert) const = 0;
  virtual std::string description() const = 0;
};

// rows * columns * 9 / 16.
size_t slab_bytes(const Shape& shape, Plane plane);

// Rows and columns of a plane's slab.
int64_t plane_rows(const Shape& shape, Plane plane);
int64_t plane_columns(const Shape& shape, Plane plane);

// Pseudo-random codes, legal scale codes from 1 to 1.875, and expert scales that bring
// pre-activations of inputs uniform in [-1, 1) to order 1: there a clamp at 7 acts on few outputs,
// so that comparing bits says something.
std::unique_ptr<WeightSource> make_synthetic_weights(const Shape& shape);

// Reads `options->gguf_path` and takes shape and activation from it; what the file does not say is
// left alone. Throws GgufError.
std::unique_ptr<WeightSource> open_gguf_weights(Options* options);

}  // namespace memra::bench
