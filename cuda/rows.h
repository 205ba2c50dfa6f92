#pragma once

// The rows path on CUDA: dispatch of the gate/up and down kernels.

#include "device.h"

namespace memra::cuda {

struct Exchange;

enum class RowsArm { kServed, kLoadOnly, kMathOnly, kStream };

// Loads every kernel of the rows path and sets its attributes; once per engine.
Status rows_load(const Device& device);

RowsChoice choose_rows(const Device& device, const RowsShape& shape, int64_t tokens);
const char* gate_up_kernel_name(const Device& device, const RowsShape& shape, uint32_t variant);
const char* down_kernel_name(const Device& device, const RowsShape& shape, uint32_t variant);

// The layer in one launch, from ids and activations. taken: false where its blocks cannot all run
// together here; nothing has been enqueued then.
bool rows_layer_fits(const Device& device, const RowsLayerArgs& args);
Status rows_layer(const Device& device, const RowsLayerArgs& args, Exchange* exchange,
                  const Launch& launch, bool* taken);

Status rows_gate_up(const Device& device, RowsArm arm, const memra_rows_gate_up_args& args,
                    const Launch& launch);
Status rows_down(const Device& device, RowsArm arm, const memra_rows_down_args& args,
                 const Launch& launch);

}  // namespace memra::cuda
