#include "cpu/slab_access.h"

namespace memra::cpu {
namespace {

constexpr WindowBytes make_window() {
  WindowBytes window{};
  std::uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::uint8_t>(state >> 24);
  };
  const auto next_scale = [&next] { return static_cast<std::uint8_t>(0x38 + next() % 8); };
  for (std::uint8_t& byte : window.codes)
    byte = next();
  for (std::uint8_t& byte : window.scales)
    byte = next_scale();
  std::int64_t place = 0;
  for (std::uint8_t& byte : window.blocks) {
    byte = place++ % nv::kV1BlockBytes < nv::kV1BlockScaleBytes ? next_scale() : next();
  }
  return window;
}

}  // namespace

constexpr WindowBytes kWindow = make_window();

}  // namespace memra::cpu
