// Wrong arguments: a status, a text that names the argument, and outputs left alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "api_entries.h"
#include "memra.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace memra::api_test {
namespace {

bool names(const Field& field) {
  return std::string(memra_last_error()).find(field.name) != std::string::npos;
}

void poison(const Entry& entry) {
  for (Memory* output : entry.outputs)
    output->poison();
}

void expect_untouched(const Entry& entry) {
  for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
    EXPECT_TRUE(entry.outputs[i]->poisoned()) << "output " << i << " was written";
  }
}

class ApiArguments : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world.ok()) << memra_last_error();
    entries = all_entries(world);
  }
  World world;
  std::vector<Entry> entries;
};

TEST_F(ApiArguments, ValidCallsAreValid) {
  for (const Entry& entry : entries) {
    EXPECT_EQ(entry.call(entry.valid.data()), MEMRA_OK) << entry.name << ": " << memra_last_error();
  }
}

TEST_F(ApiArguments, EachWrongValueIsNamed) {
  for (const Entry& entry : entries) {
    poison(entry);
    for (const Field& field : entry.fields) {
      std::vector<int64_t> wrong = field.wrong;
      if (field.type == FieldType::kPointer && !field.optional) wrong.push_back(0);
      for (const int64_t value : wrong) {
        SCOPED_TRACE(entry.name + ", " + field.name + " = " + std::to_string(value));
        std::vector<unsigned char> bytes = entry.valid;
        field.put(bytes, value);
        EXPECT_EQ(entry.call(bytes.data()), field.status);
        EXPECT_TRUE(names(field)) << memra_last_error();
      }
    }
    SCOPED_TRACE(entry.name);
    expect_untouched(entry);
  }
}

TEST_F(ApiArguments, EachRightValueIsTaken) {
  for (const Entry& entry : entries) {
    for (const Field& field : entry.fields) {
      std::vector<int64_t> right = field.right;
      if (field.type == FieldType::kPointer && field.optional) right.push_back(0);
      for (const int64_t value : right) {
        SCOPED_TRACE(entry.name + ", " + field.name + " = " + std::to_string(value));
        std::vector<unsigned char> bytes = entry.valid;
        field.put(bytes, value);
        EXPECT_EQ(entry.call(bytes.data()), MEMRA_OK) << memra_last_error();
      }
    }
  }
}

TEST_F(ApiArguments, EachPointerOffByTwoFourEight) {
  for (const Entry& entry : entries) {
    for (const Field& field : entry.fields) {
      if (field.type != FieldType::kPointer) continue;
      for (const int64_t shift : {2, 4, 8}) {
        SCOPED_TRACE(entry.name + ", " + field.name + " off by " + std::to_string(shift));
        const bool legal = static_cast<std::size_t>(shift) % field.alignment == 0;
        if (legal && field.to_struct) continue;
        std::vector<unsigned char> bytes = entry.valid;
        field.put(bytes, field.get(entry.valid) + shift);
        poison(entry);
        EXPECT_EQ(entry.call(bytes.data()), legal ? MEMRA_OK : MEMRA_ERROR_INVALID_ARGUMENT)
            << memra_last_error();
        if (legal) continue;
        EXPECT_TRUE(names(field)) << memra_last_error();
        expect_untouched(entry);
      }
    }
  }
}

// Zero tokens and zero rows are no work, whatever the pointers; negative ones are errors.
TEST_F(ApiArguments, NoWork) {
  memra_moe_args moe = MEMRA_MOE_ARGS_INIT;
  EXPECT_EQ(memra_moe_rows(world.layer, &moe, nullptr), MEMRA_OK);
  moe.struct_size = 0;
  EXPECT_EQ(memra_moe_rows(world.layer, &moe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  moe = MEMRA_MOE_ARGS_INIT;
  EXPECT_EQ(memra_moe_grouped(world.layer, &moe, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_moe(world.layer, &moe, nullptr), MEMRA_OK);
  moe.tokens = -1;
  EXPECT_EQ(memra_moe_grouped(world.layer, &moe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(memra_moe(world.layer, &moe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  memra_moe_topk_args topk = MEMRA_MOE_TOPK_ARGS_INIT;
  EXPECT_EQ(memra_moe_topk(world.engine, &topk, nullptr), MEMRA_OK);
  memra_moe_route_args route = MEMRA_MOE_ROUTE_ARGS_INIT;
  EXPECT_EQ(memra_moe_route(world.engine, &route, nullptr), MEMRA_OK);
  memra_moe_gather_f16_args gather = MEMRA_MOE_GATHER_F16_ARGS_INIT;
  EXPECT_EQ(memra_moe_gather_f16(world.engine, &gather, nullptr), MEMRA_OK);
  memra_moe_grouped_gemm_args gemm = MEMRA_MOE_GROUPED_GEMM_ARGS_INIT;
  EXPECT_EQ(memra_moe_grouped_gemm(world.engine, &gemm, nullptr), MEMRA_OK);
  memra_q8_1_args q8 = MEMRA_Q8_1_ARGS_INIT;
  EXPECT_EQ(memra_quantize_q8_1(world.engine, &q8, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_quantize_q8_1(nullptr, &q8, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  memra_rows_gate_up_args gate_up = MEMRA_ROWS_GATE_UP_ARGS_INIT;
  EXPECT_EQ(memra_moe_rows_gate_up(world.engine, &gate_up, nullptr), MEMRA_OK);
  memra_rows_down_args down = MEMRA_ROWS_DOWN_ARGS_INIT;
  EXPECT_EQ(memra_moe_rows_down(world.engine, &down, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_q8_to_lane_major(world.engine, nullptr, 0, 64, nullptr, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_q8_to_lane_major(world.engine, nullptr, -1, 64, nullptr, nullptr),
            MEMRA_ERROR_INVALID_ARGUMENT);
  memra_rows_probe_args probe = MEMRA_ROWS_PROBE_ARGS_INIT;
  probe.arm = MEMRA_PROBE_STREAM;
  probe.down = &down;
  EXPECT_EQ(memra_moe_rows_probe(world.engine, &probe, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_memcpy(world.engine, nullptr, nullptr, 0, nullptr), MEMRA_OK);
  EXPECT_EQ(memra_memset(world.engine, nullptr, 0, 0, nullptr), MEMRA_OK);
}

TEST_F(ApiArguments, ProbeTakesExactlyOneStage) {
  const memra_rows_gate_up_args gate_up = world.gate_up_args();
  const memra_rows_down_args down = world.down_args();
  memra_rows_probe_args probe = MEMRA_ROWS_PROBE_ARGS_INIT;
  probe.arm = MEMRA_PROBE_LOADONLY;
  EXPECT_EQ(memra_moe_rows_probe(world.engine, &probe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  probe.gate_up = &gate_up;
  probe.down = &down;
  EXPECT_EQ(memra_moe_rows_probe(world.engine, &probe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  probe.down = nullptr;
  for (const memra_probe_arm arm : {-1, 0, 4}) {
    probe.arm = arm;
    EXPECT_EQ(memra_moe_rows_probe(world.engine, &probe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(memra_last_error()).find("arm is"), std::string::npos);
  }
}

TEST_F(ApiArguments, NullHandles) {
  const auto expect = [](memra_status status, const char* name) {
    EXPECT_EQ(status, MEMRA_ERROR_INVALID_ARGUMENT) << name;
    const std::string text = memra_last_error();
    EXPECT_NE(text.find(std::string(name) + " is NULL"), std::string::npos) << text;
  };
  void* memory = nullptr;
  memra_stream stream = nullptr;
  memra_event* event = nullptr;
  memra_graph* graph = nullptr;
  memra_moe_layer* layer = nullptr;
  memra_engine_properties engine_info = MEMRA_ENGINE_PROPERTIES_INIT;
  uint64_t bytes = 77;
  float time = 77.0f;
  expect(memra_engine_create(nullptr, nullptr), "engine");
  expect(memra_engine_info(nullptr, &engine_info), "engine");
  expect(memra_alloc(nullptr, 8, &memory), "engine");
  expect(memra_alloc(world.engine, 8, nullptr), "ptr");
  expect(memra_free(nullptr, nullptr), "engine");
  expect(memra_alloc_async(world.engine, 8, nullptr, nullptr), "ptr");
  expect(memra_free_async(nullptr, nullptr, nullptr), "engine");
  expect(memra_alloc_host(world.engine, 8, nullptr), "ptr");
  expect(memra_memcpy(nullptr, nullptr, nullptr, 0, nullptr), "engine");
  expect(memra_memcpy(world.engine, nullptr, world.x.as(), 8, nullptr), "dst");
  expect(memra_memcpy(world.engine, world.y.as(), nullptr, 8, nullptr), "src");
  expect(memra_memset(world.engine, nullptr, 0, 8, nullptr), "dst");
  expect(memra_memcpy_engines(nullptr, nullptr, world.engine, nullptr, 0, nullptr), "dst_engine");
  expect(memra_memcpy_engines(world.engine, nullptr, nullptr, nullptr, 0, nullptr), "src_engine");
  expect(memra_stream_create(nullptr, &stream), "engine");
  expect(memra_stream_create(world.engine, nullptr), "stream");
  expect(memra_stream_destroy(world.engine, nullptr), "stream");
  expect(memra_stream_synchronize(nullptr, nullptr), "engine");
  expect(memra_event_create(world.engine, nullptr), "event");
  expect(memra_event_create(nullptr, &event), "engine");
  expect(memra_event_record(nullptr, nullptr), "event");
  expect(memra_event_wait(world.engine, nullptr, nullptr), "event");
  expect(memra_event_query(nullptr), "event");
  expect(memra_event_synchronize(nullptr), "event");
  expect(memra_event_elapsed(nullptr, nullptr, &time), "start");
  expect(memra_graph_begin(world.engine, nullptr), "stream");
  expect(memra_graph_end(nullptr, nullptr, &graph), "engine");
  expect(memra_graph_end(world.engine, nullptr, nullptr), "graph");
  expect(memra_graph_launch(nullptr, nullptr), "graph");
  expect(memra_moe_layer_create(nullptr, nullptr, &layer), "engine");
  expect(memra_moe_layer_create(world.engine, nullptr, &layer), "desc");
  expect(memra_moe_layer_create(world.engine, nullptr, nullptr), "layer");
  expect(memra_moe_layer_info(nullptr, nullptr), "layer");
  expect(memra_moe_workspace_size(nullptr, 1, &bytes), "layer");
  expect(memra_moe_workspace_size(world.layer, 1, nullptr), "bytes");
  expect(memra_moe_rows_workspace_size(nullptr, 1, &bytes), "layer");
  expect(memra_moe_grouped_workspace_size(nullptr, 1, &bytes), "layer");
  expect(memra_moe_grouped_workspace_size(world.layer, 1, nullptr), "bytes");
  expect(memra_moe_route_workspace_size(nullptr, 1, 1, 1, &bytes), "engine");
  expect(memra_moe_route_workspace_size(world.engine, 1, 1, 1, nullptr), "bytes");
  expect(memra_moe_rows(nullptr, nullptr, nullptr), "layer");
  expect(memra_moe_grouped(nullptr, nullptr, nullptr), "layer");
  expect(memra_moe(nullptr, nullptr, nullptr), "layer");
  expect(memra_moe_topk(nullptr, nullptr, nullptr), "engine");
  expect(memra_moe_route(nullptr, nullptr, nullptr), "engine");
  expect(memra_moe_gather_f16(nullptr, nullptr, nullptr), "engine");
  expect(memra_moe_grouped_gemm(nullptr, nullptr, nullptr), "engine");
  expect(memra_moe_grouped_gemm_workspace_size(nullptr, 1, 1, &bytes), "engine");
  expect(memra_moe_grouped_gemm_workspace_size(world.engine, 1, 1, nullptr), "bytes");
  expect(memra_repack_v2_workspace_size(8, 64, nullptr), "bytes");
  EXPECT_EQ(bytes, 77u);
  EXPECT_EQ(time, 77.0f);
  memra_engine_destroy(nullptr);
  memra_moe_layer_destroy(nullptr);
  memra_event_destroy(nullptr);
  memra_graph_destroy(nullptr);
}

TEST_F(ApiArguments, Overlaps) {
  memra_moe_args moe = world.moe_args();
  moe.x = moe.y;
  EXPECT_EQ(memra_moe_rows(world.layer, &moe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(memra_last_error()).find("y is"), std::string::npos);
  // The last 16 bytes of x.
  moe.x = world.y.as<char>() - (kTokens * kHidden * 4 - 16);
  EXPECT_EQ(memra_moe_rows(world.layer, &moe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);

  memra_repack_args repack = world.repack_args();
  repack.dst = const_cast<char*>(static_cast<const char*>(repack.src)) + 16;
  EXPECT_EQ(memra_repack_v2(world.engine, &repack, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  repack = world.in_place_args();
  repack.n_experts = 2;
  repack.dst_stride = kSlabBytes + 16;
  EXPECT_EQ(memra_repack_v2(world.engine, &repack, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(memra_last_error()).find("dst_stride"), std::string::npos);

  int8_t* q = world.q.as<int8_t>();
  EXPECT_EQ(memra_q8_to_lane_major(world.engine, q, 2, 64, q, nullptr),
            MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(memra_q8_to_lane_major(world.engine, q, 2, 64, q + 112, nullptr),
            MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(world.finish(memra_q8_to_lane_major(world.engine, q, 2, 64, q + 128, nullptr)),
            MEMRA_OK);
  EXPECT_EQ(memra_memcpy(world.engine, q, q + 1, 2, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(memra_memcpy(world.engine, q, q + 1, UINT64_MAX, nullptr),
            MEMRA_ERROR_INVALID_ARGUMENT);
}

// x and y as the two halves of wider rows share no byte.
TEST_F(ApiArguments, InterleavedRowsDoNotOverlap) {
  Memory both(kTokens * 2 * kHidden * sizeof(float), 0);
  memra_moe_args moe = world.moe_args();
  moe.x = both.as<float>();
  moe.y = both.as<float>() + kHidden;
  moe.x_stride = moe.y_stride = 2 * kHidden;
  EXPECT_EQ(world.finish(memra_moe_rows(world.layer, &moe, nullptr)), MEMRA_OK)
      << memra_last_error();
  moe.y = both.as<float>() + kHidden - 4;
  EXPECT_EQ(memra_moe_rows(world.layer, &moe, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
}

TEST_F(ApiArguments, OrderedVariantsNeedAnOrder) {
  memra_rows_gate_up_args args = world.gate_up_args();
  args.order = nullptr;
  for (const uint32_t variant : {MEMRA_ROWS_ORD, MEMRA_ROWS_DEDUP_ORDER}) {
    args.variant = variant;
    EXPECT_EQ(memra_moe_rows_gate_up(world.engine, &args, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(memra_last_error()).find("order is NULL"), std::string::npos);
  }
  args.variant = MEMRA_ROWS_AUTO;
  EXPECT_EQ(world.finish(memra_moe_rows_gate_up(world.engine, &args, nullptr)), MEMRA_OK);
}

TEST_F(ApiArguments, DownBiasNeedsRouterWeights) {
  memra_rows_down_args args = world.down_args();
  args.topk_weights = nullptr;
  EXPECT_EQ(memra_moe_rows_down(world.engine, &args, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
  args.bias = nullptr;
  EXPECT_EQ(world.finish(memra_moe_rows_down(world.engine, &args, nullptr)), MEMRA_OK);
}

TEST_F(ApiArguments, GlobalScales) {
  memra_import_args args = world.import_args();
  float scales[kExperts] = {1.0f, 0.25f, 3.0f, 1e-40f};
  args.global_scales = scales;
  poison(import_entry(world));
  const auto expect_refused = [&] {
    EXPECT_EQ(memra_import_nvfp4(world.engine, &args, nullptr), MEMRA_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(memra_last_error()).find("global_scales[3]"), std::string::npos)
        << memra_last_error();
    expect_untouched(import_entry(world));
  };
  for (const float wrong : {0.0f, -0.0f, -1.0f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    scales[3] = wrong;
    for (const auto kind : {MEMRA_GLOBAL_SCALE_DIRECT, MEMRA_GLOBAL_SCALE_RECIPROCAL}) {
      args.global_scale = kind;
      expect_refused();
    }
  }
  // Its reciprocal is Inf.
  scales[3] = 1e-40f;
  args.global_scale = MEMRA_GLOBAL_SCALE_RECIPROCAL;
  expect_refused();
  args.global_scale = MEMRA_GLOBAL_SCALE_DIRECT;
  EXPECT_EQ(world.finish(memra_import_nvfp4(world.engine, &args, nullptr)), MEMRA_OK);
  for (int64_t e = 0; e < kExperts; ++e)
    EXPECT_EQ(world.scales_out.as<float>()[e], scales[e]);

  scales[3] = std::numeric_limits<float>::max();
  args.global_scale = MEMRA_GLOBAL_SCALE_RECIPROCAL;
  EXPECT_EQ(world.finish(memra_import_nvfp4(world.engine, &args, nullptr)), MEMRA_OK);
  const float* result = world.scales_out.as<float>();
  EXPECT_EQ(result[0], 1.0f);
  EXPECT_EQ(result[1], 4.0f);
  EXPECT_EQ(result[2], 1.0f / 3.0f);
  EXPECT_GT(result[3], 0.0f);
}

#if defined(__x86_64__)
// A host may flush subnormals in its threads; the reciprocal does not, and the mode stays the
// host's.
TEST_F(ApiArguments, ReciprocalUnderFlushToZero) {
  float scales[kExperts];
  std::fill_n(scales, kExperts, std::numeric_limits<float>::max());
  memra_import_args args = world.import_args();
  args.global_scales = scales;
  args.global_scale = MEMRA_GLOBAL_SCALE_RECIPROCAL;
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040u;
  _mm_setcsr(flushing);
  const memra_status status = memra_import_nvfp4(world.engine, &args, nullptr);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & 0x8040u, 0x8040u);
  ASSERT_EQ(world.finish(status), MEMRA_OK) << memra_last_error();
  EXPECT_EQ(world.scales_out.as<uint32_t>()[0], 0x00200000u);
}
#endif

TEST_F(ApiArguments, BankBytes) {
  uint64_t stride = 0;
  uint64_t bytes = 0;
  for (const memra_format format : {MEMRA_NVFP4, MEMRA_NVFP4_V2}) {
    ASSERT_EQ(memra_bank_bytes(format, 8, 64, 3, &stride, &bytes), MEMRA_OK);
    EXPECT_EQ(stride, 288u);
    EXPECT_EQ(bytes, 864u);
    // 131072 x 16384 codes lie beyond 2^31.
    ASSERT_EQ(memra_bank_bytes(format, 131072, 16384, 2, &stride, nullptr), MEMRA_OK);
    EXPECT_EQ(stride, uint64_t{131072} * 16384 * 9 / 16);
    ASSERT_EQ(memra_bank_bytes(format, MEMRA_MAX_DIMENSION, MEMRA_MAX_DIMENSION,
                               MEMRA_MAX_DIMENSION, &stride, &bytes),
              MEMRA_OK);
    EXPECT_EQ(bytes / stride, uint64_t{MEMRA_MAX_DIMENSION});
  }
  stride = bytes = 7;
  EXPECT_EQ(memra_bank_bytes(MEMRA_NVFP4, 8, 0, 1, &stride, &bytes), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(memra_bank_bytes(MEMRA_NVFP4, 9, 64, 1, &stride, &bytes), MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(memra_bank_bytes(MEMRA_NVFP4, 8, 64, -1, &stride, &bytes),
            MEMRA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(stride, 7u);
  EXPECT_EQ(bytes, 7u);
  EXPECT_EQ(memra_bank_bytes(MEMRA_NVFP4, 8, 64, 0, &stride, &bytes), MEMRA_OK);
  EXPECT_EQ(stride, 288u);
  EXPECT_EQ(bytes, 0u);
}

}  // namespace
}  // namespace memra::api_test
