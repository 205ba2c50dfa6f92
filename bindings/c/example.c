/* One MoE layer from C99, with nothing but memra.h and libmemra:
 *
 *   example [cpu | cuda]      (nothing: a GPU if there is a usable one, else the CPU)
 *
 * creates an engine, quantises three banks of random weights to NVFP4, runs the layer on a few
 * tokens, by the rows path, which is for decode, and by the grouped path, which is for prefill, and
 * compares the answers with a plain computation in double. Exit status 0 if they agree.
 */
#include <math.h>
#include <memra.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 256, INTERMEDIATE = 128, EXPERTS = 4, TOP_K = 2, TOKENS = 3 };
enum { GATE = 0, UP = 1, DOWN = 2, PLANES = 3 };
enum { PLANE_SIZE = HIDDEN * INTERMEDIATE }; /* values of one expert's matrix, any plane */

/* Both sides see the same 4-bit weights, so what is left is the rounding of activations: to int8 in
 * the rows path, to f16 in the grouped path. */
static const double kRowsTolerance = 0.02;
static const double kGroupedTolerance = 1e-3;

#define CHECK(call)                                                                        \
  do {                                                                                     \
    memra_status status_ = (call);                                                         \
    if (status_ != MEMRA_OK) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, memra_status_string(status_), \
              memra_last_error());                                                         \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

static uint32_t random_state = 1;

/* Uniform in [-scale, scale). */
static float random_float(float scale) {
  random_state = random_state * 1664525u + 1013904223u;
  return scale * ((float)(random_state >> 8) / 8388608.0f - 1.0f);
}

static void* host_alloc(size_t bytes) {
  void* p = malloc(bytes);
  if (p == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  return p;
}

static void* device_alloc(memra_engine* engine, size_t bytes) {
  void* p = NULL;
  CHECK(memra_alloc(engine, bytes, &p));
  return p;
}

static void* to_device(memra_engine* engine, const void* host, size_t bytes, memra_stream stream) {
  void* p = device_alloc(engine, bytes);
  CHECK(memra_memcpy(engine, p, host, bytes, stream));
  CHECK(memra_stream_synchronize(engine, stream));
  return p;
}

static void to_host(memra_engine* engine, void* host, const void* device, size_t bytes,
                    memra_stream stream) {
  CHECK(memra_memcpy(engine, host, device, bytes, stream));
  CHECK(memra_stream_synchronize(engine, stream));
}

/* A bank on the device, its scales on the host, and what its values decode to. */
struct plane {
  void* slabs;
  float scales[EXPERTS];
  float* decoded; /* [EXPERTS, rows, columns] */
};

static void make_plane(memra_engine* engine, int64_t rows, int64_t columns, struct plane* plane,
                       memra_stream stream) {
  const size_t bytes = sizeof(float) * EXPERTS * PLANE_SIZE;
  uint64_t bank_bytes = 0;
  void *weights, *scales, *decoded;
  memra_quantize_args quantize = MEMRA_QUANTIZE_ARGS_INIT;
  memra_dequantize_args dequantize = MEMRA_DEQUANTIZE_ARGS_INIT;
  int i;

  plane->decoded = host_alloc(bytes);
  for (i = 0; i < EXPERTS * PLANE_SIZE; ++i) {
    plane->decoded[i] = random_float(sqrtf(3.0f / (float)columns)); /* dot products of order 1 */
  }
  weights = to_device(engine, plane->decoded, bytes, stream);
  scales = device_alloc(engine, sizeof plane->scales);
  decoded = device_alloc(engine, bytes);
  CHECK(memra_bank_bytes(MEMRA_NVFP4_V2, rows, columns, EXPERTS, NULL, &bank_bytes));
  plane->slabs = device_alloc(engine, bank_bytes);

  quantize.format = MEMRA_NVFP4_V2;
  quantize.rows = rows;
  quantize.columns = columns;
  quantize.n_experts = EXPERTS;
  quantize.src = weights;
  quantize.src_dtype = MEMRA_F32;
  quantize.compute_expert_scale = 1;
  quantize.dst = plane->slabs;
  quantize.expert_scales = scales;
  CHECK(memra_quantize_nvfp4(engine, &quantize, stream));

  dequantize.format = MEMRA_NVFP4_V2;
  dequantize.rows = rows;
  dequantize.columns = columns;
  dequantize.n_experts = EXPERTS;
  dequantize.src = plane->slabs;
  dequantize.expert_scales = scales;
  dequantize.dst = decoded;
  dequantize.dst_dtype = MEMRA_F32;
  CHECK(memra_dequantize(engine, &dequantize, stream));

  to_host(engine, plane->scales, scales, sizeof plane->scales, stream);
  to_host(engine, plane->decoded, decoded, bytes, stream);
  CHECK(memra_free(engine, weights));
  CHECK(memra_free(engine, scales));
  CHECK(memra_free(engine, decoded));
}

static double dot(const float* row, const double* x, int columns) {
  double sum = 0;
  int i;
  for (i = 0; i < columns; ++i)
    sum += (double)row[i] * x[i];
  return sum;
}

/* y = sum over slots of weight * down(silu(gate(x)) * up(x)), for one token. */
static void expected_token(const struct plane* planes, const float* x, const int32_t* ids,
                           const float* weights, double* y) {
  double wide_x[HIDDEN], middle[INTERMEDIATE];
  int slot, i;
  for (i = 0; i < HIDDEN; ++i)
    wide_x[i] = x[i];
  for (i = 0; i < HIDDEN; ++i)
    y[i] = 0;
  for (slot = 0; slot < TOP_K; ++slot) {
    const size_t slab = (size_t)ids[slot] * PLANE_SIZE;
    for (i = 0; i < INTERMEDIATE; ++i) {
      const double g = dot(planes[GATE].decoded + slab + (size_t)i * HIDDEN, wide_x, HIDDEN);
      const double u = dot(planes[UP].decoded + slab + (size_t)i * HIDDEN, wide_x, HIDDEN);
      middle[i] = g / (1 + exp(-g)) * u;
    }
    for (i = 0; i < HIDDEN; ++i) {
      const float* row = planes[DOWN].decoded + slab + (size_t)i * INTERMEDIATE;
      y[i] += (double)weights[slot] * dot(row, middle, INTERMEDIATE);
    }
  }
}

/* 1 if y is what the layer should give for x, with the error that the path may have. */
static int check(const char* path, const struct plane* planes, const float* x, const int32_t* ids,
                 const float* weights, const float* y, double tolerance) {
  double error = 0, size = 0, relative;
  int token, i;
  for (token = 0; token < TOKENS; ++token) {
    double expected[HIDDEN];
    expected_token(planes, x + token * HIDDEN, ids + token * TOP_K, weights + token * TOP_K,
                   expected);
    for (i = 0; i < HIDDEN; ++i) {
      const double difference = (double)y[token * HIDDEN + i] - expected[i];
      error += difference * difference;
      size += expected[i] * expected[i];
    }
  }
  relative = sqrt(error / size);
  printf("%s: relative error %.2e over %d outputs, allowed %.2e\n", path, relative, TOKENS * HIDDEN,
         tolerance);
  /* Written so that a NaN fails, and so does an answer of nothing. */
  return relative <= tolerance && size > 0;
}

static memra_bank bank_of(const struct plane* plane) {
  memra_bank bank = MEMRA_BANK_INIT;
  bank.format = MEMRA_NVFP4_V2;
  bank.base = plane->slabs;
  bank.expert_scales = plane->scales;
  return bank;
}

int main(int argc, char** argv) {
  static const int32_t ids[TOKENS * TOP_K] = {0, 3, 2, 1, 3, 2};
  static const float weights[TOKENS * TOP_K] = {0.75f, 0.25f, 0.5f, 0.5f, 0.625f, 0.375f};
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  memra_engine_properties properties = MEMRA_ENGINE_PROPERTIES_INIT;
  memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
  memra_moe_layer_properties layer_properties;
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  memra_engine* engine = NULL;
  memra_moe_layer* layer = NULL;
  memra_stream stream = NULL;
  struct plane planes[PLANES];
  memra_bank gate, up, down;
  float x[TOKENS * HIDDEN], y[TOKENS * HIDDEN];
  void *device_x, *device_ids, *device_weights;
  uint64_t workspace_bytes = 0;
  int i, right;

  if (argc > 1 && strcmp(argv[1], "cpu") == 0) {
    options.backend = MEMRA_BACKEND_CPU;
  } else if (argc > 1 && strcmp(argv[1], "cuda") == 0) {
    options.backend = MEMRA_BACKEND_CUDA;
  } else if (argc > 1) {
    fprintf(stderr, "usage: %s [cpu | cuda]\n", argv[0]);
    return 2;
  }
  CHECK(memra_engine_create(&options, &engine));
  CHECK(memra_engine_info(engine, &properties));
  printf("memra %u.%u.%u on %s\n", memra_version() / 10000, memra_version() / 100 % 100,
         memra_version() % 100, properties.device_name);
  CHECK(memra_stream_create(engine, &stream));

  make_plane(engine, INTERMEDIATE, HIDDEN, &planes[GATE], stream);
  make_plane(engine, INTERMEDIATE, HIDDEN, &planes[UP], stream);
  make_plane(engine, HIDDEN, INTERMEDIATE, &planes[DOWN], stream);
  gate = bank_of(&planes[GATE]);
  up = bank_of(&planes[UP]);
  down = bank_of(&planes[DOWN]);

  desc.activation = MEMRA_SWIGLU;
  desc.hidden_size = HIDDEN;
  desc.intermediate_size = INTERMEDIATE;
  desc.n_experts = EXPERTS;
  desc.top_k = TOP_K;
  desc.max_tokens = TOKENS;
  desc.gate = &gate;
  desc.up = &up;
  desc.down = &down;
  CHECK(memra_moe_layer_create(engine, &desc, &layer));
  CHECK(memra_moe_workspace_size(layer, TOKENS, &workspace_bytes));

  for (i = 0; i < TOKENS * HIDDEN; ++i)
    x[i] = random_float(1.7f);
  device_x = to_device(engine, x, sizeof x, stream);
  device_ids = to_device(engine, ids, sizeof ids, stream);
  device_weights = to_device(engine, weights, sizeof weights, stream);
  args.tokens = TOKENS;
  args.x = device_x;
  args.x_dtype = MEMRA_F32;
  args.y = device_alloc(engine, sizeof y);
  args.y_dtype = MEMRA_F32;
  args.topk_ids = device_ids;
  args.topk_weights = device_weights;
  args.workspace = device_alloc(engine, workspace_bytes);
  args.workspace_bytes = workspace_bytes;
  CHECK(memra_moe_rows(layer, &args, stream));
  to_host(engine, y, args.y, sizeof y, stream);

  right = check("rows", planes, x, ids, weights, y, kRowsTolerance);

  /* memra_moe chooses the path by the number of tokens; so few it would give to rows. */
  CHECK(memra_moe_layer_properties_init(&layer_properties, sizeof layer_properties));
  CHECK(memra_moe_layer_info(layer, &layer_properties));
  if (layer_properties.grouped_max_tokens >= TOKENS) {
    args.path = MEMRA_PATH_GROUPED;
    CHECK(memra_moe(layer, &args, stream));
    to_host(engine, y, args.y, sizeof y, stream);
    right &= check("grouped", planes, x, ids, weights, y, kGroupedTolerance);
  } else {
    printf("grouped: not on this backend\n");
  }

  CHECK(memra_free(engine, args.workspace));
  CHECK(memra_free(engine, args.y));
  CHECK(memra_free(engine, device_weights));
  CHECK(memra_free(engine, device_ids));
  CHECK(memra_free(engine, device_x));
  memra_moe_layer_destroy(layer);
  for (i = 0; i < PLANES; ++i) {
    CHECK(memra_free(engine, planes[i].slabs));
    free(planes[i].decoded);
  }
  CHECK(memra_stream_destroy(engine, stream));
  memra_engine_destroy(engine);

  printf(right ? "right\n" : "WRONG\n");
  return !right;
}
