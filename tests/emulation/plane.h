// One plane's product by the emulated kernels, beside the same in f64.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulation/guarded.h"
#include "reference/formats.h"
#include "reference/generate.h"

namespace memra::emulation {

struct PlaneSpec {
  bool wgmma = true;
  int32_t units = 15;  // of the widest tile
  reference::Format format = reference::Format::kV2;
  int64_t rows = 0, columns = 64, outputs = 64, n_experts = 1;
  std::vector<int32_t> experts, counts;  // of the CSR's entries; rows beyond `rows` are cut
  std::vector<int32_t> null_slabs;
  bool scales = false, bias = false;
  bool packed = false;
  int32_t turn = 0;
  int multiprocessors = 3;

  std::string text() const;
};

class Plane {
 public:
  // The same tokens and weights for one shape and seed, whatever else the spec says.
  Plane(const PlaneSpec& spec, uint64_t seed);

  // Row i of the activations becomes token i + shift of them.
  void shift_tokens(int64_t shift) { shift_ = shift; }
  // What the kernels leave in the outputs, a word to an f32 or a packed pair. Expects that nothing
  // else was written and that no emulated instruction failed.
  std::vector<uint32_t> run();
  // Expects f64's values, zeroes where an expert has no weights, and rows of no expert untouched.
  void expect_right(const std::vector<uint32_t>& words) const;

  int64_t words_of_row() const { return spec_.packed ? spec_.outputs / 2 : spec_.outputs; }

 private:
  // In the tables, and with weights.
  bool is_live(int32_t expert) const;
  // Of rows [begin, end), in the order of columns.
  std::vector<double> activations(int64_t begin, int64_t end) const;
  void expect_entry_right(size_t entry, const std::vector<uint32_t>& words) const;
  bool is_close(double dot, double magnitude, int32_t expert, int64_t row, int64_t output,
                const uint32_t* words) const;

  PlaneSpec spec_;
  std::vector<reference::Slab> slabs_;
  std::vector<std::unique_ptr<Guarded<uint8_t>>> memory_;
  std::vector<const void*> pointers_;
  std::vector<float> scales_, biases_;
  std::vector<const float*> bias_table_;
  std::vector<int32_t> experts_, offsets_;
  std::vector<uint16_t> tokens_;  // [kTokens, columns], f16
  int64_t shift_ = 0;
};

}  // namespace memra::emulation
