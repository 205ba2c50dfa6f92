// Dispatch of the grouped products: which kernels a device takes, and how wide their tiles are.

#include "grouped_products.h"

#include <algorithm>
#include <limits>

#include "grouped_boxes.cuh"
#include "grouped_kernels.h"
#include "grouped_layout.cuh"
#include "grouped_params.cuh"
#include "launch.h"
#include "tensor_map.h"

namespace memra::cuda {
namespace {

template <class Kernel>
struct Kernels;
template <>
struct Kernels<GroupedGateUpKernel> {
  static std::span<const GroupedGateUpKernel> of(ProductFamily family) {
    return family == ProductFamily::kWgmma ? wgmma_gate_up_kernels() : mma_gate_up_kernels();
  }
};
template <>
struct Kernels<GroupedPlaneKernel> {
  static std::span<const GroupedPlaneKernel> of(ProductFamily family) {
    return family == ProductFamily::kWgmma ? wgmma_plane_kernels() : mma_plane_kernels();
  }
};

ProductFamily family_of(const Device& device) {
  return device.wgmma ? ProductFamily::kWgmma : ProductFamily::kMma;
}

// Whether rows of NVFP4_V1 are what maps can describe.
bool has_row_maps(int64_t columns) {
  return columns % kRowSetColumns == 0;
}

// Of those that take tiles so wide, the one with the narrowest, and of one width the first; the
// tables are whole.
template <class Kernel>
const Kernel& find_kernel(const Device& device, memra_format first, memra_format second,
                          int64_t columns, int32_t units) {
  const std::span<const Kernel> kernels = Kernels<Kernel>::of(family_of(device));
  const Kernel* found = &kernels.front();
  int32_t width = std::numeric_limits<int32_t>::max();
  for (const Kernel& k : kernels) {
    const bool fits = k.first_v2 == is_v2(first) && k.second_v2 == is_v2(second) &&
                      (k.maps != WeightMaps::kRows || has_row_maps(columns));
    if (!fits || k.max_units < units || k.max_units >= width) continue;
    found = &k;
    width = k.max_units;
  }
  return *found;
}

// Whether the code that the driver took for this device has the family's instructions.
template <class Kernel>
Status is_present(ProductFamily family, bool* present) {
  const Kernel& k = Kernels<Kernel>::of(family).front();
  cudaFuncAttributes attributes{};
  MEMRA_CUDA_TRY(cudaFuncGetAttributes(&attributes, k.kernel));
  *present = attributes.maxThreadsPerBlock >= k.threads;
  return MEMRA_OK;
}

template <class Kernel>
Status load_kernels(ProductFamily family) {
  for (const Kernel& k : Kernels<Kernel>::of(family)) {
    MEMRA_TRY(load_kernel(k.kernel, k.shared_bytes));
  }
  return MEMRA_OK;
}

ExpertPlane expert_plane(const PlaneTables& tables) {
  return {tables.slabs, tables.scales, tables.bias};
}

ProductParams product_params(const ExpertRows& rows, const TilePlan& tiles, const Activations& x,
                             int64_t outputs) {
  ProductParams params{};
  params.n_experts = rows.n_experts;
  params.list = tiles.list;
  params.z = x.z;
  params.zs = x.zs;
  params.rows = rows.rows;
  params.columns = x.columns;
  params.outputs = outputs;
  return params;
}

// Tiles of weight rows that follow one another in a block, so that their rows of activations are
// copied once: no more of them than leave every block a few runs.
int64_t run_length(int64_t columns, int64_t row_tiles, int64_t tiles, int32_t z_blocks,
                   int64_t blocks) {
  constexpr int64_t kMostTiles = 4, kRunsOfBlock = 4;
  if (columns > z_blocks * kBlockColumns) return 1;
  const int64_t fair = tiles * row_tiles / (kRunsOfBlock * blocks);
  return std::clamp<int64_t>(std::min(fair, row_tiles), 1, kMostTiles);
}

// As many blocks as run at once, or fewer where there are fewer runs.
template <class Kernel, class Out>
Status launch_product(const Device& device, const Kernel& k, const TilePlan& plan,
                      ProductParams params, const Out& out, int64_t tile_rows,
                      const Launch& launch) {
  const int64_t row_tiles = (params.outputs + tile_rows - 1) / tile_rows;
  const int64_t tiles = most_tiles(params.rows, params.n_experts, plan.max_units);
  const int64_t blocks = int64_t{device.n_multiprocessors} * k.resident;
  const int64_t run = run_length(params.columns, row_tiles, tiles, k.z_blocks, blocks);
  params.run = static_cast<int32_t>(run);
  const int64_t runs = tiles * ((row_tiles + run - 1) / run);
  if (k.maps == WeightMaps::kStrips) {
    MEMRA_TRY(
        make_tensor_map(device, strip_codes(params.outputs, params.columns), &params.maps.codes));
    MEMRA_TRY(
        make_tensor_map(device, strip_scales(params.outputs, params.columns), &params.maps.scales));
  } else if (k.maps == WeightMaps::kRows) {
    MEMRA_TRY(
        make_tensor_map(device, slab_rows(params.outputs, params.columns), &params.maps.codes));
  }
  const Grid grid{dim3(static_cast<unsigned>(std::min(runs, blocks))),
                  dim3(static_cast<unsigned>(k.threads)), k.shared_bytes};
  return launch_kernel(device, launch, grid, k.kernel, params, out);
}

}  // namespace

Status products_load(Device* device) {
  bool present = false;
  MEMRA_TRY(is_present<GroupedGateUpKernel>(ProductFamily::kWgmma, &present));
  device->wgmma = present;
  MEMRA_TRY(is_present<GroupedGateUpKernel>(ProductFamily::kMma, &present));
  device->grouped = device->wgmma || present;
  if (!device->grouped) return MEMRA_OK;
  MEMRA_TRY(load_kernels<GroupedGateUpKernel>(family_of(*device)));
  MEMRA_TRY(load_kernels<GroupedPlaneKernel>(family_of(*device)));
  MEMRA_TRY(finish_activations_load());
  return plan_tiles_load();
}

TilePlans tile_plans(const Device& device, const ExpertRows& rows, const TileFormats& formats,
                     void* memory) {
  auto* const list = static_cast<TileList*>(memory);
  if (!device.wgmma) return {{list, kMmaTileUnits}, {list, kMmaTileUnits}};
  if (formats.gate != formats.up || rows.rows <= kNarrowRows * rows.n_experts) {
    // Without maps the kernels of NVFP4_V1 are no faster with narrow tiles.
    const auto narrow = [](memra_format format, int64_t columns) {
      return is_v2(format) || has_row_maps(columns);
    };
    const bool any = narrow(formats.gate, formats.gate_columns) ||
                     narrow(formats.up, formats.gate_columns) ||
                     narrow(formats.plane, formats.plane_columns);
    const int32_t units = any ? kNarrowTileUnits : kWidePlaneUnits;
    return {{list, units}, {list, units}};
  }
  auto* const behind = static_cast<uint8_t*>(memory) + wide_list_bytes(rows.rows, rows.n_experts);
  return {{list, kMaxTileUnits}, {reinterpret_cast<TileList*>(behind), kWidePlaneUnits}};
}

uint64_t tile_plans_size(int64_t rows, int64_t n_experts) {
  return tile_plans_bytes(rows, n_experts);
}

Status gate_up_product(const Device& device, const GateUpProductArgs& args, const Launch& launch) {
  ProductParams params = product_params(args.rows, args.tiles, args.x, args.outputs);
  params.planes[0] = expert_plane(args.gate);
  params.planes[1] = expert_plane(args.up);
  const ActivationOut out{args.act,
                          args.exponents,
                          static_cast<numerics::Activation>(args.activation),
                          {args.limit, args.alpha}};
  const auto& k = find_kernel<GroupedGateUpKernel>(device, args.gate_format, args.up_format,
                                                   args.x.columns, args.tiles.max_units);
  return launch_product(device, k, args.tiles, params, out, kSetRows, launch);
}

const char* gate_up_product_name(const Device& device, memra_format gate, memra_format up,
                                 int64_t columns) {
  const int32_t units = !device.wgmma ? kMmaTileUnits
                        : gate == up  ? kMaxTileUnits
                                      : kNarrowTileUnits;
  return find_kernel<GroupedGateUpKernel>(device, gate, up, columns, units).name;
}

Status plane_product(const Device& device, const PlaneProductArgs& args, const Launch& launch) {
  ProductParams params = product_params(args.rows, args.tiles, args.x, args.outputs);
  params.planes[0] = expert_plane(args.plane);
  params.counter = args.turn;
  const auto& k = find_kernel<GroupedPlaneKernel>(device, args.format, args.format, args.x.columns,
                                                  args.tiles.max_units);
  return launch_product(device, k, args.tiles, params, PlaneOut{args.out, args.packed},
                        2 * kSetRows, launch);
}

const char* plane_product_name(const Device& device, memra_format format, int64_t columns) {
  const int32_t units = device.wgmma ? kWidePlaneUnits : kMmaTileUnits;
  return find_kernel<GroupedPlaneKernel>(device, format, format, columns, units).name;
}

}  // namespace memra::cuda
