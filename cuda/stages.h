#pragma once

// The stages of the rows path around its two matrix kernels.

#include "device.h"

namespace memra::cuda {

// Loads the kernels of the stages; once per engine. ptx_version is that of the virtual architecture
// that they were compiled for, 90 for compute_90.
Status stages_pairs_load(int* ptx_version);
Status stages_q8_load();

Status prepare_pairs(const Device& device, const PreparePairsArgs& args, const Launch& launch);
Status quantize_q8(const Device& device, const QuantizeQ8Args& args, const Launch& launch);
Status q8_to_lane_major(const Device& device, const int8_t* q, int64_t rows, int64_t columns,
                        int8_t* out, memra_stream stream);

}  // namespace memra::cuda
