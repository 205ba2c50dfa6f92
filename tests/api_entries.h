// Every entry that takes a struct, with the table of its fields.
#pragma once

#include "api_fields.h"
#include "api_grouped_entries.h"

namespace memra::api_test {

inline std::vector<int64_t> wrong_variants() {
  return {MEMRA_ROWS_PLAIN | MEMRA_ROWS_ILP,
          MEMRA_ROWS_PLAIN | MEMRA_ROWS_PACK,
          MEMRA_ROWS_ORD | MEMRA_ROWS_DEDUP_ORDER,
          MEMRA_ROWS_LANE_MAJOR,  // in MEMRA_NVFP4
          MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_ILP,
          64,
          INT32_MIN,
          -1};
}
inline std::vector<int64_t> right_variants() {
  return {MEMRA_ROWS_AUTO,
          MEMRA_ROWS_PLAIN,
          MEMRA_ROWS_ILP,
          MEMRA_ROWS_ORD,
          MEMRA_ROWS_DEDUP_ORDER,
          MEMRA_ROWS_PACK,
          MEMRA_ROWS_ILP | MEMRA_ROWS_ORD | MEMRA_ROWS_PACK,
          MEMRA_ROWS_ILP | MEMRA_ROWS_DEDUP_ORDER | MEMRA_ROWS_PACK};
}

using MoeCall = memra_status (*)(memra_moe_layer*, const memra_moe_args*, memra_stream);

// A whole layer, by the entry of one path or the one that chooses.
inline Entry moe_entry(World& world, const char* name, MoeCall call, memra_path path,
                       std::vector<int64_t> wrong_paths) {
  using Args = memra_moe_args;
  return {
      name,
      bytes_of(world.moe_args()),
      offsetof(Args, variant),
      {
          number32(MEMRA_FIELD(Args, flags), {4, -1}, {0, 1, 2, 3}),
          number64(MEMRA_FIELD(Args, tokens), {-1, kMaxTokens + 1, INT64_MIN, INT64_MAX}, {0, 1}),
          pointer(MEMRA_FIELD(Args, x), 16),
          pointer(MEMRA_FIELD(Args, y), 16),
          number32(MEMRA_FIELD(Args, x_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
          number32(MEMRA_FIELD(Args, y_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
          number64(MEMRA_FIELD(Args, x_stride), {-1, 1, 64, 130, kNever, INT64_MIN}, {kHidden}),
          number64(MEMRA_FIELD(Args, y_stride), {-1, 1, 64, 130, kNever, INT64_MIN}, {kHidden}),
          pointer(MEMRA_FIELD(Args, topk_ids), 4),
          pointer(MEMRA_FIELD(Args, topk_weights), 4),
          pointer(MEMRA_FIELD(Args, expert_ptrs), 8, true),
          pointer(MEMRA_FIELD(Args, expert_scales), 4, true),
          pointer(MEMRA_FIELD(Args, invalid_ids), 8, true),
          pointer(MEMRA_FIELD(Args, workspace), 256),
          {MEMRA_FIELD(Args, workspace_bytes),
           FieldType::kInt64,
           {0, 1, 1024},
           {-1, 64 * 1024},
           1,
           false,
           MEMRA_ERROR_WORKSPACE_TOO_SMALL},
          number32(MEMRA_FIELD(Args, variant), wrong_variants(), right_variants()),
          number32(MEMRA_FIELD(Args, path), std::move(wrong_paths), {MEMRA_PATH_AUTO, path}),
      },
      {&world.y, &world.counter},
      [&world, call](const void* args) {
        return world.finish(call(world.layer, static_cast<const Args*>(args), nullptr));
      }};
}

inline Entry moe_rows_entry(World& world) {
  return moe_entry(world, "memra_moe_rows", memra_moe_rows, MEMRA_PATH_ROWS,
                   {MEMRA_PATH_GROUPED, 3, -1});
}
inline Entry moe_grouped_entry(World& world) {
  return moe_entry(world, "memra_moe_grouped", memra_moe_grouped, MEMRA_PATH_GROUPED,
                   {MEMRA_PATH_ROWS, 3, -1});
}
inline Entry grouped_probe_entry(World& world) {
  const auto call = [](memra_moe_layer* layer, const memra_moe_args* args, memra_stream stream) {
    return memra_moe_grouped_probe(layer, args, MEMRA_GROUPED_ALL, stream);
  };
  return moe_entry(world, "memra_moe_grouped_probe", call, MEMRA_PATH_GROUPED,
                   {MEMRA_PATH_ROWS, 3, -1});
}
inline Entry moe_either_entry(World& world) {
  return moe_entry(world, "memra_moe", memra_moe, MEMRA_PATH_GROUPED, {3, -1, INT32_MAX});
}

inline Entry q8_entry(World& world) {
  using Args = memra_q8_1_args;
  return {"memra_quantize_q8_1",
          bytes_of(world.q8_args()),
          sizeof(Args),
          {
              number32(MEMRA_FIELD(Args, x_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
              pointer(MEMRA_FIELD(Args, x), 16),
              number64(MEMRA_FIELD(Args, x_stride), {-1, 64, 130, kNever}, {kHidden}),
              number64(MEMRA_FIELD(Args, rows), {-1, int64_t{1} << 31, INT64_MAX}, {0, 1, 2}),
              dimension(MEMRA_FIELD(Args, columns), 64, {64}),
              pointer(MEMRA_FIELD(Args, q), 16),
              pointer(MEMRA_FIELD(Args, d), 16),
          },
          {&world.q_out, &world.d_out},
          [&world](const void* args) {
            return world.finish(
                memra_quantize_q8_1(world.engine, static_cast<const Args*>(args), nullptr));
          }};
}

inline std::vector<Field> gate_up_fields() {
  using Args = memra_rows_gate_up_args;
  return {
      number32(MEMRA_FIELD(Args, flags), {MEMRA_FLAG_ACCUMULATE, 4, -1},
               {MEMRA_FLAG_INPUTS_STABLE}),
      number64(MEMRA_FIELD(Args, tokens), {-1, MEMRA_ROWS_MAX_TOKENS + 1, INT64_MAX}, {0, 1}),
      number64(MEMRA_FIELD(Args, top_k), {-1, 0, MEMRA_MAX_TOP_K + 1, INT64_MAX}, {1}),
      dimension(MEMRA_FIELD(Args, hidden_size), 64, {64}),
      dimension(MEMRA_FIELD(Args, intermediate_size), 64),
      number32(MEMRA_FIELD(Args, gate_format), kWrongFormats, {MEMRA_NVFP4, MEMRA_NVFP4_V2}),
      number32(MEMRA_FIELD(Args, up_format), kWrongFormats, {MEMRA_NVFP4, MEMRA_NVFP4_V2}),
      number32(MEMRA_FIELD(Args, activation), {-1, 4, INT32_MAX}),
      number32(MEMRA_FIELD(Args, variant), wrong_variants(),
               {MEMRA_ROWS_AUTO, MEMRA_ROWS_PLAIN, MEMRA_ROWS_ILP, MEMRA_ROWS_PACK}),
      pointer(MEMRA_FIELD(Args, ptrs), 8),
      pointer(MEMRA_FIELD(Args, scales), 4),
      pointer(MEMRA_FIELD(Args, bias), 8, true),
      pointer(MEMRA_FIELD(Args, order), 4, true),
      pointer(MEMRA_FIELD(Args, q), 16),
      pointer(MEMRA_FIELD(Args, d), 16),
      pointer(MEMRA_FIELD(Args, out), 16),
  };
}

inline Entry gate_up_entry(World& world) {
  using Args = memra_rows_gate_up_args;
  return {"memra_moe_rows_gate_up",
          bytes_of(world.gate_up_args()),
          sizeof(Args),
          gate_up_fields(),
          {&world.act},
          [&world](const void* args) {
            return world.finish(
                memra_moe_rows_gate_up(world.engine, static_cast<const Args*>(args), nullptr));
          }};
}

inline std::vector<Field> down_fields() {
  using Args = memra_rows_down_args;
  return {
      number32(MEMRA_FIELD(Args, flags), {4, -1}, {1, 2, 3}),
      number64(MEMRA_FIELD(Args, tokens), {-1, MEMRA_ROWS_MAX_TOKENS + 1, INT64_MAX}, {0, 1}),
      number64(MEMRA_FIELD(Args, top_k), {-1, 0, MEMRA_MAX_TOP_K + 1, INT64_MAX}, {1}),
      dimension(MEMRA_FIELD(Args, intermediate_size), 64),
      dimension(MEMRA_FIELD(Args, hidden_size), 64, {64}),
      number32(MEMRA_FIELD(Args, format), kWrongFormats, {MEMRA_NVFP4, MEMRA_NVFP4_V2}),
      number32(MEMRA_FIELD(Args, y_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
      number32(MEMRA_FIELD(Args, variant), wrong_variants(), right_variants()),
      number32(MEMRA_FIELD(Args, reserved), {1, -1}),
      pointer(MEMRA_FIELD(Args, ptrs), 8),
      pointer(MEMRA_FIELD(Args, scales), 4),
      pointer(MEMRA_FIELD(Args, bias), 8, true),
      pointer(MEMRA_FIELD(Args, topk_weights), 4),
      pointer(MEMRA_FIELD(Args, q), 16),
      pointer(MEMRA_FIELD(Args, d), 16),
      pointer(MEMRA_FIELD(Args, y), 16),
      number64(MEMRA_FIELD(Args, y_stride), {-1, 64, 130, kNever}, {kHidden}),
  };
}

inline Entry down_entry(World& world) {
  using Args = memra_rows_down_args;
  return {"memra_moe_rows_down",
          bytes_of(world.down_args()),
          offsetof(Args, y_stride),
          down_fields(),
          {&world.y},
          [&world](const void* args) {
            return world.finish(
                memra_moe_rows_down(world.engine, static_cast<const Args*>(args), nullptr));
          }};
}

// The stages inside a probe: checked as by their own entries.
inline Entry probe_gate_up_entry(World& world) {
  Entry entry = gate_up_entry(world);
  entry.name = "memra_moe_rows_probe of gate_up";
  entry.call = [&world](const void* args) {
    memra_rows_probe_args probe = MEMRA_ROWS_PROBE_ARGS_INIT;
    probe.arm = MEMRA_PROBE_LOADONLY;
    probe.gate_up = static_cast<const memra_rows_gate_up_args*>(args);
    return world.finish(memra_moe_rows_probe(world.engine, &probe, nullptr));
  };
  return entry;
}

inline Entry probe_down_entry(World& world) {
  Entry entry = down_entry(world);
  entry.name = "memra_moe_rows_probe of down";
  entry.call = [&world](const void* args) {
    memra_rows_probe_args probe = MEMRA_ROWS_PROBE_ARGS_INIT;
    probe.arm = MEMRA_PROBE_MATHONLY;
    probe.down = static_cast<const memra_rows_down_args*>(args);
    return world.finish(memra_moe_rows_probe(world.engine, &probe, nullptr));
  };
  return entry;
}

inline std::vector<Field> slice_fields(std::size_t slice) {
  return {
      number64("slice.row_begin", slice + offsetof(memra_slice, row_begin), {-8, 4, 64, INT64_MAX},
               {8, 56}),
      number64("slice.row_count", slice + offsetof(memra_slice, row_count), {-8, 4, 72, INT64_MAX},
               {8}),
      number64("slice.column_begin", slice + offsetof(memra_slice, column_begin),
               {-64, 32, 128, INT64_MAX}, {64}),
      number64("slice.column_count", slice + offsetof(memra_slice, column_count),
               {-64, 32, 192, INT64_MAX}, {64}),
  };
}

inline std::vector<Field> with(std::vector<Field> fields, const std::vector<Field>& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

inline std::vector<Field> repack_fields() {
  using Args = memra_repack_args;
  return with(
      {
          number32(MEMRA_FIELD(Args, reserved), {1, -1}),
          rows(MEMRA_FIELD(Args, rows), 8),
          dimension(MEMRA_FIELD(Args, columns), 64, {64}),
          number64(MEMRA_FIELD(Args, n_experts), {-1, MEMRA_MAX_DIMENSION + 1, INT64_MAX}, {0, 1}),
          number64(MEMRA_FIELD(Args, src_stride), {16, kSlabBytes - 4, kSlabBytes + 2, -4},
                   {kSlabBytes}),
          number64(MEMRA_FIELD(Args, dst_stride), {16, kSlabBytes - 16, kSlabBytes + 4, -16},
                   {kSlabBytes}),
          pointer(MEMRA_FIELD(Args, report), 8, true),
      },
      slice_fields(offsetof(Args, slice)));
}

inline Entry repack_entry(World& world) {
  using Args = memra_repack_args;
  return {
      "memra_repack_v2",
      bytes_of(world.repack_args()),
      offsetof(Args, workspace),
      with(repack_fields(),
           {pointer(MEMRA_FIELD(Args, src), 4), pointer(MEMRA_FIELD(Args, dst), 16)}),
      {&world.bank_out, &world.report},
      [&world](const void* args) {
        return world.finish(memra_repack_v2(world.engine, static_cast<const Args*>(args), nullptr));
      }};
}

inline Entry in_place_entry(World& world) {
  using Args = memra_repack_args;
  Entry entry = repack_entry(world);
  entry.name = "memra_repack_v2 in place";
  entry.valid = bytes_of(world.in_place_args());
  entry.fields = with(repack_fields(), {
                                           pointer(MEMRA_FIELD(Args, workspace), 256),
                                           {MEMRA_FIELD(Args, workspace_bytes),
                                            FieldType::kInt64,
                                            {0, 1, kSlabBytes - 1},
                                            {2 * kSlabBytes, kSlabBytes + 1},
                                            1,
                                            false,
                                            MEMRA_ERROR_WORKSPACE_TOO_SMALL},
                                       });
  entry.needed = offsetof(Args, report);
  entry.outputs = {&world.report};
  return entry;
}

inline Entry import_entry(World& world) {
  using Args = memra_import_args;
  return {"memra_import_nvfp4",
          bytes_of(world.import_args()),
          offsetof(Args, report),
          with(
              {
                  number32(MEMRA_FIELD(Args, format), kWrongFormats, {MEMRA_NVFP4}),
                  rows(MEMRA_FIELD(Args, rows), 8),
                  dimension(MEMRA_FIELD(Args, columns), 64, {64}),
                  number64(MEMRA_FIELD(Args, n_experts), {-1, MEMRA_MAX_DIMENSION + 1}, {0, 1}),
                  pointer(MEMRA_FIELD(Args, codes), 4),
                  number64(MEMRA_FIELD(Args, codes_stride), {4, 4094, 4098, -4}, {4096}),
                  pointer(MEMRA_FIELD(Args, scales), 4),
                  number64(MEMRA_FIELD(Args, scales_stride), {4, 508, 514, -4}, {512}),
                  pointer(MEMRA_FIELD(Args, global_scales), 4),
                  number32(MEMRA_FIELD(Args, global_scale), {0, 3, -1},
                           {MEMRA_GLOBAL_SCALE_RECIPROCAL}),
                  number32(MEMRA_FIELD(Args, reserved), {1, -1}),
                  pointer(MEMRA_FIELD(Args, dst), 4),
                  number64(MEMRA_FIELD(Args, dst_stride), {16, kSlabBytes - 4, kSlabBytes + 2, -4},
                           {kSlabBytes}),
                  pointer(MEMRA_FIELD(Args, expert_scales), 4),
                  pointer(MEMRA_FIELD(Args, report), 8, true),
              },
              slice_fields(offsetof(Args, slice))),
          {&world.bank_out, &world.scales_out, &world.report},
          [&world](const void* args) {
            return world.finish(
                memra_import_nvfp4(world.engine, static_cast<const Args*>(args), nullptr));
          }};
}

inline Entry quantize_entry(World& world) {
  using Args = memra_quantize_args;
  return {
      "memra_quantize_nvfp4",
      bytes_of(world.quantize_args()),
      offsetof(Args, report),
      {
          number32(MEMRA_FIELD(Args, format), kWrongFormats, {MEMRA_NVFP4}),
          rows(MEMRA_FIELD(Args, rows), 8),
          dimension(MEMRA_FIELD(Args, columns), 64, {64}),
          number64(MEMRA_FIELD(Args, n_experts), {-1, MEMRA_MAX_DIMENSION + 1}, {0, 1}),
          pointer(MEMRA_FIELD(Args, src), 16),
          number32(MEMRA_FIELD(Args, src_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
          number32(MEMRA_FIELD(Args, compute_expert_scale), {-1, 2}, {0}),
          number64(MEMRA_FIELD(Args, src_row_stride), {-1, 64, 130, kNever, INT64_MAX}, {kHidden}),
          number64(MEMRA_FIELD(Args, src_stride), {-1, 64, 8190, 8194, kNever}, {8192}),
          pointer(MEMRA_FIELD(Args, dst), 4),
          number64(MEMRA_FIELD(Args, dst_stride), {16, kSlabBytes - 4, kSlabBytes + 2, -4},
                   {kSlabBytes}),
          pointer(MEMRA_FIELD(Args, expert_scales), 4),
          pointer(MEMRA_FIELD(Args, report), 8, true),
      },
      {&world.bank_out, &world.scales_out, &world.report},
      [&world](const void* args) {
        return world.finish(
            memra_quantize_nvfp4(world.engine, static_cast<const Args*>(args), nullptr));
      }};
}

inline Entry dequantize_entry(World& world) {
  using Args = memra_dequantize_args;
  return {
      "memra_dequantize",
      bytes_of(world.dequantize_args()),
      offsetof(Args, dst_row_stride),
      with(
          {
              number32(MEMRA_FIELD(Args, format), kWrongFormats, {MEMRA_NVFP4}),
              rows(MEMRA_FIELD(Args, rows), 8),
              dimension(MEMRA_FIELD(Args, columns), 64, {64}),
              number64(MEMRA_FIELD(Args, n_experts), {-1, MEMRA_MAX_DIMENSION + 1}, {0, 1}),
              pointer(MEMRA_FIELD(Args, src), 4),
              number64(MEMRA_FIELD(Args, src_stride), {16, kSlabBytes - 4, kSlabBytes + 2, -4},
                       {kSlabBytes}),
              pointer(MEMRA_FIELD(Args, expert_scales), 4, true),
              pointer(MEMRA_FIELD(Args, dst), 16),
              number32(MEMRA_FIELD(Args, dst_dtype), kWrongDtypes, {MEMRA_F16, MEMRA_BF16}),
              number32(MEMRA_FIELD(Args, reserved), {1, -1}),
              number64(MEMRA_FIELD(Args, dst_row_stride), {-1, 64, 127, kNever}, {kHidden, 129}),
              number64(MEMRA_FIELD(Args, dst_stride), {-1, 64, 8190, kNever}, {8192, 8193}),
          },
          slice_fields(offsetof(Args, slice))),
      {&world.floats_out},
      [&world](const void* args) {
        return world.finish(
            memra_dequantize(world.engine, static_cast<const Args*>(args), nullptr));
      }};
}

inline memra_status create_layer(World& world, const memra_moe_layer_desc& desc) {
  memra_moe_layer* layer = reinterpret_cast<memra_moe_layer*>(&world);
  const memra_status status = memra_moe_layer_create(world.engine, &desc, &layer);
  if (status != MEMRA_OK) return layer == nullptr ? status : MEMRA_ERROR_INTERNAL;
  memra_moe_layer_destroy(layer);
  return status;
}

inline Entry layer_entry(World& world) {
  using Args = memra_moe_layer_desc;
  return {"memra_moe_layer_create",
          bytes_of(world.layer_desc()),
          sizeof(Args),
          {
              number32(MEMRA_FIELD(Args, activation), {-1, 4, INT32_MAX}),
              dimension(MEMRA_FIELD(Args, hidden_size), 64, {64}),
              dimension(MEMRA_FIELD(Args, intermediate_size), 64),
              number64(MEMRA_FIELD(Args, n_experts), {-1, 0, MEMRA_MAX_DIMENSION + 1}, {4, 5, 8}),
              number64(MEMRA_FIELD(Args, top_k), {-1, 0, MEMRA_MAX_TOP_K + 1, INT64_MAX}, {1, 64}),
              number64(MEMRA_FIELD(Args, local_expert_offset), {-1, 4, INT64_MAX, INT64_MIN},
                       {0, 1, 3}),
              number64(MEMRA_FIELD(Args, n_local_experts), {-1, 5, INT64_MAX, INT64_MIN}, {1, 4}),
              number64(MEMRA_FIELD(Args, max_tokens), {-1, 0, INT64_MIN}, {1, 4096, INT64_MAX}),
              struct_pointer(MEMRA_FIELD(Args, gate)),
              struct_pointer(MEMRA_FIELD(Args, up)),
              struct_pointer(MEMRA_FIELD(Args, down)),
          },
          {},
          [&world](const void* bytes) {
            // The struct is handed on as it is, whatever its size says.
            memra_moe_layer* layer = reinterpret_cast<memra_moe_layer*>(&world);
            const memra_status status =
                memra_moe_layer_create(world.engine, static_cast<const Args*>(bytes), &layer);
            if (status == MEMRA_OK) memra_moe_layer_destroy(layer);
            return status == MEMRA_OK || layer == nullptr ? status : MEMRA_ERROR_INTERNAL;
          }};
}

inline Entry bank_entry(World& world) {
  using Args = memra_bank;
  const memra_moe_layer_desc desc = world.layer_desc();
  return {"memra_moe_layer_create, a bank",
          bytes_of(world.gate),
          8,
          {
              number32(MEMRA_FIELD(Args, format), kWrongFormats, {MEMRA_NVFP4}),
              pointer(MEMRA_FIELD(Args, base), 4, true),
              number64(MEMRA_FIELD(Args, expert_stride),
                       {16, kSlabBytes - 4, kSlabBytes + 2, -4, kNever}, {kSlabBytes}),
              pointer(MEMRA_FIELD(Args, expert_scales), 4, true),
              pointer(MEMRA_FIELD(Args, bias), 4, true),
          },
          {},
          [&world, desc](const void* bank) {
            memra_moe_layer_desc with_bank = desc;
            with_bank.up = static_cast<const Args*>(bank);
            return create_layer(world, with_bank);
          }};
}

inline Entry engine_entry(World& world) {
  using Args = memra_engine_options;
  return {"memra_engine_create",
          bytes_of(world.engine_options()),
          8,
          {
              number32(MEMRA_FIELD(Args, backend), {-1, 3, INT32_MAX}),
              number32(MEMRA_FIELD(Args, device), {-1, 1, INT32_MAX}),
              number32(MEMRA_FIELD(Args, cpu_threads), {-1, 4097, INT32_MAX}, {1, 2}),
              number32(MEMRA_FIELD(Args, rows_variant),
                       {MEMRA_ROWS_PLAIN | MEMRA_ROWS_ILP, MEMRA_ROWS_ORD | MEMRA_ROWS_DEDUP_ORDER,
                        MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_ILP, 64, -1},
                       {MEMRA_ROWS_LANE_MAJOR, MEMRA_ROWS_PLAIN}),
              number32(MEMRA_FIELD(Args, dependent_launch), {-1, 3}, {MEMRA_ON, MEMRA_OFF}),
              number32(MEMRA_FIELD(Args, log_level), {-1, 4}, {MEMRA_LOG_INFO}),
              number32(MEMRA_FIELD(Args, reserved), {1, -1}),
          },
          {},
          [](const void* options) {
            memra_engine* engine = reinterpret_cast<memra_engine*>(&options);
            const memra_status status =
                memra_engine_create(static_cast<const Args*>(options), &engine);
            if (status == MEMRA_OK) memra_engine_destroy(engine);
            return status == MEMRA_OK || engine == nullptr ? status : MEMRA_ERROR_INTERNAL;
          }};
}

inline std::vector<Entry> all_entries(World& world) {
  std::vector<Entry> entries;
  for (const auto& make :
       {moe_rows_entry,      moe_grouped_entry, moe_either_entry, topk_entry,     route_entry,
        gather_entry,        gemm_entry,        q8_entry,         gate_up_entry,  down_entry,
        probe_gate_up_entry, probe_down_entry,  repack_entry,     in_place_entry, import_entry,
        quantize_entry,      dequantize_entry,  layer_entry,      bank_entry,     engine_entry,
        grouped_probe_entry}) {
    entries.push_back(make(world));
  }
  return entries;
}

}  // namespace memra::api_test
