// What the fields of routing and of the grouped path's stages mean together, and what a backend
// that has none of it answers.

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "api_entries.h"
#include "engine.h"
#include "memra.h"

namespace memra::api_test {
namespace {

class ApiGrouped : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(world.ok()) << memra_last_error(); }

  // Refused, with every word in the text.
  static void expect_refused(memra_status status, std::initializer_list<const char*> words) {
    EXPECT_EQ(status, MEMRA_ERROR_INVALID_ARGUMENT);
    const std::string text = memra_last_error();
    for (const char* word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in: " << text;
  }
  memra_status topk(const memra_moe_topk_args& args) {
    return world.finish(memra_moe_topk(world.engine, &args, nullptr));
  }
  memra_status route(const memra_moe_route_args& args) {
    return world.finish(memra_moe_route(world.engine, &args, nullptr));
  }
  memra_status gather(const memra_moe_gather_f16_args& args) {
    return world.finish(memra_moe_gather_f16(world.engine, &args, nullptr));
  }
  memra_status gemm(const memra_moe_grouped_gemm_args& args) {
    return world.finish(memra_moe_grouped_gemm(world.engine, &args, nullptr));
  }

  World world;
};

TEST_F(ApiGrouped, GroupsOfExperts) {
  memra_moe_topk_args args = world.topk_args();
  args.n_groups = 3;
  expect_refused(topk(args), {"n_groups is 3", "n_experts", "8"});
  args.n_groups = 8;
  args.group_score = MEMRA_GROUP_SCORE_TOP2_SUM;
  expect_refused(topk(args), {"group_score", "one expert"});
  args.group_score = MEMRA_GROUP_SCORE_MAX;
  EXPECT_EQ(topk(args), MEMRA_OK);
  args.top_k_groups = 1;
  expect_refused(topk(args), {"top_k is 2", "1 to 1"});
  args.n_groups = 0;
  expect_refused(topk(args), {"top_k_groups is 1", "0 to 0"});
  args.top_k_groups = 0;
  EXPECT_EQ(topk(args), MEMRA_OK) << memra_last_error();
  args.top_k = 9;
  expect_refused(topk(args), {"top_k is 9", "1 to 8"});
}

TEST_F(ApiGrouped, StagesOfTheProbe) {
  memra_moe_args args = world.moe_args();
  ASSERT_EQ(world.finish(memra_moe_grouped(world.layer, &args, nullptr)), MEMRA_OK);
  world.y.poison();
  for (const uint32_t wrong : {0u, 32u, 33u, ~0u}) {
    expect_refused(world.finish(memra_moe_grouped_probe(world.layer, &args, wrong, nullptr)),
                   {"stages is", "1 to 31"});
  }
  EXPECT_TRUE(world.y.poisoned());
  for (uint32_t right = 1; right <= MEMRA_GROUPED_ALL; ++right) {
    EXPECT_EQ(world.finish(memra_moe_grouped_probe(world.layer, &args, right, nullptr)), MEMRA_OK)
        << right << ": " << memra_last_error();
  }
  args.tokens = 0;
  EXPECT_EQ(memra_moe_grouped_probe(world.layer, &args, MEMRA_GROUPED_DOWN, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_moe_grouped_probe(nullptr, &args, MEMRA_GROUPED_ALL, nullptr),
            MEMRA_ERROR_INVALID_ARGUMENT);
}

TEST_F(ApiGrouped, ScalingFactors) {
  memra_moe_topk_args args = world.topk_args();
  for (const float wrong : {std::numeric_limits<float>::infinity(), -HUGE_VALF,
                            std::numeric_limits<float>::quiet_NaN()}) {
    args.scaling_factor = wrong;
    expect_refused(topk(args), {"scaling_factor is", "finite"});
  }
  for (const float right : {0.0f, 1.0f, 2.5f, -1.0f}) {
    args.scaling_factor = right;
    EXPECT_EQ(topk(args), MEMRA_OK) << memra_last_error();
  }
}

TEST_F(ApiGrouped, PairsThatFitNoInt32) {
  memra_moe_route_args args = world.route_args();
  args.tokens = MEMRA_GROUPED_MAX_PAIRS / args.top_k + 1;
  expect_refused(route(args), {"tokens is 1073741824", "1073741823"});
  uint64_t bytes = 77;
  EXPECT_EQ(memra_moe_route_workspace_size(world.engine, args.tokens, 2, 4, &bytes),
            MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, 77u);
  memra_moe_layer_desc desc = world.layer_desc();
  desc.max_tokens = std::numeric_limits<int64_t>::max();
  memra_moe_layer* layer = nullptr;
  ASSERT_EQ(memra_moe_layer_create(world.engine, &desc, &layer), MEMRA_OK);
  memra_moe_layer_properties info;
  ASSERT_EQ(memra_moe_layer_properties_init(&info, sizeof(info)), MEMRA_OK);
  ASSERT_EQ(memra_moe_layer_info(layer, &info), MEMRA_OK);
  EXPECT_EQ(info.grouped_max_tokens, 1073741823);
  memra_moe_args moe = world.moe_args();
  moe.tokens = args.tokens;
  moe.path = MEMRA_PATH_GROUPED;
  for (const auto entry : {memra_moe_grouped, memra_moe})
    expect_refused(entry(layer, &moe, nullptr), {"tokens is 1073741824", "1073741823"});
  memra_moe_layer_destroy(layer);
}

TEST_F(ApiGrouped, RouteWorkspace) {
  memra_moe_route_args args = world.route_args();
  uint64_t last = 0;
  for (const int64_t tokens : {0, 1, 3, 100, 5000}) {
    uint64_t bytes = 0;
    ASSERT_EQ(memra_moe_route_workspace_size(world.engine, tokens, 2, 4, &bytes), MEMRA_OK);
    EXPECT_EQ(bytes == 0, tokens == 0);
    EXPECT_GE(bytes, last);
    last = bytes;
  }
  ASSERT_EQ(
      memra_moe_route_workspace_size(world.engine, kTokens, kTopK, kExperts, &args.workspace_bytes),
      MEMRA_OK);
  EXPECT_EQ(route(args), MEMRA_OK) << memra_last_error();
  --args.workspace_bytes;
  world.order_out.poison();
  EXPECT_EQ(route(args), MEMRA_ERROR_WORKSPACE_TOO_SMALL);
  EXPECT_TRUE(world.order_out.poisoned());
  for (const int64_t wrong : {int64_t{-1}, int64_t{0}, int64_t{MEMRA_MAX_DIMENSION} + 1}) {
    EXPECT_EQ(memra_moe_route_workspace_size(world.engine, 1, 1, wrong, &last),
              MEMRA_ERROR_INVALID_ARGUMENT);
  }
}

TEST_F(ApiGrouped, GemmWorkspace) {
  memra_moe_grouped_gemm_args args = world.gemm_args();
  uint64_t last = 0;
  for (const int64_t rows : {0, 1, 3, 100, 5000}) {
    uint64_t bytes = 0;
    ASSERT_EQ(memra_moe_grouped_gemm_workspace_size(world.engine, rows, 4, &bytes), MEMRA_OK);
    EXPECT_GE(bytes, last);
    last = bytes;
  }
  ASSERT_EQ(
      memra_moe_grouped_gemm_workspace_size(world.engine, kPairs, kExperts, &args.workspace_bytes),
      MEMRA_OK);
  EXPECT_EQ(gemm(args), MEMRA_OK) << memra_last_error();
  if (args.workspace_bytes == 0) {
    args.workspace = nullptr;
    EXPECT_EQ(gemm(args), MEMRA_OK) << memra_last_error();
  } else {
    --args.workspace_bytes;
    world.act.poison();
    EXPECT_EQ(gemm(args), MEMRA_ERROR_WORKSPACE_TOO_SMALL);
    EXPECT_TRUE(world.act.poisoned());
  }
  for (const int64_t wrong : {int64_t{-1}, int64_t{0}, int64_t{MEMRA_MAX_DIMENSION} + 1}) {
    EXPECT_EQ(memra_moe_grouped_gemm_workspace_size(world.engine, 1, wrong, &last),
              MEMRA_ERROR_INVALID_ARGUMENT);
  }
}

TEST_F(ApiGrouped, Overlaps) {
  memra_moe_topk_args topk_args = world.topk_args();
  topk_args.topk_weights = reinterpret_cast<float*>(topk_args.topk_ids) + kPairs - 1;
  expect_refused(topk(topk_args), {"topk_weights is", "topk_ids"});
  memra_moe_route_args route_args = world.route_args();
  route_args.inverse = route_args.pair_order + kPairs - 1;
  expect_refused(route(route_args), {"inverse is", "pair_order"});
  route_args = world.route_args();
  route_args.offsets = const_cast<int32_t*>(route_args.topk_ids);
  expect_refused(route(route_args), {"offsets is", "topk_ids"});
  route_args = world.route_args();
  route_args.pair_order = static_cast<int32_t*>(route_args.workspace);
  expect_refused(route(route_args), {"pair_order is", "workspace"});
  memra_moe_gather_f16_args gather_args = world.gather_args();
  gather_args.zs = static_cast<float*>(gather_args.z) + kPairs * kHidden / 2 - 1;
  expect_refused(gather(gather_args), {"zs is", "z"});
  gather_args = world.gather_args();
  gather_args.z = const_cast<void*>(gather_args.x);
  expect_refused(gather(gather_args), {"z is", "x"});
  memra_moe_grouped_gemm_args gemm_args = world.gemm_args();
  gemm_args.out = static_cast<float*>(const_cast<void*>(gemm_args.z));
  expect_refused(gemm(gemm_args), {"out is", "z"});
}

// Pairs are an index; rows alone need none.
TEST_F(ApiGrouped, GatherWithoutAnIndex) {
  memra_moe_gather_f16_args args = world.gather_args();
  args.index = nullptr;
  expect_refused(gather(args), {"index is NULL", "top_k of 2"});
  args.top_k = 0;
  EXPECT_EQ(gather(args), MEMRA_OK) << memra_last_error();
}

// ---- A backend without any of it ----

class Bare final : public Backend {
 public:
  memra_backend kind() const override { return MEMRA_BACKEND_CUDA; }
  int32_t device() const override { return 0; }
  void describe(memra_engine_properties&) const override {}
  void shutdown() override {}
  Status alloc(uint64_t bytes, void** ptr) override {
    *ptr = ::operator new(bytes);
    return MEMRA_OK;
  }
  Status free(void* ptr) override {
    ::operator delete(ptr);
    return MEMRA_OK;
  }
  Status alloc_async(uint64_t, memra_stream, void**) override { return called(); }
  Status free_async(void*, memra_stream) override { return called(); }
  Status alloc_host(uint64_t, void**) override { return called(); }
  Status free_host(void*) override { return called(); }
  Status memcpy_async(void*, const void*, uint64_t, memra_stream) override { return called(); }
  Status memset_async(void*, int32_t, uint64_t, memra_stream) override { return called(); }
  Status memcpy_from(Backend&, void*, const void*, uint64_t, memra_stream) override {
    return called();
  }
  Status upload(void* dst, const void* src, uint64_t bytes) override {
    std::memcpy(dst, src, bytes);
    return MEMRA_OK;
  }
  Status stream_create(memra_stream*) override { return called(); }
  Status stream_destroy(memra_stream) override { return called(); }
  Status stream_query(memra_stream) override { return called(); }
  Status stream_synchronize(memra_stream) override { return called(); }
  Status event_create(std::unique_ptr<Event>*) override { return called(); }
  Status stream_wait_event(memra_stream, Event&) override { return called(); }
  Status graph_begin(memra_stream) override { return called(); }
  Status graph_end(memra_stream, std::unique_ptr<Graph>*) override { return called(); }
  Status repack_v2(const memra_repack_args&, memra_stream) override { return called(); }
  Status import_nvfp4(const memra_import_args&, memra_stream) override { return called(); }
  Status quantize_nvfp4(const memra_quantize_args&, memra_stream) override { return called(); }
  Status dequantize(const memra_dequantize_args&, memra_stream) override { return called(); }
  RowsChoice choose_rows(const RowsShape&, int64_t) const override { return {}; }
  const char* gate_up_kernel_name(const RowsShape&, uint32_t) const override { return "gate_up"; }
  const char* down_kernel_name(const RowsShape&, uint32_t) const override { return "down"; }
  Status prepare_pairs(const PreparePairsArgs&, const Launch&) override { return MEMRA_OK; }
  Status quantize_q8(const QuantizeQ8Args&, const Launch&) override { return MEMRA_OK; }
  Status q8_to_lane_major(const int8_t*, int64_t, int64_t, int8_t*, memra_stream) override {
    return called();
  }
  Status rows_gate_up(const memra_rows_gate_up_args&, const Launch&) override { return MEMRA_OK; }
  Status rows_down(const memra_rows_down_args&, const Launch&) override {
    ++rows_calls;
    return MEMRA_OK;
  }
  Status rows_probe_gate_up(memra_probe_arm, const memra_rows_gate_up_args&,
                            const Launch&) override {
    return called();
  }
  Status rows_probe_down(memra_probe_arm, const memra_rows_down_args&, const Launch&) override {
    return called();
  }

  int rows_calls = 0;

 private:
  static Status called() { return MEMRA_ERROR_INTERNAL; }
};

TEST(ApiBareBackend, AnswersUnsupportedByName) {
  World world;
  ASSERT_TRUE(world.ok());
  const auto bare = std::make_shared<Bare>();
  auto state = std::make_shared<EngineState>();
  state->backend = bare;
  state->pid = getpid();
  memra_engine engine{state};
  const auto expect_unsupported = [](memra_status status, const char* entry) {
    EXPECT_EQ(status, MEMRA_ERROR_UNSUPPORTED);
    // Inline functions of the interface leave their text with the copy of the error state of
    // whoever holds the backend's vtable: here this program.
    const std::string expected = std::string("the CUDA backend of this version has no ") + entry;
    const bool found = std::string(memra_last_error()).find(expected) != std::string::npos ||
                       std::string(last_error()).find(expected) != std::string::npos;
    EXPECT_TRUE(found) << memra_last_error() << "; " << last_error();
  };
  const memra_moe_topk_args topk = world.topk_args();
  expect_unsupported(memra_moe_topk(&engine, &topk, nullptr), "memra_moe_topk");
  const memra_moe_route_args route = world.route_args();
  expect_unsupported(memra_moe_route(&engine, &route, nullptr), "memra_moe_route");
  uint64_t bytes = 77;
  expect_unsupported(memra_moe_route_workspace_size(&engine, 1, 1, 1, &bytes), "memra_moe_route");
  const memra_moe_gather_f16_args gather = world.gather_args();
  expect_unsupported(memra_moe_gather_f16(&engine, &gather, nullptr), "memra_moe_gather_f16");
  const memra_moe_grouped_gemm_args gemm = world.gemm_args();
  expect_unsupported(memra_moe_grouped_gemm(&engine, &gemm, nullptr), "memra_moe_grouped_gemm");
  expect_unsupported(memra_moe_grouped_gemm_workspace_size(&engine, 1, 1, &bytes),
                     "memra_moe_grouped_gemm");

  const memra_moe_layer_desc desc = world.layer_desc();
  memra_moe_layer* layer = nullptr;
  ASSERT_EQ(memra_moe_layer_create(&engine, &desc, &layer), MEMRA_OK) << memra_last_error();
  memra_moe_args args = world.moe_args();
  expect_unsupported(memra_moe_grouped(layer, &args, nullptr), "memra_moe_grouped");
  expect_unsupported(memra_moe_grouped_probe(layer, &args, MEMRA_GROUPED_DOWN, nullptr),
                     "memra_moe_grouped");
  expect_unsupported(memra_moe_grouped_workspace_size(layer, 1, &bytes), "memra_moe_grouped");
  EXPECT_EQ(bytes, 77u);
  args.path = MEMRA_PATH_GROUPED;
  expect_unsupported(memra_moe(layer, &args, nullptr), "memra_moe_grouped");
  // There the layer has one path.
  args.path = MEMRA_PATH_AUTO;
  EXPECT_EQ(bare->rows_calls, 0);
  EXPECT_EQ(memra_moe(layer, &args, nullptr), MEMRA_OK) << memra_last_error();
  EXPECT_EQ(bare->rows_calls, 1);
  memra_moe_layer_properties info;
  ASSERT_EQ(memra_moe_layer_properties_init(&info, sizeof(info)), MEMRA_OK);
  ASSERT_EQ(memra_moe_layer_info(layer, &info), MEMRA_OK);
  EXPECT_EQ(info.grouped_determinism, 0);
  EXPECT_EQ(info.grouped_max_tokens, 0);
  EXPECT_EQ(info.grouped_min_tokens, 0);
  uint64_t rows = 0;
  ASSERT_EQ(memra_moe_workspace_size(layer, 2, &bytes), MEMRA_OK);
  ASSERT_EQ(memra_moe_rows_workspace_size(layer, 2, &rows), MEMRA_OK);
  EXPECT_EQ(bytes, rows);
  memra_moe_layer_destroy(layer);
}

}  // namespace
}  // namespace memra::api_test
