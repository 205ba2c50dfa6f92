// Calls of a fixture's layer on given tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "layer_fixture.h"

namespace memra::bench {

struct LayerInputs {
  std::vector<int32_t> ids;       // of all pairs, numbered over all ranks
  std::vector<float> weights;     // likewise
  const void* x = nullptr;        // device memory of the caller's, [tokens, hidden_size]
  memra_dtype dtype = MEMRA_F32;  // of x and y
};

class LayerIo {
 public:
  LayerIo(const LayerFixture& fixture, const LayerInputs& inputs);

  int64_t tokens() const { return tokens_; }
  const Memory& y() const { return y_; }
  void* y_row(int64_t token) const;

  void launch(memra_path path) const { launch(path, 0, tokens_); }
  // Tokens [first, first + count), on the session's stream. None is fine.
  void launch(memra_path path, int64_t first, int64_t count) const;

 private:
  size_t row_bytes() const;

  const LayerFixture& fixture_;
  int64_t tokens_;
  const void* x_;
  memra_dtype dtype_;
  Memory y_, ids_, weights_, workspace_;
};

}  // namespace memra::bench
