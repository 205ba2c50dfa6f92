// What layer creation refuses and accepts, and what a layer says of itself.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "api_entries.h"
#include "memra.h"

namespace memra::api_test {
namespace {

class ApiLayer : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world.ok()) << memra_last_error();
    desc = world.layer_desc();
    poison = reinterpret_cast<memra_moe_layer*>(&world);
  }
  void expect_refused(std::initializer_list<const char*> texts) {
    memra_moe_layer* layer = poison;
    EXPECT_EQ(memra_moe_layer_create(world.engine, &desc, &layer), MEMRA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(layer, nullptr);
    const std::string message = memra_last_error();
    for (const char* text : texts) {
      EXPECT_NE(message.find(text), std::string::npos) << "'" << text << "' in: " << message;
    }
  }
  void expect_accepted() {
    memra_moe_layer* layer = poison;
    EXPECT_EQ(memra_moe_layer_create(world.engine, &desc, &layer), MEMRA_OK) << memra_last_error();
    memra_moe_layer_destroy(layer);
  }
  // Nothing but shapes: calls would bring the slabs.
  void without_slabs() {
    for (memra_bank* bank : {&world.gate, &world.up, &world.down}) {
      *bank = MEMRA_BANK_INIT;
      bank->format = MEMRA_NVFP4;
    }
  }

  World world;
  memra_moe_layer_desc desc;
  memra_moe_layer* poison = nullptr;
};

// Cuts of real models that fall inside a block, with what would be legal.
TEST_F(ApiLayer, RefusesCutsByName) {
  without_slabs();
  struct Cut {
    int64_t size;
    const char* below;
    const char* above;
  };
  for (const Cut& cut :
       {Cut{232, "192", "256"}, Cut{80, "64", "128"}, Cut{96, "64", "128"}, Cut{160, "128", "192"},
        Cut{352, "320", "384"}, Cut{1856 / 8, "192", "256"}, Cut{32, "64", "64"}}) {
    desc.intermediate_size = cut.size;
    const std::string value = "intermediate_size is " + std::to_string(cut.size);
    expect_refused({value.c_str(), "multiple of 64", cut.below, cut.above});
    desc.intermediate_size = kIntermediate;
    desc.hidden_size = cut.size;
    const std::string hidden = "hidden_size is " + std::to_string(cut.size);
    expect_refused({hidden.c_str(), "multiple of 64", cut.below, cut.above});
    desc.hidden_size = kHidden;
  }
}

TEST_F(ApiLayer, AcceptsMultiplesOf64) {
  without_slabs();
  for (const int64_t size :
       {64, 128, 320, 384, 640, 704, 1408, 1856, 2688, 2880, 16384, 131072, MEMRA_MAX_DIMENSION}) {
    desc.hidden_size = 2688;
    desc.intermediate_size = size;
    expect_accepted();
  }
}

TEST_F(ApiLayer, RefusesEmptyAndHugeDimensions) {
  for (const int64_t size : {int64_t{0}, int64_t{-64}, int64_t{MEMRA_MAX_DIMENSION} + 64,
                             std::numeric_limits<int64_t>::min()}) {
    desc.hidden_size = size;
    expect_refused({"hidden_size is", "legal is 64 to 1048576"});
  }
}

TEST_F(ApiLayer, LocalExperts) {
  desc.n_experts = 8;
  desc.local_expert_offset = 6;
  desc.n_local_experts = 4;
  expect_refused({"n_local_experts is 4", "0 to 2"});
  desc.local_expert_offset = 4;
  expect_accepted();
  desc.n_local_experts = 0;
  expect_accepted();
  desc.local_expert_offset = 8;
  expect_refused({"local_expert_offset is 8", "0 to 7"});
}

TEST_F(ApiLayer, Activations) {
  for (const memra_activation clamped :
       {MEMRA_SWIGLU_PRECLAMP, MEMRA_SWIGLU_POSTCLAMP, MEMRA_SWIGLU_OAI}) {
    desc.activation = clamped;
    for (const float wrong : {0.0f, -7.0f, std::numeric_limits<float>::quiet_NaN()}) {
      desc.limit = wrong;
      expect_refused({"limit is"});
    }
    desc.limit = 7.0f;
    desc.alpha = 1.702f;
    expect_accepted();
  }
  desc.alpha = std::numeric_limits<float>::infinity();
  expect_refused({"alpha is inf"});
  // Not read here.
  desc.activation = MEMRA_SWIGLU;
  desc.limit = -1.0f;
  expect_accepted();
}

TEST_F(ApiLayer, ScalesMustBeFinite) {
  float scales[kExperts] = {0.0f, -2.0f, 1e-40f, 1e30f};
  world.down.expert_scales = scales;
  expect_accepted();
  scales[2] = std::numeric_limits<float>::quiet_NaN();
  expect_refused({"down.expert_scales[2] is nan", "finite"});
  scales[2] = -std::numeric_limits<float>::infinity();
  expect_refused({"down.expert_scales[2] is -inf"});
}

TEST_F(ApiLayer, Banks) {
  const void* slabs[kExperts] = {world.slabs.as(), nullptr, world.slabs.as(), world.slabs.as()};
  world.gate.ptrs = slabs;
  expect_refused({"gate.ptrs", "not both"});
  world.gate.base = nullptr;
  expect_accepted();
  slabs[3] = world.slabs.as<char>() + 2;
  expect_refused({"gate.ptrs[3]", "aligned to 4"});
  slabs[3] = world.slabs.as<char>() + 4;
  expect_accepted();
  world.gate.format = MEMRA_NVFP4_V2;
  expect_refused({"gate.ptrs[3]", "aligned to 16"});
  world.up.format = 8;
  slabs[3] = nullptr;
  expect_refused({"up.format is 8", "MEMRA_NVFP4"});
  desc.down = nullptr;
  world.up.format = MEMRA_NVFP4_V2;
  expect_refused({"down is NULL"});
}

TEST_F(ApiLayer, AbsentSlabsMustComeWithTheCall) {
  world.down.base = nullptr;
  memra_moe_layer* layer = nullptr;
  ASSERT_EQ(memra_moe_layer_create(world.engine, &desc, &layer), MEMRA_OK) << memra_last_error();
  memra_moe_args args = world.moe_args();
  args.expert_ptrs = nullptr;
  EXPECT_EQ(memra_moe_rows(layer, &args, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(memra_last_error()).find("expert_ptrs is NULL"), std::string::npos);
  args = world.moe_args();
  EXPECT_EQ(world.finish(memra_moe_rows(layer, &args, nullptr)), MEMRA_OK) << memra_last_error();
  memra_moe_layer_destroy(layer);
}

TEST_F(ApiLayer, WorkspaceQueryIsMonotone) {
  desc.max_tokens = std::numeric_limits<int64_t>::max();
  memra_moe_layer* layer = nullptr;
  ASSERT_EQ(memra_moe_layer_create(world.engine, &desc, &layer), MEMRA_OK);
  uint64_t last = 0;
  for (int64_t tokens = 0; tokens <= MEMRA_ROWS_MAX_TOKENS + 100; ++tokens) {
    uint64_t bytes = 0;
    ASSERT_EQ(memra_moe_workspace_size(layer, tokens, &bytes), MEMRA_OK);
    ASSERT_GE(bytes, last) << tokens;
    ASSERT_EQ(tokens == 0, bytes == 0) << tokens;
    last = bytes;
  }
  uint64_t bytes = 0;
  ASSERT_EQ(memra_moe_workspace_size(layer, desc.max_tokens, &bytes), MEMRA_OK);
  EXPECT_GE(bytes, last);
  EXPECT_EQ(memra_moe_workspace_size(layer, -1, &bytes), MEMRA_ERROR_INVALID_ARGUMENT);
  memra_moe_layer_destroy(layer);
  bytes = 77;
  EXPECT_EQ(memra_moe_workspace_size(world.layer, kMaxTokens + 1, &bytes),
            MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(memra_last_error()).find("tokens is 9: legal is 0 to 8"),
            std::string::npos);
  EXPECT_EQ(bytes, 77u);
}

TEST_F(ApiLayer, WorkspaceOneByteShort) {
  for (int64_t tokens = 1; tokens <= kMaxTokens; ++tokens) {
    memra_moe_args args = world.moe_args();
    Memory x(kMaxTokens * kHidden * sizeof(float), 0);
    Memory y(kMaxTokens * kHidden * sizeof(float), Memory::kPoison);
    args.x = x.as();
    args.y = y.as();
    args.tokens = tokens;
    ASSERT_EQ(memra_moe_workspace_size(world.layer, tokens, &args.workspace_bytes), MEMRA_OK);
    args.workspace_bytes -= 1;
    EXPECT_EQ(memra_moe_rows(world.layer, &args, nullptr), MEMRA_ERROR_WORKSPACE_TOO_SMALL);
    EXPECT_NE(std::string(memra_last_error()).find("workspace_bytes"), std::string::npos);
    EXPECT_TRUE(y.poisoned());
    args.workspace_bytes += 1;
    EXPECT_EQ(world.finish(memra_moe_rows(world.layer, &args, nullptr)), MEMRA_OK);
  }
}

TEST_F(ApiLayer, InfoListsExactlyTheVariantsThatRun) {
  for (const memra_format format : {MEMRA_NVFP4, MEMRA_NVFP4_V2}) {
    SCOPED_TRACE(format);
    World other(format);
    ASSERT_TRUE(other.ok()) << memra_last_error();
    memra_moe_layer_properties info;
    ASSERT_EQ(memra_moe_layer_properties_init(&info, sizeof(info)), MEMRA_OK);
    ASSERT_EQ(memra_moe_layer_info(other.layer, &info), MEMRA_OK);
    EXPECT_EQ(info.n_rows_variants, format == MEMRA_NVFP4 ? 12 : 18);
    int accepted = 0;
    for (uint32_t variant = 1; variant < 256; ++variant) {
      memra_moe_args args = other.moe_args();
      args.variant = variant;
      uint32_t* end = info.rows_variants + info.n_rows_variants;
      const bool listed = std::count(info.rows_variants, end, variant) != 0;
      const memra_status status = other.finish(memra_moe_rows(other.layer, &args, nullptr));
      EXPECT_EQ(status, listed ? MEMRA_OK : MEMRA_ERROR_INVALID_ARGUMENT) << variant;
      accepted += status == MEMRA_OK ? 1 : 0;
    }
    EXPECT_EQ(accepted, info.n_rows_variants);
  }
}

// One plane in the old format rules lane-major out for the layer.
TEST_F(ApiLayer, MixedFormats) {
  world.gate.format = MEMRA_NVFP4_V2;
  world.up.format = MEMRA_NVFP4_V2;
  memra_moe_layer* layer = nullptr;
  ASSERT_EQ(memra_moe_layer_create(world.engine, &desc, &layer), MEMRA_OK) << memra_last_error();
  memra_moe_args args = world.moe_args();
  args.variant = MEMRA_ROWS_LANE_MAJOR;
  EXPECT_EQ(memra_moe_rows(layer, &args, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(memra_last_error()).find("MEMRA_NVFP4_V2"), std::string::npos);
  args.variant = MEMRA_ROWS_AUTO;
  EXPECT_EQ(world.finish(memra_moe_rows(layer, &args, nullptr)), MEMRA_OK) << memra_last_error();
  memra_moe_layer_destroy(layer);
}

TEST_F(ApiLayer, PlansCoverEveryTokenCount) {
  desc.max_tokens = 5000;
  memra_moe_layer* layer = nullptr;
  ASSERT_EQ(memra_moe_layer_create(world.engine, &desc, &layer), MEMRA_OK);
  memra_moe_layer_properties info;
  ASSERT_EQ(memra_moe_layer_properties_init(&info, sizeof(info)), MEMRA_OK);
  ASSERT_EQ(memra_moe_layer_info(layer, &info), MEMRA_OK);
  EXPECT_EQ(info.rows_determinism, MEMRA_DETERMINISM_EXACT);
  EXPECT_EQ(info.rows_max_tokens, MEMRA_ROWS_MAX_TOKENS);
  ASSERT_GE(info.n_rows_plans, 1);
  ASSERT_LE(info.n_rows_plans, 8);
  int64_t next = 1;
  for (int i = 0; i < info.n_rows_plans; ++i) {
    const memra_rows_plan& plan = info.rows_plans[i];
    EXPECT_EQ(plan.tokens_min, next);
    EXPECT_GE(plan.tokens_max, plan.tokens_min);
    next = plan.tokens_max + 1;
    EXPECT_NE(plan.gate_up_variant, static_cast<uint32_t>(MEMRA_ROWS_AUTO));
    EXPECT_NE(plan.down_variant, static_cast<uint32_t>(MEMRA_ROWS_AUTO));
    EXPECT_STRNE(plan.gate_up_kernel, "");
    EXPECT_STRNE(plan.down_kernel, "");
  }
  if (info.n_rows_plans < 8) {
    EXPECT_EQ(next, MEMRA_ROWS_MAX_TOKENS + 1);
  }
  memra_moe_layer_destroy(layer);
}

}  // namespace
}  // namespace memra::api_test
