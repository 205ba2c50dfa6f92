#include "weights_report.h"

#include "launch.h"
#include "numerics/nvfp4_layout.h"
#include "ptx.cuh"
#include "weights.h"

namespace memra::cuda {
namespace {

// -1 is also the largest unsigned index: what an atomic minimum starts from.
__global__ void report_begin_kernel(memra_weight_report* report) {
  dependency_wait();
  *report = memra_weight_report{0, -1, -1, -1, 0};
}

__global__ void report_end_kernel(memra_weight_report* report, int64_t rows, int64_t blocks) {
  dependency_wait();
  const int64_t first = report->first_expert;
  if (first < 0) return;
  report->first_expert = first / blocks / rows;
  report->first_row = first / blocks % rows;
  report->first_block = first % blocks;
}

}  // namespace

Status weights_report_load() {
  MEMRA_TRY(load_kernel(report_begin_kernel));
  return load_kernel(report_end_kernel);
}

Status report_begin(const Device& device, memra_weight_report* report, memra_stream stream) {
  if (report == nullptr) return MEMRA_OK;
  return launch_kernel(device, Launch{stream}, Grid{1, 1}, report_begin_kernel, report);
}

Status report_end(const Device& device, memra_weight_report* report, int64_t rows, int64_t columns,
                  memra_stream stream) {
  if (report == nullptr) return MEMRA_OK;
  return launch_kernel(device, Launch{stream}, Grid{1, 1}, report_end_kernel, report, rows,
                       columns / numerics::kScaleBlock);
}

}  // namespace memra::cuda
