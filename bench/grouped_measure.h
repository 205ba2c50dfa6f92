// What moe-grouped-ceiling measures of one layer and one number of tokens.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "console.h"
#include "dense.h"
#include "grouped_accuracy.h"
#include "grouped_options.h"

namespace memra::bench {

// Names of the arms:
//   gate_up, down       stages of a layer call: both products with the activation, f16 out; down
//   route, gather, sum  the other stages
//   layer               memra_moe_grouped, bf16 in and out
//   layer_tables        the same with the bank as tables of the call
//   planes              the three products as memra_moe_grouped_gemm calls, f32 out
//   planes_gather       what these need of memra_moe_gather_f16
//   dense.gate_up, dense.down  dense f16 products of the same total size
std::span<const std::string_view> grouped_arm_names();

struct GroupedTiming {
  std::string name;
  double flops = 0;  // 0: of none of the products
  double bytes = 0;  // of weights, that a launch has to read; 0 likewise
  Summary us[2];     // by Regime; a median of 0: not measured

  const Summary& of(Regime regime) const { return us[static_cast<int>(regime)]; }
};

// A quotient of figures of one row.
struct GroupedRatio {
  std::string name;
  double value[2] = {};  // by Regime; 0: not measured

  double of(Regime regime) const { return value[static_cast<int>(regime)]; }
};

struct GroupedRow {
  std::string case_name;
  Shape shape;
  double skew = 0;
  memra_format format = MEMRA_NVFP4_V2;
  int64_t active = 0;                                      // experts with pairs
  int64_t pairs_min = 0, pairs_median = 0, pairs_max = 0;  // of these
  std::string gate_up_kernel, down_kernel;
  std::vector<GroupedTiming> timings;
  std::optional<GroupedAccuracy> accuracy;

  const GroupedTiming* find(std::string_view name) const;
  // Medians of arms added up; 0 where one was not measured.
  double sum_us(Regime regime, const std::vector<std::string_view>& names) const;
};

// `blas` may be NULL.
GroupedRow measure_grouped(const GroupedBanks& banks, const GroupedCase& grouped_case,
                           int64_t tokens, const DenseBlas* blas, const GroupedOptions& options,
                           Progress* progress);

// Those whose figures the row has.
std::vector<GroupedRatio> grouped_ratios(const GroupedRow& row);

}  // namespace memra::bench
