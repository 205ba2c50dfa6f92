#pragma once

// The matrix products of the grouped path: from a CSR over experts to a list of tiles, and from
// there to outputs. Layouts: grouped_layout.cuh.

#include "device.h"
#include "memra.h"

namespace memra::cuda {

struct TileList;  // grouped_tiles.cuh

// Loads the kernels that this device takes, and says in it which; once per engine.
Status products_load(Device* device);
Status plan_tiles_load();

// Rows of activations by expert, as memra_moe_route makes them.
struct ExpertRows {
  const int32_t* n_active;
  const int32_t* experts;  // [n_experts], and offsets one more
  const int32_t* offsets;
  int64_t n_experts;
  int64_t rows;  // that there are; what offsets say beyond is cut
};

// One plane of the tables.
struct PlaneTables {
  const void* const* slabs;  // [n_experts]
  const float* scales;       // or null: all 1
  const float* const* bias;  // or null; a null entry is no bias
};

struct Activations {
  const uint16_t* z;
  const float* zs;  // or null where outputs are wanted without the rows' scales
  int64_t columns;
};

// A list of tiles of rows, at most so many eights of them wide.
struct TilePlan {
  TileList* list;
  int32_t max_units;
};
// The lists of gate and up and of single planes over the same rows, which may be one and the same.
struct TilePlans {
  TilePlan gate_up, plane;
};
struct TileFormats {
  memra_format gate, up, plane;
  int64_t gate_columns, plane_columns;  // of gate and up, and of the plane
};
// They lie in `memory`, of tile_plans_size(), which rises with both.
TilePlans tile_plans(const Device& device, const ExpertRows& rows, const TileFormats& formats,
                     void* memory);
uint64_t tile_plans_size(int64_t rows, int64_t n_experts);
Status plan_tiles(const Device& device, const ExpertRows& rows, const TilePlans& plans,
                  const Launch& launch);
// Lets the products over them run once more.
Status rewind_tiles(const Device& device, const TilePlans& plans, const Launch& launch);

// Gate, up and the activation, in f16 and one exponent for each 16 of a row;
// finish_activations() brings a row under one.
struct GateUpProductArgs {
  ExpertRows rows;
  TilePlan tiles;
  Activations x;
  PlaneTables gate, up;
  memra_format gate_format, up_format;
  int64_t outputs;
  memra_activation activation;
  float limit, alpha;
  uint16_t* act;      // as z of `outputs` columns
  int8_t* exponents;  // [n_parts(outputs), rows]
};
Status gate_up_product(const Device& device, const GateUpProductArgs& args, const Launch& launch);
const char* gate_up_product_name(const Device& device, memra_format gate, memra_format up,
                                 int64_t columns);

struct FinishActivationsArgs {
  ExpertRows rows;
  int64_t columns;
  uint16_t* act;
  int8_t* exponents;
};
Status finish_activations_load();
Status finish_activations(const Device& device, const FinishActivationsArgs& args,
                          const Launch& launch);

// One plane, to f32 or to pairs of neighbouring outputs (grouped_pairs.cuh).
struct PlaneProductArgs {
  ExpertRows rows;
  TilePlan tiles;
  int32_t turn;  // 0, 1 or 2: which of its list's products this is
  Activations x;
  PlaneTables plane;
  memra_format format;
  int64_t outputs;
  float* out;        // one of the two
  uint32_t* packed;  // [rows, outputs / 2], before scale and bias
};
Status plane_product(const Device& device, const PlaneProductArgs& args, const Launch& launch);
const char* plane_product_name(const Device& device, memra_format format, int64_t columns);

}  // namespace memra::cuda
