#pragma once

// Weight conversions on CUDA. Nothing here allocates or waits.

#include "device.h"

namespace memra::cuda {

// Loads the kernels of each conversion; once per engine.
Status weights_report_load();
Status weights_repack_load();
Status weights_import_load();
Status weights_quantize_load();
Status weights_dequantize_load();

Status repack_v2(const Device& device, const memra_repack_args& args, memra_stream stream);
Status import_nvfp4(const Device& device, const memra_import_args& args, memra_stream stream);
Status quantize_nvfp4(const Device& device, const memra_quantize_args& args, memra_stream stream);
Status dequantize(const Device& device, const memra_dequantize_args& args, memra_stream stream);

}  // namespace memra::cuda
