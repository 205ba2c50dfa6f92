// Structs of other versions: struct_size, init functions, unknown tails.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "api_entries.h"
#include "memra.h"

namespace memra::api_test {
namespace {

std::vector<unsigned char> with_size(const std::vector<unsigned char>& valid, uint32_t size,
                                     std::size_t room, unsigned char tail) {
  std::vector<unsigned char> bytes(valid);
  bytes.resize(std::max(room, valid.size()), tail);
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes;
}

TEST(ApiStructs, SizesOfEveryArgumentStruct) {
  World world;
  ASSERT_TRUE(world.ok()) << memra_last_error();
  for (const Entry& entry : all_entries(world)) {
    SCOPED_TRACE(entry.name);
    const auto size = static_cast<uint32_t>(entry.valid.size());
    const auto call = [&](uint32_t struct_size, unsigned char tail) {
      const auto bytes = with_size(entry.valid, struct_size, size + 64, tail);
      return entry.call(bytes.data());
    };
    EXPECT_EQ(call(size, 0xAA), MEMRA_OK) << memra_last_error();
    EXPECT_EQ(call(size + 8, 0), MEMRA_OK) << memra_last_error();
    EXPECT_EQ(call(size + 64, 0), MEMRA_OK) << memra_last_error();
    const auto needed = static_cast<uint32_t>(entry.needed);
    EXPECT_EQ(call(needed, 0), MEMRA_OK) << memra_last_error();

    EXPECT_EQ(call(size + 8, 1), MEMRA_ERROR_UNSUPPORTED);
    EXPECT_NE(std::string(memra_last_error()).find("struct_size"), std::string::npos);
    EXPECT_EQ(call(UINT32_MAX, 0), MEMRA_ERROR_UNSUPPORTED);
    for (const uint32_t wrong : {0u, 1u, 4u, needed - 1, size - 1}) {
      EXPECT_EQ(call(wrong, 0), MEMRA_ERROR_INVALID_ARGUMENT) << wrong;
      EXPECT_NE(std::string(memra_last_error()).find("struct_size is " + std::to_string(wrong)),
                std::string::npos)
          << memra_last_error();
    }
    const bool optional = entry.name == "memra_engine_create";
    EXPECT_EQ(entry.call(nullptr), optional ? MEMRA_OK : MEMRA_ERROR_INVALID_ARGUMENT);
  }
}

// The fields that an older caller lacks count as zero, whatever lies there.
TEST(ApiStructs, MissingFieldsCountAsZero) {
  World world;
  ASSERT_TRUE(world.ok());
  memra_moe_args args = world.moe_args();
  args.struct_size = offsetof(memra_moe_args, variant);
  args.variant = 0xFFFFFFFFu;
  args.path = -1;
  EXPECT_EQ(world.finish(memra_moe_rows(world.layer, &args, nullptr)), MEMRA_OK)
      << memra_last_error();
}

template <typename Struct>
void check_init(memra_status (*init)(Struct*, uint32_t), const char* name) {
  SCOPED_TRACE(name);
  constexpr std::size_t kTail = 32;
  alignas(16) unsigned char bytes[sizeof(Struct) + 2 * kTail];
  auto* object = reinterpret_cast<Struct*>(bytes);
  for (const std::size_t size : {sizeof(Struct), sizeof(Struct) + kTail}) {
    std::memset(bytes, 0xFF, sizeof(bytes));
    ASSERT_EQ(init(object, static_cast<uint32_t>(size)), MEMRA_OK) << memra_last_error();
    EXPECT_EQ(object->struct_size, size);
    for (std::size_t i = sizeof(uint32_t); i < size; ++i)
      ASSERT_EQ(bytes[i], 0) << i;
    for (std::size_t i = size; i < sizeof(bytes); ++i)
      ASSERT_EQ(bytes[i], 0xFF) << i;
  }
  std::memset(bytes, 0xFF, sizeof(bytes));
  EXPECT_EQ(init(object, 0), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(init(object, 4), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(init(object, UINT32_MAX), MEMRA_ERROR_UNSUPPORTED);
  for (const unsigned char byte : bytes)
    ASSERT_EQ(byte, 0xFF);
  EXPECT_EQ(init(nullptr, sizeof(Struct)), MEMRA_ERROR_INVALID_ARGUMENT);
}

TEST(ApiStructs, InitFunctions) {
  check_init(memra_engine_options_init, "engine_options");
  check_init(memra_repack_args_init, "repack_args");
  check_init(memra_import_args_init, "import_args");
  check_init(memra_quantize_args_init, "quantize_args");
  check_init(memra_dequantize_args_init, "dequantize_args");
  check_init(memra_bank_init, "bank");
  check_init(memra_moe_layer_desc_init, "moe_layer_desc");
  check_init(memra_moe_layer_properties_init, "moe_layer_properties");
  check_init(memra_moe_args_init, "moe_args");
  check_init(memra_q8_1_args_init, "q8_1_args");
  check_init(memra_rows_gate_up_args_init, "rows_gate_up_args");
  check_init(memra_rows_down_args_init, "rows_down_args");
  check_init(memra_rows_probe_args_init, "rows_probe_args");
  check_init(memra_moe_topk_args_init, "moe_topk_args");
  check_init(memra_moe_route_args_init, "moe_route_args");
  check_init(memra_moe_gather_f16_args_init, "moe_gather_f16_args");
  check_init(memra_moe_grouped_gemm_args_init, "moe_grouped_gemm_args");
}

// Structs that the library fills: no byte beyond the caller's struct_size is written.
template <typename Struct, typename Call>
void check_filled(const char* name, Call&& call) {
  SCOPED_TRACE(name);
  alignas(16) unsigned char bytes[sizeof(Struct) + 64];
  auto* object = reinterpret_cast<Struct*>(bytes);
  const auto with = [&](std::size_t size, unsigned char tail) {
    std::memset(bytes, tail, sizeof(bytes));
    std::memset(bytes, 0xFF, sizeof(Struct));
    object->struct_size = static_cast<uint32_t>(size);
    return call(object);
  };
  ASSERT_EQ(with(sizeof(Struct), 0xFF), MEMRA_OK) << memra_last_error();
  EXPECT_EQ(object->struct_size, sizeof(Struct));
  for (std::size_t i = sizeof(Struct); i < sizeof(bytes); ++i)
    ASSERT_EQ(bytes[i], 0xFF) << i;
  std::vector<unsigned char> whole(bytes, bytes + sizeof(Struct));

  for (std::size_t size = 8; size < sizeof(Struct); size += 8) {
    ASSERT_EQ(with(size, 0xFF), MEMRA_OK) << size << ": " << memra_last_error();
    ASSERT_EQ(std::memcmp(bytes + 4, whole.data() + 4, size - 4), 0) << size;
    for (std::size_t i = size; i < sizeof(bytes); ++i)
      ASSERT_EQ(bytes[i], 0xFF) << size;
  }
  ASSERT_EQ(with(sizeof(Struct) + 64, 0), MEMRA_OK);
  EXPECT_EQ(object->struct_size, sizeof(Struct) + 64);
  EXPECT_EQ(std::memcmp(bytes + 4, whole.data() + 4, sizeof(Struct) - 4), 0);
  EXPECT_EQ(with(sizeof(Struct) + 64, 0xFF), MEMRA_ERROR_UNSUPPORTED);
  for (const std::size_t size : {0, 4, 7}) {
    EXPECT_EQ(with(size, 0xFF), MEMRA_ERROR_INVALID_ARGUMENT) << size;
    for (std::size_t i = 4; i < sizeof(bytes); ++i)
      ASSERT_EQ(bytes[i], 0xFF) << size;
  }
  EXPECT_EQ(call(nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
}

TEST(ApiStructs, FilledStructs) {
  World world;
  ASSERT_TRUE(world.ok());
  check_filled<memra_build_properties>("build", memra_build_info);
  check_filled<memra_engine_properties>(
      "engine", [&](memra_engine_properties* p) { return memra_engine_info(world.engine, p); });
  check_filled<memra_moe_layer_properties>(
      "layer", [&](memra_moe_layer_properties* p) { return memra_moe_layer_info(world.layer, p); });
}

// The macros of the header and the init functions agree.
TEST(ApiStructs, InitialisersAgree) {
  const memra_moe_args macro = MEMRA_MOE_ARGS_INIT;
  memra_moe_args function;
  ASSERT_EQ(memra_moe_args_init(&function, sizeof(function)), MEMRA_OK);
  EXPECT_EQ(std::memcmp(&macro, &function, sizeof(macro)), 0);
}

// The ABI of the first release. A struct may grow at its end; these numbers never change.
TEST(ApiStructs, LayoutOfTheFirstRelease) {
  EXPECT_EQ(offsetof(memra_engine_options, log_user), 40u);
  EXPECT_EQ(offsetof(memra_moe_args, path), 116u);
  EXPECT_EQ(offsetof(memra_moe_layer_desc, down), 88u);
  EXPECT_EQ(offsetof(memra_bank, bias), 40u);
  EXPECT_EQ(offsetof(memra_rows_gate_up_args, out), 112u);
  EXPECT_EQ(offsetof(memra_rows_down_args, y_stride), 112u);
  EXPECT_EQ(offsetof(memra_moe_topk_args, scaling_factor), 100u);
  EXPECT_EQ(offsetof(memra_moe_route_args, workspace_bytes), 120u);
  EXPECT_EQ(offsetof(memra_moe_gather_f16_args, row_count), 80u);
  EXPECT_EQ(offsetof(memra_moe_grouped_gemm_args, workspace_bytes), 128u);
  EXPECT_EQ(offsetof(memra_moe_layer_properties, grouped_min_tokens), 1512u);
}

}  // namespace
}  // namespace memra::api_test
