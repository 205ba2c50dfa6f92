#pragma once

// The report of a conversion, filled on the device without memory of its own: kernels keep the
// smallest index of an invalid scale in first_expert, and a last kernel takes the index apart.

#include "device.h"

namespace memra::cuda {

// Clears the report. Nothing happens where report is null, here and below.
Status report_begin(const Device& device, memra_weight_report* report, memra_stream stream);

// rows and columns are those of a source matrix.
Status report_end(const Device& device, memra_weight_report* report, int64_t rows, int64_t columns,
                  memra_stream stream);

}  // namespace memra::cuda
