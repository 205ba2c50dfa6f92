// One plane of the grouped path, as a stage of its own.

#include "grouped.h"
#include "grouped_products.h"

namespace memra::cuda {

Status grouped_gemm(const Device& device, const memra_moe_grouped_gemm_args& args,
                    const Launch& launch) {
  const int64_t first = args.plane * args.n_experts;
  PlaneProductArgs product{};
  product.rows = {args.n_active, args.active_experts, args.offsets, args.n_experts, args.rows};
  TilePlans plans = tile_plans(device, product.rows,
                               {args.format, args.format, args.format, args.columns, args.columns},
                               args.workspace);
  plans.gate_up = plans.plane;
  product.tiles = plans.plane;
  product.x = {static_cast<const uint16_t*>(args.z), args.zs, args.columns};
  product.plane = {args.ptrs + first, args.scales != nullptr ? args.scales + first : nullptr,
                   args.bias != nullptr ? args.bias + first : nullptr};
  product.format = args.format;
  product.outputs = args.outputs;
  product.out = args.out;
  MEMRA_TRY(plan_tiles(device, product.rows, plans, launch));
  Launch chained = launch;
  chained.chained = true;
  return plane_product(device, product, chained);
}

}  // namespace memra::cuda
