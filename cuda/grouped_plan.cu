// The lists of tiles from the CSR of routing: a block for each, and in it a warp for each width.

#include "grouped_products.h"
#include "grouped_tiles.cuh"
#include "launch.h"
#include "ptx.cuh"

namespace memra::cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Rows of the CSR's entry, within the rows there are.
struct EntryRows {
  int32_t begin, count;
};
__device__ __forceinline__ EntryRows entry_rows(const ExpertRows& csr, int32_t entry) {
  const int64_t begin = csr.offsets[entry], end = csr.offsets[entry + 1];
  const int64_t first = begin < 0 ? 0 : begin;
  const int64_t last = end < csr.rows ? end : csr.rows;
  return {static_cast<int32_t>(first), static_cast<int32_t>(last > first ? last - first : 0)};
}

__device__ __forceinline__ int32_t warp_scan(int32_t value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t below = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// Writes the tiles of one width of 32 entries, a lane each, where there is room for `room` more;
// all lanes share the work, because one expert may have nearly all rows. Returns how many.
__device__ __forceinline__ int32_t write_tiles(const ExpertRows& csr, RowTile* to, int32_t room,
                                               int32_t entry, EntryRows rows, const TileCut& cut,
                                               int32_t units, int lane) {
  const TileRun run = tiles_of_width(cut, units);
  const int32_t end = warp_scan(run.count, lane), begin = end - run.count;
  const int32_t total = __shfl_sync(kAllLanes, end, 31);
  const int32_t expert = run.count != 0 ? csr.experts[entry] : 0;
  for (int32_t first = 0; first < total; first += 32) {
    const int32_t index = first + lane;
    int owner = 0;  // the lane whose tiles hold the index
#pragma unroll
    for (int step = 16; step != 0; step /= 2) {
      const int32_t reached = __shfl_sync(kAllLanes, end, owner + step - 1);
      if (reached <= index) owner += step;
    }
    owner = owner < 31 ? owner : 31;
    const int32_t tile =
        index - __shfl_sync(kAllLanes, begin, owner) + __shfl_sync(kAllLanes, run.first, owner);
    const TileCut owners{__shfl_sync(kAllLanes, cut.tiles, owner),
                         __shfl_sync(kAllLanes, cut.wide, owner),
                         __shfl_sync(kAllLanes, cut.units, owner)};
    const int32_t row = __shfl_sync(kAllLanes, rows.begin, owner);
    const int32_t count = __shfl_sync(kAllLanes, rows.count, owner);
    const int32_t its_expert = __shfl_sync(kAllLanes, expert, owner);
    if (index >= total || index >= room) continue;
    const int32_t start = first_row(owners, tile);
    const int32_t left = count - start, width = kTileUnit * units;
    to[index] = RowTile::of(int64_t{row} + start, listed_expert(its_expert, csr.n_experts),
                            left < width ? left : width, units);
  }
  return total;
}

struct List {
  TileList* list;
  int32_t max_units;
  int32_t room;  // for tiles
};
struct Lists {
  List of[2];
};

__global__ void __launch_bounds__(32 * kMaxTileUnits)
    plan_tiles_kernel(const __grid_constant__ ExpertRows csr, const __grid_constant__ Lists lists) {
  TileList* const list = blockIdx.x == 0 ? lists.of[0].list : lists.of[1].list;
  const int32_t max_units = blockIdx.x == 0 ? lists.of[0].max_units : lists.of[1].max_units;
  const int32_t room = blockIdx.x == 0 ? lists.of[0].room : lists.of[1].room;
  __shared__ int32_t totals[kMaxTileUnits + 1];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t units = max_units - warp;  // of this warp's tiles; the last warps may have none
  dependency_wait();
  dependency_release();
  const int64_t given = *csr.n_active;
  const auto n_active = static_cast<int32_t>(given < 0               ? 0
                                             : given < csr.n_experts ? given
                                                                     : csr.n_experts);

  int32_t mine = 0;
  for (int32_t entry = lane; units > 0 && entry < n_active; entry += 32)
    mine += tiles_of_width(cut_rows(entry_rows(csr, entry).count, max_units), units).count;
  mine = __reduce_add_sync(kAllLanes, mine);
  if (lane == 0) totals[warp] = mine;
  __syncthreads();
  int32_t next = 0, all = 0;
  for (int w = 0; w < max_units; ++w) {
    if (w < warp) next += totals[w];
    all += totals[w];
  }
  // More than there is room for only where offsets do not rise.
  if (threadIdx.x == 0) *list = {min(all, room), {0, 0, 0}};

  auto* const tiles = reinterpret_cast<RowTile*>(list + 1);
  for (int32_t first = 0; units > 0 && first < n_active; first += 32) {
    const int32_t entry = first + lane;
    const EntryRows rows = entry < n_active ? entry_rows(csr, entry) : EntryRows{0, 0};
    next += write_tiles(csr, tiles + next, room - next, entry, rows,
                        cut_rows(rows.count, max_units), units, lane);
  }
}

__global__ void rewind_tiles_kernel(TileList* first, TileList* second) {
  dependency_wait();
  dependency_release();
  for (int i = 0; i < 3; ++i)
    first->next[i] = second->next[i] = 0;
}

List list_of(const ExpertRows& rows, const TilePlan& plan) {
  const int64_t room = most_tiles(rows.rows, rows.n_experts, plan.max_units);
  return {plan.list, plan.max_units, static_cast<int32_t>(room)};
}

}  // namespace

Status plan_tiles_load() {
  MEMRA_TRY(load_kernel(rewind_tiles_kernel));
  return load_kernel(plan_tiles_kernel);
}

Status rewind_tiles(const Device& device, const TilePlans& plans, const Launch& launch) {
  return launch_kernel(device, launch, Grid{dim3(1), dim3(1)}, rewind_tiles_kernel,
                       plans.gate_up.list, plans.plane.list);
}

Status plan_tiles(const Device& device, const ExpertRows& rows, const TilePlans& plans,
                  const Launch& launch) {
  const Lists lists{{list_of(rows, plans.gate_up), list_of(rows, plans.plane)}};
  const bool one = plans.gate_up.list == plans.plane.list;
  const Grid grid{dim3(one ? 1 : 2), dim3(32 * kMaxTileUnits)};
  return launch_kernel(device, launch, grid, plan_tiles_kernel, rows, lists);
}

}  // namespace memra::cuda
