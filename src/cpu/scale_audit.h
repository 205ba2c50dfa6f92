#pragma once

// Counts invalid scale codes from many threads, and keeps the first in (expert, row, block) order.

#include <cstdint>
#include <mutex>
#include <tuple>

#include "memra.h"
#include "numerics/ue4m3.h"

namespace memra::cpu {

class ScaleAudit {
 public:
  // What one unit of work found.
  struct Part {
    memra_weight_report found{0, -1, -1, -1, 0};

    void see(std::uint32_t code, std::int64_t expert, std::int64_t row, std::int64_t block) {
      if (numerics::ue4m3_is_legal(code)) return;
      const bool first = found.invalid_scales == 0 || std::tuple(expert, row, block) < place(found);
      ++found.invalid_scales;
      if (!first) return;
      found.first_expert = expert;
      found.first_row = row;
      found.first_block = block;
    }
  };

  void merge(const Part& part) {
    const memra_weight_report& found = part.found;
    if (found.invalid_scales == 0 && found.non_finite == 0) return;
    const std::lock_guard lock(mutex_);
    if (found.invalid_scales != 0 && (total_.invalid_scales == 0 || place(found) < place(total_))) {
      total_.first_expert = found.first_expert;
      total_.first_row = found.first_row;
      total_.first_block = found.first_block;
    }
    total_.invalid_scales += found.invalid_scales;
    total_.non_finite += found.non_finite;
  }

  // When all parts are merged.
  void write(memra_weight_report* report) const {
    if (report != nullptr) *report = total_;
  }

 private:
  static std::tuple<std::int64_t, std::int64_t, std::int64_t> place(
      const memra_weight_report& report) {
    return {report.first_expert, report.first_row, report.first_block};
  }

  std::mutex mutex_;
  memra_weight_report total_{0, -1, -1, -1, 0};
};

}  // namespace memra::cpu
