#include "structs.h"

#include "entry.h"

namespace memra {

Status check_struct_size(uint32_t struct_size, const StructKind& kind, const char* name) {
  if (struct_size > kLargestStruct) {
    return fail(MEMRA_ERROR_UNSUPPORTED)
           << name << ".struct_size is " << struct_size << ": this library knows " << kind.size
           << " bytes and accepts at most " << kLargestStruct;
  }
  // A smaller struct of another version would still have a size that its alignment divides; any
  // other number would cut a field in two.
  if (struct_size < kind.needed || (struct_size < kind.size && struct_size % kind.alignment != 0)) {
    return fail(MEMRA_ERROR_INVALID_ARGUMENT)
           << name << ".struct_size is " << struct_size << ": must be the sizeof of the struct, "
           << kind.size << " in this version, at least " << kind.needed;
  }
  return MEMRA_OK;
}

Status check_struct(const void* caller, const StructKind& kind, const char* name) {
  if (caller == nullptr) {
    return fail(MEMRA_ERROR_INVALID_ARGUMENT) << name << " is NULL: must point to a struct";
  }
  if (reinterpret_cast<uintptr_t>(caller) % kind.alignment != 0) {
    return fail(MEMRA_ERROR_INVALID_ARGUMENT)
           << name << " is " << caller << ": must be aligned to " << kind.alignment << " bytes";
  }
  uint32_t struct_size = 0;
  std::memcpy(&struct_size, caller, sizeof(struct_size));
  MEMRA_TRY(check_struct_size(struct_size, kind, name));
  const auto* bytes = static_cast<const unsigned char*>(caller);
  for (std::size_t i = kind.size; i < struct_size; ++i) {
    if (bytes[i] != 0) {
      return fail(MEMRA_ERROR_UNSUPPORTED)
             << name << ".struct_size is " << struct_size << " and byte " << i
             << " is set: this library knows " << kind.size << " bytes, the rest must be zero";
    }
  }
  return MEMRA_OK;
}

Status init_struct(void* caller, uint32_t struct_size, const StructKind& kind, const char* name) {
  return guarded([&]() -> Status {
    if (caller == nullptr) {
      return fail(MEMRA_ERROR_INVALID_ARGUMENT) << name << " is NULL: must point to a struct";
    }
    MEMRA_TRY(check_struct_size(struct_size, kind, name));
    std::memset(caller, 0, struct_size);
    std::memcpy(caller, &struct_size, sizeof(struct_size));
    return MEMRA_OK;
  });
}

}  // namespace memra

extern "C" {

memra_status memra_engine_options_init(memra_engine_options* options, uint32_t struct_size) {
  return memra::init_struct(options, struct_size, memra::kStructKind<memra_engine_options>,
                            "options");
}

memra_status memra_repack_args_init(memra_repack_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_repack_args>, "args");
}

memra_status memra_import_args_init(memra_import_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_import_args>, "args");
}

memra_status memra_quantize_args_init(memra_quantize_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_quantize_args>, "args");
}

memra_status memra_dequantize_args_init(memra_dequantize_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_dequantize_args>, "args");
}

memra_status memra_bank_init(memra_bank* bank, uint32_t struct_size) {
  return memra::init_struct(bank, struct_size, memra::kStructKind<memra_bank>, "bank");
}

memra_status memra_moe_layer_desc_init(memra_moe_layer_desc* desc, uint32_t struct_size) {
  return memra::init_struct(desc, struct_size, memra::kStructKind<memra_moe_layer_desc>, "desc");
}

memra_status memra_moe_layer_properties_init(memra_moe_layer_properties* properties,
                                             uint32_t struct_size) {
  return memra::init_struct(properties, struct_size, memra::kStructKind<memra_moe_layer_properties>,
                            "properties");
}

memra_status memra_moe_args_init(memra_moe_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_moe_args>, "args");
}

memra_status memra_q8_1_args_init(memra_q8_1_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_q8_1_args>, "args");
}

memra_status memra_rows_gate_up_args_init(memra_rows_gate_up_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_rows_gate_up_args>, "args");
}

memra_status memra_rows_down_args_init(memra_rows_down_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_rows_down_args>, "args");
}

memra_status memra_rows_probe_args_init(memra_rows_probe_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_rows_probe_args>, "args");
}

memra_status memra_moe_topk_args_init(memra_moe_topk_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_moe_topk_args>, "args");
}

memra_status memra_moe_route_args_init(memra_moe_route_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_moe_route_args>, "args");
}

memra_status memra_moe_gather_f16_args_init(memra_moe_gather_f16_args* args, uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_moe_gather_f16_args>,
                            "args");
}

memra_status memra_moe_grouped_gemm_args_init(memra_moe_grouped_gemm_args* args,
                                              uint32_t struct_size) {
  return memra::init_struct(args, struct_size, memra::kStructKind<memra_moe_grouped_gemm_args>,
                            "args");
}

}  // extern "C"
