#include "layer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>

#include "check.h"
#include "entry.h"
#include "layer_banks.h"
#include "structs.h"

memra::RowsChoice memra_moe_layer::choose_rows(int64_t tokens, uint32_t variant) const {
  if (variant != MEMRA_ROWS_AUTO) return {variant, variant};
  const memra::RowsPolicy& policy = state->rows;
  if (policy.default_fits({.lane_major_possible = all_v2()})) {
    return {policy.default_variant, policy.default_variant};
  }
  const bool gate_up_v2 = shape.gate_format == MEMRA_NVFP4_V2 && shape.up_format == MEMRA_NVFP4_V2;
  const bool down_v2 = shape.down_format == MEMRA_NVFP4_V2;
  const memra::RowsChoice choice = state->backend->choose_rows(shape, tokens);
  return {policy.adjust(choice.gate_up_variant, {.lane_major_possible = gate_up_v2}),
          policy.adjust(choice.down_variant, {.lane_major_possible = down_v2})};
}

memra::GroupedShape memra_moe_layer::grouped_shape() const {
  return {.hidden_size = shape.hidden_size,
          .intermediate_size = shape.intermediate_size,
          .top_k = shape.top_k,
          .n_experts = n_experts,
          .local_expert_offset = local_expert_offset,
          .n_local_experts = n_local_experts,
          .gate_format = shape.gate_format,
          .up_format = shape.up_format,
          .down_format = shape.down_format};
}

uint64_t memra_moe_layer::workspace_bytes(memra_path path, int64_t tokens) const {
  if (tokens == 0) return 0;
  uint64_t bytes = 0;
  if (path != MEMRA_PATH_GROUPED) {
    bytes = rows_workspace(std::min(tokens, rows_max_tokens())).bytes;
  }
  if (path != MEMRA_PATH_ROWS && has_grouped()) {
    const int64_t most = std::min(tokens, grouped_max_tokens());
    bytes = std::max(bytes, state->backend->grouped_workspace(grouped_shape(), most));
  }
  return bytes;
}

namespace memra {

Status take_local_experts(int64_t n_experts, int64_t offset, int64_t* n_local_experts) {
  MEMRA_TRY(check_range(n_experts, 1, kMaxExperts, "n_experts"));
  MEMRA_TRY(check_range(offset, 0, n_experts - 1, "local_expert_offset"));
  const int64_t rest = n_experts - offset;
  MEMRA_TRY(check_range(*n_local_experts, 0, rest, "n_local_experts"));
  if (*n_local_experts == 0) *n_local_experts = rest;
  return MEMRA_OK;
}

namespace {

// Everything but the banks; n_local_experts of 0 is replaced.
Status check_desc(memra_moe_layer_desc* desc) {
  MEMRA_TRY(check_activation(desc->activation, desc->limit, desc->alpha));
  MEMRA_TRY(check_dimension(desc->hidden_size, MEMRA_COLUMN_MULTIPLE, "hidden_size"));
  MEMRA_TRY(check_dimension(desc->intermediate_size, MEMRA_COLUMN_MULTIPLE, "intermediate_size"));
  MEMRA_TRY(check_range(desc->top_k, 1, MEMRA_MAX_TOP_K, "top_k"));
  MEMRA_TRY(take_local_experts(desc->n_experts, desc->local_expert_offset, &desc->n_local_experts));
  return check_range(desc->max_tokens, 1, std::numeric_limits<int64_t>::max(), "max_tokens");
}

Status upload_tables(memra_moe_layer* layer, const HostTables& tables) {
  Backend& backend = *layer->state->backend;
  MEMRA_TRY(backend.alloc(tables.bytes.size(), &layer->memory));
  MEMRA_TRY(backend.upload(layer->memory, tables.bytes.data(), tables.bytes.size()));
  const auto* begin = static_cast<const std::byte*>(layer->memory);
  layer->tables.ptrs = reinterpret_cast<const void* const*>(begin + tables.ptrs);
  layer->tables.scales = reinterpret_cast<const float*>(begin + tables.scales);
  if (tables.has_bias) {
    layer->tables.bias = reinterpret_cast<const float* const*>(begin + tables.bias);
  }
  return MEMRA_OK;
}

Status create_layer(const std::shared_ptr<const EngineState>& state,
                    const memra_moe_layer_desc* caller, memra_moe_layer** result) {
  memra_moe_layer_desc desc;
  MEMRA_TRY(read_struct(caller, "desc", &desc));
  MEMRA_TRY(check_desc(&desc));
  Bank banks[kPlanes];
  const int64_t hidden = desc.hidden_size;
  const int64_t intermediate = desc.intermediate_size;
  const int64_t n_local = desc.n_local_experts;
  MEMRA_TRY(read_bank(desc.gate, "gate", intermediate, hidden, n_local, &banks[kGate]));
  MEMRA_TRY(read_bank(desc.up, "up", intermediate, hidden, n_local, &banks[kUp]));
  MEMRA_TRY(read_bank(desc.down, "down", hidden, intermediate, n_local, &banks[kDown]));

  auto layer = std::make_unique<memra_moe_layer>(state);
  layer->shape = {.hidden_size = hidden,
                  .intermediate_size = intermediate,
                  .top_k = desc.top_k,
                  .gate_format = banks[kGate].bank.format,
                  .up_format = banks[kUp].bank.format,
                  .down_format = banks[kDown].bank.format};
  layer->activation = desc.activation;
  layer->limit = desc.limit;
  layer->alpha = desc.alpha;
  layer->n_experts = desc.n_experts;
  layer->local_expert_offset = desc.local_expert_offset;
  layer->n_local_experts = n_local;
  layer->max_tokens = desc.max_tokens;
  layer->has_slabs =
      std::all_of(banks, banks + kPlanes, [](const Bank& bank) { return bank.has_slabs(); });
  if (!state->backend->plan_grouped(layer->grouped_shape(), &layer->grouped)) layer->grouped = {};
  MEMRA_TRY(upload_tables(layer.get(), make_tables(banks, n_local)));
  *result = layer.release();
  return MEMRA_OK;
}

bool same_plan(const memra_rows_plan& a, const memra_rows_plan& b) {
  return a.gate_up_variant == b.gate_up_variant && a.down_variant == b.down_variant &&
         std::strcmp(a.gate_up_kernel, b.gate_up_kernel) == 0 &&
         std::strcmp(a.down_kernel, b.down_kernel) == 0;
}

memra_rows_plan plan_for(const memra_moe_layer& layer, int64_t tokens) {
  const Backend& backend = *layer.state->backend;
  const RowsChoice choice = layer.choose_rows(tokens, MEMRA_ROWS_AUTO);
  memra_rows_plan plan{};
  plan.tokens_min = tokens;
  plan.tokens_max = tokens;
  plan.gate_up_variant = choice.gate_up_variant;
  plan.down_variant = choice.down_variant;
  copy_text(backend.gate_up_kernel_name(layer.shape, choice.gate_up_variant), plan.gate_up_kernel,
            sizeof(plan.gate_up_kernel));
  copy_text(backend.down_kernel_name(layer.shape, choice.down_variant), plan.down_kernel,
            sizeof(plan.down_kernel));
  return plan;
}

// Ranges beyond the room in the struct are left out.
void fill_plans(const memra_moe_layer& layer, memra_moe_layer_properties* properties) {
  int32_t count = 0;
  for (int64_t tokens = 1; tokens <= layer.rows_max_tokens(); ++tokens) {
    const memra_rows_plan plan = plan_for(layer, tokens);
    if (count > 0 && same_plan(properties->rows_plans[count - 1], plan)) {
      properties->rows_plans[count - 1].tokens_max = tokens;
    } else if (count < static_cast<int32_t>(std::size(properties->rows_plans))) {
      properties->rows_plans[count++] = plan;
    } else {
      break;
    }
  }
  properties->n_rows_plans = count;
}

void fill_grouped(const memra_moe_layer& layer, memra_moe_layer_properties* properties) {
  if (!layer.has_grouped()) return;
  properties->grouped_determinism = MEMRA_DETERMINISM_BATCH_INVARIANT;
  properties->grouped_max_tokens = layer.grouped_max_tokens();
  properties->grouped_min_tokens = layer.first_grouped_tokens();
  copy_text(layer.grouped.gate_up_kernel, properties->grouped_gate_up_kernel,
            sizeof(properties->grouped_gate_up_kernel));
  copy_text(layer.grouped.down_kernel, properties->grouped_down_kernel,
            sizeof(properties->grouped_down_kernel));
}

Status workspace_query(const memra_moe_layer* layer, memra_path path, int64_t tokens,
                       uint64_t* bytes) {
  if (layer == nullptr) return missing_handle("layer", "memra_moe_layer_create");
  return run_on(*layer->state, [&]() -> Status {
    MEMRA_TRY(check_out(bytes, "bytes"));
    MEMRA_TRY(check_range(tokens, 0, layer->max_tokens, "tokens"));
    if (path == MEMRA_PATH_GROUPED && !layer->has_grouped()) {
      return layer->state->backend->lacks("memra_moe_grouped");
    }
    *bytes = layer->workspace_bytes(path, tokens);
    return MEMRA_OK;
  });
}

}  // namespace
}  // namespace memra

using memra::Status;

extern "C" {

memra_status memra_moe_layer_create(memra_engine* engine, const memra_moe_layer_desc* desc,
                                    memra_moe_layer** layer) {
  MEMRA_TRY(memra::check_out(layer, "layer"));
  *layer = nullptr;
  return memra::run_on(engine, [&](const memra::EngineState&) {
    return memra::create_layer(engine->state, desc, layer);
  });
}

void memra_moe_layer_destroy(memra_moe_layer* layer) {
  memra::destroy_handle(layer);
}

memra_status memra_moe_layer_info(const memra_moe_layer* layer,
                                  memra_moe_layer_properties* properties) {
  if (layer == nullptr) return memra::missing_handle("layer", "memra_moe_layer_create");
  return memra::run_on(*layer->state, [&]() -> Status {
    MEMRA_TRY(memra::check_struct(properties, memra::kStructKind<memra_moe_layer_properties>,
                                  "properties"));
    memra_moe_layer_properties full{};
    full.rows_determinism = MEMRA_DETERMINISM_EXACT;
    full.rows_max_tokens = layer->rows_max_tokens();
    full.n_rows_variants = memra::list_variants(layer->all_v2(), full.rows_variants);
    memra::fill_plans(*layer, &full);
    memra::fill_grouped(*layer, &full);
    memra::write_struct(full, properties);
    return MEMRA_OK;
  });
}

memra_status memra_moe_workspace_size(const memra_moe_layer* layer, int64_t tokens,
                                      uint64_t* bytes) {
  return memra::workspace_query(layer, MEMRA_PATH_AUTO, tokens, bytes);
}

memra_status memra_moe_rows_workspace_size(const memra_moe_layer* layer, int64_t tokens,
                                           uint64_t* bytes) {
  return memra::workspace_query(layer, MEMRA_PATH_ROWS, tokens, bytes);
}

memra_status memra_moe_grouped_workspace_size(const memra_moe_layer* layer, int64_t tokens,
                                              uint64_t* bytes) {
  return memra::workspace_query(layer, MEMRA_PATH_GROUPED, tokens, bytes);
}

}  // extern "C"
