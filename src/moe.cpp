// A layer in one call, by either path: the checks, and which path it is.

#include "moe.h"

#include <algorithm>
#include <cstddef>

#include "check.h"
#include "entry.h"
#include "structs.h"

namespace memra {
namespace {

Status check_activations(const memra_moe_layer& layer, memra_moe_args* args, Area* x, Area* y) {
  const int64_t hidden = layer.shape.hidden_size;
  MEMRA_TRY(check_dtype(args->x_dtype, "x_dtype"));
  MEMRA_TRY(check_dtype(args->y_dtype, "y_dtype"));
  MEMRA_TRY(check_pointer(args->x, 16, "x"));
  MEMRA_TRY(check_pointer(args->y, 16, "y"));
  const int64_t x_bytes = dtype_bytes(args->x_dtype);
  const int64_t y_bytes = dtype_bytes(args->y_dtype);
  MEMRA_TRY(take_row_stride(&args->x_stride, hidden, x_bytes, "x_stride"));
  MEMRA_TRY(take_row_stride(&args->y_stride, hidden, y_bytes, "y_stride"));
  *x = rows_area(args->x, args->tokens, args->x_stride, hidden, x_bytes);
  *y = rows_area(args->y, args->tokens, args->y_stride, hidden, y_bytes);
  MEMRA_TRY(check_area(*x, "x", "x_stride"));
  MEMRA_TRY(check_area(*y, "y", "y_stride"));
  return check_apart(*y, "y", *x, "x");
}

Status check_tables(const memra_moe_layer& layer, const memra_moe_args& args) {
  MEMRA_TRY(check_pointer(args.topk_ids, alignof(int32_t), "topk_ids"));
  MEMRA_TRY(check_pointer(args.topk_weights, alignof(float), "topk_weights"));
  MEMRA_TRY(check_optional_pointer(args.expert_ptrs, alignof(void*), "expert_ptrs"));
  MEMRA_TRY(check_optional_pointer(args.expert_scales, alignof(float), "expert_scales"));
  MEMRA_TRY(check_optional_pointer(args.invalid_ids, alignof(uint64_t), "invalid_ids"));
  if (args.expert_ptrs == nullptr && !layer.has_slabs) {
    return invalid("expert_ptrs") << " is NULL: must be given, because the layer has a bank "
                                  << "without slabs";
  }
  return MEMRA_OK;
}

Status check_moe_workspace(const memra_moe_args& args, uint64_t needed, const Area& x,
                           const Area& y) {
  Area workspace;
  MEMRA_TRY(check_workspace(args.workspace, args.workspace_bytes, needed, args.tokens, &workspace));
  MEMRA_TRY(check_apart(workspace, "workspace", x, "x"));
  return check_apart(workspace, "workspace", y, "y");
}

// Fills in what zero stands for. Zero tokens have been dealt with.
Status check_args(const memra_moe_layer& layer, memra_path entry, memra_moe_args* args) {
  MEMRA_TRY(check_flags(args->flags, MEMRA_FLAG_ACCUMULATE | MEMRA_FLAG_INPUTS_STABLE, "flags"));
  MEMRA_TRY(check_variant(args->variant, layer.all_v2(), "variant"));
  Area x;
  Area y;
  MEMRA_TRY(check_activations(layer, args, &x, &y));
  MEMRA_TRY(check_tables(layer, *args));
  return check_moe_workspace(*args, layer.workspace_bytes(entry, args->tokens), x, y);
}

// The path that the arguments ask of an entry: its own, or AUTO for the one that chooses.
Status take_path(const memra_moe_layer& layer, memra_path entry, const memra_moe_args& args,
                 memra_path* path) {
  MEMRA_TRY(check_range(args.path, MEMRA_PATH_AUTO, MEMRA_PATH_GROUPED, "path"));
  if (entry != MEMRA_PATH_AUTO && args.path != MEMRA_PATH_AUTO && args.path != entry) {
    return invalid("path") << " is " << args.path << ": legal here is MEMRA_PATH_AUTO (0) or "
                           << entry;
  }
  *path = entry != MEMRA_PATH_AUTO ? entry : args.path;
  if (*path == MEMRA_PATH_AUTO) {
    const bool grouped = layer.has_grouped() && args.tokens >= layer.first_grouped_tokens();
    *path = grouped ? MEMRA_PATH_GROUPED : MEMRA_PATH_ROWS;
  }
  if (*path == MEMRA_PATH_GROUPED && !layer.has_grouped()) {
    return layer.state->backend->lacks("memra_moe_grouped");
  }
  return MEMRA_OK;
}

// Rows of more tokens than one call takes, in parts of nearly one size, which share the workspace.
Status run_rows_in_parts(const memra_moe_layer& layer, const memra_moe_args& args,
                         memra_stream stream) {
  const int64_t most = layer.rows_max_tokens();
  const int64_t parts = (args.tokens + most - 1) / most;
  const int64_t part_tokens = (args.tokens + parts - 1) / parts;
  for (int64_t begin = 0; begin < args.tokens; begin += part_tokens) {
    memra_moe_args part = args;
    part.tokens = std::min(part_tokens, args.tokens - begin);
    part.x =
        static_cast<const std::byte*>(args.x) + begin * args.x_stride * dtype_bytes(args.x_dtype);
    part.y = static_cast<std::byte*>(args.y) + begin * args.y_stride * dtype_bytes(args.y_dtype);
    part.topk_ids += begin * layer.shape.top_k;
    part.topk_weights += begin * layer.shape.top_k;
    MEMRA_TRY(run_rows(layer, part, stream));
  }
  return MEMRA_OK;
}

}  // namespace

Status moe_entry(memra_moe_layer* layer, const memra_moe_args* caller, memra_path entry,
                 memra_stream stream, uint32_t grouped_stages) {
  if (layer == nullptr) return missing_handle("layer", "memra_moe_layer_create");
  return run_on(*layer->state, [&]() -> Status {
    memra_moe_args args;
    MEMRA_TRY(read_struct(caller, "args", &args));
    MEMRA_TRY(check_range(grouped_stages, 1, MEMRA_GROUPED_ALL, "stages"));
    memra_path path = MEMRA_PATH_AUTO;
    MEMRA_TRY(take_path(*layer, entry, args, &path));
    const bool rows = path == MEMRA_PATH_ROWS;
    // Who leaves the choice to the library is not bound by what one call of rows takes.
    const bool pinned = entry != MEMRA_PATH_AUTO || args.path != MEMRA_PATH_AUTO;
    const int64_t most_rows = pinned ? layer->rows_max_tokens() : layer->max_tokens;
    const int64_t most = rows ? most_rows : layer->grouped_max_tokens();
    MEMRA_TRY(check_range(args.tokens, 0, most, "tokens"));
    if (args.tokens == 0) return MEMRA_OK;
    MEMRA_TRY(check_args(*layer, entry, &args));
    return rows ? run_rows_in_parts(*layer, args, stream)
                : run_grouped(*layer, args, grouped_stages, stream);
  });
}

}  // namespace memra

extern "C" {

memra_status memra_moe(memra_moe_layer* layer, const memra_moe_args* args, memra_stream stream) {
  return memra::moe_entry(layer, args, MEMRA_PATH_AUTO, stream);
}

}  // extern "C"
