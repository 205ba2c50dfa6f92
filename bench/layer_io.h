// One call of a fixture's layer, f32 in and out.
#pragma once

#include <cstdint>
#include <vector>

#include "layer_fixture.h"

namespace memra::bench {

class LayerIo {
 public:
  // x is device memory of the caller's, [tokens, hidden_size]; of the ids the first tokens' count.
  LayerIo(const LayerFixture& fixture, int64_t tokens, const std::vector<int32_t>& ids,
          const void* x);

  int64_t tokens() const { return tokens_; }
  const Memory& y() const { return y_; }

  void launch(memra_path path) const { launch(path, 0, tokens_, fixture_.session().stream()); }
  // Tokens [first, first + count). Calls follow one another: they share a workspace.
  void launch(memra_path path, int64_t first, int64_t count, memra_stream stream) const;

 private:
  const LayerFixture& fixture_;
  int64_t tokens_;
  const void* x_;
  Memory y_, ids_, weights_, workspace_;
};

}  // namespace memra::bench
