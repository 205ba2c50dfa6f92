// A whole layer by the emulated kernels, beside the same in f64.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "emulation/guarded.h"
#include "reference/moe.h"

namespace memra::emulation {

class Layer {
 public:
  // The problem must outlive the layer.
  Layer(const reference::MoeProblem& problem, bool wgmma, std::string name);

  // y after a call, all stages at once or one by one, and some of them twice. Expects that nothing
  // else was written and that no emulated instruction failed.
  std::vector<uint8_t> run(int multiprocessors, bool staged);
  // Expects rows close to f64's, NaN rows and rows without experts to be such, and the gaps between
  // rows untouched.
  void expect_right(const std::vector<uint8_t>& y) const;

 private:
  void fill_tables();
  GroupedLayerArgs args();
  void expect_row_right(const std::vector<uint8_t>& y, const std::vector<double>& want,
                        int64_t token, bool live) const;

  const reference::MoeProblem& problem_;
  bool wgmma_;
  std::string name_;
  std::vector<std::unique_ptr<Guarded<uint8_t>>> slabs_;
  std::vector<const void*> pointers_;
  std::vector<float> scales_;
  std::vector<const float*> biases_;
  uint64_t invalid_ids_ = 0;
};

}  // namespace memra::emulation
