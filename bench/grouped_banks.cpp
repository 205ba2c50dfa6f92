#include "grouped_banks.h"

namespace memra::bench {

GroupedBanks::GroupedBanks(const Session& session, const Shape& shape, const Activation& activation,
                           memra_format format, int64_t count)
    : session_(session) {
  std::vector<const void*> ptrs;
  std::vector<float> scales;
  for (int64_t bank = 0; bank < count; ++bank) {
    fixtures_.push_back(
        std::make_unique<LayerFixture>(session, shape, activation, LayerPart{.format = format}));
    for (const Plane plane : {kGate, kUp, kDown}) {
      for (int64_t expert = 0; expert < shape.n_experts; ++expert) {
        ptrs.push_back(fixtures_.back()->slab(plane, expert));
        // Scales do not depend on the bank.
        if (bank == 0) scales.push_back(fixtures_.back()->scale(plane, expert));
      }
    }
  }
  ptrs_ = session.upload(ptrs);
  scales_ = session.upload(scales);
}

const char* format_name(memra_format format) {
  return format == MEMRA_NVFP4 ? "v1" : "v2";
}

}  // namespace memra::bench
