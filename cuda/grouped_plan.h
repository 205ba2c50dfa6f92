#pragma once

// The list of tiles, made on the device.

#include "grouped_products.h"

namespace memra::cuda {

Status plan_load();
Status plan_tiles(const Device& device, const ExpertRows& rows, int32_t max_units, TileList* list,
                  const Launch& launch);

}  // namespace memra::cuda
