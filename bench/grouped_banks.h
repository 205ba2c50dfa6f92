// Several banks of one shape and format, for calls to rotate over.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layer_fixture.h"

namespace memra::bench {

class GroupedBanks {
 public:
  // shape.tokens: the most of a call.
  GroupedBanks(const Session& session, const Shape& shape, const Activation& activation,
               memra_format format, int64_t count);

  int64_t count() const { return static_cast<int64_t>(fixtures_.size()); }
  const Session& session() const { return session_; }
  const Shape& shape() const { return fixtures_.front()->shape(); }
  memra_format format() const { return fixtures_.front()->format(); }
  const LayerFixture& fixture(int64_t bank) const { return *fixtures_[static_cast<size_t>(bank)]; }
  const memra_moe_layer_properties& properties() const { return fixtures_.front()->properties(); }

  // A bank as device tables of a call: [3 * n_experts].
  const void* const* ptrs(int64_t bank) const {
    return ptrs_.as<const void* const>() + bank * kPlanes * shape().n_experts;
  }
  const float* scales() const { return scales_.as<const float>(); }

 private:
  const Session& session_;
  std::vector<std::unique_ptr<LayerFixture>> fixtures_;
  Memory ptrs_, scales_;
};

// "v1" or "v2".
const char* format_name(memra_format format);

}  // namespace memra::bench
