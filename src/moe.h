#pragma once

// What the entries that run a whole layer share.

#include "layer.h"
#include "memra.h"
#include "status.h"

namespace memra {

// memra_moe_rows, memra_moe_grouped, and with MEMRA_PATH_AUTO memra_moe. grouped_stages are those
// of memra_moe_grouped_probe.
Status moe_entry(memra_moe_layer* layer, const memra_moe_args* caller, memra_path entry,
                 memra_stream stream, uint32_t grouped_stages = MEMRA_GROUPED_ALL);

// The paths. Arguments have been checked, strides are spelt out, tokens is not 0.
Status run_rows(const memra_moe_layer& layer, const memra_moe_args& args, memra_stream stream);
Status run_grouped(const memra_moe_layer& layer, const memra_moe_args& args, uint32_t stages,
                   memra_stream stream);

}  // namespace memra
