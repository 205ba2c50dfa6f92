/* memra: NVFP4 Mixture-of-Experts layers for LLM inference servers.
 *
 * This header is the whole ABI and its manual. It is C99 and needs no CUDA header.
 *
 * Words. hidden_size, intermediate_size, n_experts, top_k, tokens, topk_ids and topk_weights mean
 * what they mean in every MoE model. A *pair* is (token, slot): pair p = token * top_k + slot, and
 * n_pairs = tokens * top_k. A *plane* is one of the three matrices of an expert: gate and up, both
 * [intermediate_size, hidden_size], and down, [hidden_size, intermediate_size]. A *slab* is one
 * expert's matrix of one plane, a *bank* all slabs of a plane. *Rows* is the path for few tokens
 * (decode, speculative verification): int8 activations, exact integer dot products. *Grouped* is the
 * path for many (prefill): f16 activations, pairs sorted by expert, f32 sums.
 *
 * Rules that hold for every entry, and are not repeated below:
 *
 *  - Status. Every call that can fail returns memra_status. After a failure memra_last_error() of
 *    the same thread names the argument, its value and what would be legal. Wrong arguments
 *    enqueue nothing and write nothing; outputs of the call keep their contents, except that a handle
 *    to be created becomes NULL. The library never prints, aborts, exits or throws.
 *  - Data is not an argument. Expert ids, weights, scales and table entries live in device memory
 *    and are read when the work runs; a bad id is a skipped pair, not an error.
 *  - Streams. `stream` is a cudaStream_t passed as void*, or a stream of memra_stream_create.
 *    NULL is CUDA's default stream of the engine's device (on the CPU: the engine's own default
 *    stream). Calls enqueue work and return; they do not synchronise and do not allocate. On the
 *    CPU backend a stream is an in-order queue with a worker of its own, and the same holds.
 *    Buffers must stay valid until the work has run; structs, and host arrays that a struct points
 *    to, are copied before the call returns.
 *  - Capture. Every entry that takes a stream may be recorded into a CUDA graph (any capture mode,
 *    the first call on a new engine included) unless it says otherwise; replays see the contents
 *    that the same buffers hold then.
 *  - Threads. An engine and a layer are immutable after creation: any number of threads may use
 *    them at once, on any streams. A workspace, and any output, belongs to one call at a time.
 *  - Devices. CUDA work runs in the device's primary context, pushed and popped inside the call:
 *    the caller's current device and its pending CUDA errors are left as they are.
 *  - Memory. "Device memory" is memory that the engine's backend can read: CUDA device or pinned
 *    host memory on a CUDA engine, any memory on a CPU engine. Alignments are in bytes.
 *  - Sizes are int64_t, in elements unless they say bytes. Strides of 0 mean densely packed.
 *    Zero tokens (or zero rows) return MEMRA_OK at once, whatever the pointers.
 *  - Structs begin with struct_size, set by the MEMRA_*_INIT macro or the *_init function. They
 *    grow only at the end: a smaller struct_size is an older caller, and missing fields count as
 *    zero (down to the last field without which the call means nothing; less is an error); a larger
 *    one is accepted if the part unknown to this library is zero, and is MEMRA_ERROR_UNSUPPORTED
 *    otherwise. So a struct that the library fills must be zero beyond struct_size too, as the macro
 *    and the *_init function leave it. Fields named reserved must be zero.
 *  - fork. An engine does not survive a fork: calls in the child return MEMRA_ERROR_FORKED.
 *  - Determinism of the rows path is MEMRA_DETERMINISM_EXACT: the same token gives the same bits
 *    on the CPU and on every GPU, in either weight format, in every variant, alone or in any batch.
 *    (Bits are per shape of bank: a tensor-parallel partial sum rounds otherwise than the whole.)
 *    That of the grouped path is MEMRA_DETERMINISM_BATCH_INVARIANT: the same token gives the same
 *    bits in every run, alone or in any batch, on one kind of device and build of the library.
 *    Against f64 its relative L2 error is at most 5e-4 a GEMM and 1e-3 a layer. Bits of the two
 *    paths differ: a server that needs the same ones at any number of tokens pins the path.
 *
 * Stability: everything here is stable within version 0.x of the SONAME libmemra.so.0, except what
 * is marked EXPERIMENTAL. "Since" gives the version that brought an entry; all is since 0.1.0 where
 * nothing is said.
 */
#ifndef MEMRA_H
#define MEMRA_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define MEMRA_API
#elif defined(__GNUC__)
#define MEMRA_API __attribute__((visibility("default")))
#else
#define MEMRA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Version and errors
 * ------------------------------------------------------------------------------------------- */

#define MEMRA_VERSION_MAJOR 0
#define MEMRA_VERSION_MINOR 1
#define MEMRA_VERSION_PATCH 0
/* Comparable: 10000 * major + 100 * minor + patch. */
#define MEMRA_VERSION \
  (MEMRA_VERSION_MAJOR * 10000 + MEMRA_VERSION_MINOR * 100 + MEMRA_VERSION_PATCH)

/* Result of a call. Values are never renumbered; new ones may be added. */
typedef int32_t memra_status;
enum {
  MEMRA_OK = 0,
  /* Not an error: a query found work still running. */
  MEMRA_NOT_READY = 1,
  /* An argument is wrong; memra_last_error() names it, its value and what is legal. */
  MEMRA_ERROR_INVALID_ARGUMENT = 2,
  /* Legal elsewhere or later, but not offered by this library, build or backend. */
  MEMRA_ERROR_UNSUPPORTED = 3,
  MEMRA_ERROR_OUT_OF_MEMORY = 4,
  /* The workspace given is smaller than the query said. */
  MEMRA_ERROR_WORKSPACE_TOO_SMALL = 5,
  /* No such device, no driver, or a build without CUDA. */
  MEMRA_ERROR_NO_DEVICE = 6,
  /* The driver is older than the CUDA runtime inside the library; the text has both versions. */
  MEMRA_ERROR_DRIVER_TOO_OLD = 7,
  /* The library holds no machine code, and no usable PTX, for this device. */
  MEMRA_ERROR_NO_KERNEL_IMAGE = 8,
  /* A CUDA call failed; the text has CUDA's own name for it. */
  MEMRA_ERROR_CUDA = 9,
  /* The engine was created before a fork, in the parent. */
  MEMRA_ERROR_FORKED = 10,
  /* The call is not legal in the present state (a capture already or not begun, ...). */
  MEMRA_ERROR_INVALID_STATE = 11,
  /* A fault of this library. Please report the text. */
  MEMRA_ERROR_INTERNAL = 12
};

/* Version of the library that is loaded, as MEMRA_VERSION. Any thread, no engine needed. */
MEMRA_API uint32_t memra_version(void);

/* How the loaded library was built. */
typedef struct memra_build_properties {
  uint32_t struct_size;
  int32_t with_cuda;          /* 1 if it holds the CUDA backend */
  int32_t cuda_version;       /* CUDA runtime inside, as CUDART_VERSION; 0 without CUDA */
  int32_t reserved;
  char version[16];           /* "0.1.0" */
  char cuda_archs[128];       /* machine code and PTX held, "80 86 89 90a 90-ptx"; "" without */
  char simd[64];              /* CPU code paths held, best first */
  char compiler[64];
} memra_build_properties;
#define MEMRA_BUILD_PROPERTIES_INIT \
  { (uint32_t)sizeof(memra_build_properties), 0, 0, 0, {0}, {0}, {0}, {0} }
MEMRA_API memra_status memra_build_info(memra_build_properties* properties);

/* Name of a status, "MEMRA_ERROR_..." ; "unknown status" for any other value. Never NULL. */
MEMRA_API const char* memra_status_string(memra_status status);

/* Text of the last failure in this thread, "" if there was none. Valid until the thread's next
 * failing memra call; never NULL. A success does not clear it. */
MEMRA_API const char* memra_last_error(void);

/* ---------------------------------------------------------------------------------------------
 * Common enumerations (all stored as int32_t)
 * ------------------------------------------------------------------------------------------- */

/* Element types of activations and outputs. Inputs widen to f32 exactly; outputs round to nearest
 * even; every NaN stored is the canonical one (0x7FC00000, 0x7E00, 0x7FC0). */
typedef int32_t memra_dtype;
enum { MEMRA_F32 = 0, MEMRA_F16 = 1, MEMRA_BF16 = 2 };

/* Weight formats. Both hold the same E2M1 codes and UE4M3 scales of 16 values in the same number of
 * bytes, rows * columns * 9 / 16, and give the same bits.
 *
 * MEMRA_NVFP4 ("V1", the GGUF block): row-major blocks of 64 values in 36 bytes: 4 scale bytes
 * (scale s is for values 16s .. 16s+15), then 32 code bytes: value j, with s = j / 16 and
 * w = j % 16, is in byte 4 + 8s + w % 8, low nibble where w < 8. Slab alignment 4;
 * on GPUs calls of many tokens take least time where it is 16.
 *
 * MEMRA_NVFP4_V2: slot-major, split: all codes of a slab, then all scales, both in tiles of 8 rows
 * by 128 columns (4 groups of 32). Codes: row block r / 8 at (r / 8) * 4 * columns, tile c / 128 at
 * 512 * (c / 128) in it, inside [r % 8][group % 4][16 bytes]. Scales: row block at
 * rows * columns / 2 + (r / 8) * columns / 2, tile at 64 * (c / 128), inside [r % 8][group % 4]
 * [2 bytes]. Where columns % 128 == 64 the last tile is half as wide. Slab alignment 16; made by
 * memra_repack_v2, never holds an invalid scale code.
 *
 * In both, columns is a multiple of 64 and rows of 8. Code 8 (minus zero) decodes to +0, and
 * memra_quantize_nvfp4 never makes it. */
typedef int32_t memra_format;
enum { MEMRA_NVFP4 = 7, MEMRA_NVFP4_V2 = 107 };
#define MEMRA_COLUMN_MULTIPLE 64
#define MEMRA_ROW_MULTIPLE 8

typedef int32_t memra_backend;
enum { MEMRA_BACKEND_AUTO = 0, MEMRA_BACKEND_CUDA = 1, MEMRA_BACKEND_CPU = 2 };

/* A switch whose default the library chooses. */
typedef int32_t memra_toggle;
enum { MEMRA_DEFAULT = 0, MEMRA_ON = 1, MEMRA_OFF = 2 };

/* The activation between gate (g) and up (u); silu(z) = z * sig(z), sig(z) = 1 / (1 + exp(-z)).
 * Comparisons are such that NaN passes through. */
typedef int32_t memra_activation;
enum {
  MEMRA_SWIGLU = 0,           /* silu(g) * u */
  MEMRA_SWIGLU_PRECLAMP = 1,  /* g at most limit, u within +-limit; then silu(g) * u */
  MEMRA_SWIGLU_POSTCLAMP = 2, /* silu(g) at most limit, u within +-limit; then the product */
  MEMRA_SWIGLU_OAI = 3        /* clamps as PRECLAMP; then (u + 1) * g * sig(alpha * g) */
};

typedef int32_t memra_determinism;
enum {
  /* Same bits on every backend, device, format, variant and batch. */
  MEMRA_DETERMINISM_EXACT = 1,
  /* Same bits in every run and batch, on one kind of device and build of the library. */
  MEMRA_DETERMINISM_BATCH_INVARIANT = 2
};

/* The two ways through a layer. */
typedef int32_t memra_path;
enum {
  MEMRA_PATH_AUTO = 0, /* by the number of tokens, as memra_moe_layer_info says */
  MEMRA_PATH_ROWS = 1,
  MEMRA_PATH_GROUPED = 2
};

/* Variants of the rows kernels, a bitmask; all give the same bits. 0 (AUTO) picks the fastest known
 * for the shape. PLAIN stands alone. The others combine, except that ORD and DEDUP_ORDER exclude each
 * other, and that LANE_MAJOR needs MEMRA_NVFP4_V2 in every plane concerned and excludes ILP (it always
 * loads ahead). memra_moe_layer_info lists what a layer accepts; an impossible combination is
 * MEMRA_ERROR_INVALID_ARGUMENT. */
enum {
  MEMRA_ROWS_AUTO = 0,
  MEMRA_ROWS_PLAIN = 1 << 0,       /* none of the others */
  MEMRA_ROWS_ILP = 1 << 1,         /* several groups are loaded ahead of the arithmetic */
  MEMRA_ROWS_ORD = 1 << 2,         /* blocks in expert order: repeats of an expert meet in L2, or,
                                      with LANE_MAJOR where the device allows it, share one read */
  MEMRA_ROWS_DEDUP_ORDER = 1 << 3, /* pairs of one expert share one read of its gate and up; in
                                      down, whose slots are summed in order, it acts as ORD */
  MEMRA_ROWS_PACK = 1 << 4,        /* four warps to a block */
  MEMRA_ROWS_LANE_MAJOR = 1 << 5   /* activations permuted to the order of the weights' nibbles */
};

/* Flags of calls. */
enum {
  /* Add to the caller's y instead of overwriting it. */
  MEMRA_FLAG_ACCUMULATE = 1 << 0,
  /* The caller says that ids, router weights, tables and slabs are not written by the work just
   * before on the same stream: the first kernel of the call may then prefetch them while that work
   * still runs. Activations are never read early. Ignored on the CPU. */
  MEMRA_FLAG_INPUTS_STABLE = 1 << 1
};

/* Largest tokens of one rows call; top_k; and hidden_size, intermediate_size, n_experts, and the rows
 * and columns of weights. Rows of memra_quantize_q8_1 and memra_q8_to_lane_major: below 2^31. */
#define MEMRA_ROWS_MAX_TOKENS 1024
#define MEMRA_MAX_TOP_K 64
#define MEMRA_MAX_DIMENSION 1048576
/* Most pairs of one grouped call, and rows of its stages. */
#define MEMRA_GROUPED_MAX_PAIRS 2147483647
/* Most experts, and expert groups, of memra_moe_topk. */
#define MEMRA_TOPK_MAX_EXPERTS 4096
#define MEMRA_TOPK_MAX_GROUPS 256
/* Alignment of workspaces, and of what memra_alloc returns. */
#define MEMRA_WORKSPACE_ALIGNMENT 256

/* ---------------------------------------------------------------------------------------------
 * Engine
 * ------------------------------------------------------------------------------------------- */

typedef struct memra_engine memra_engine;

/* Severity of a log line. */
enum { MEMRA_LOG_OFF = 0, MEMRA_LOG_ERROR = 1, MEMRA_LOG_WARNING = 2, MEMRA_LOG_INFO = 3 };

/* Receives one line, without a line end, valid during the call only. May be called from any thread
 * that is inside a memra call on the engine; must not call memra. */
typedef void (*memra_log_callback)(int32_t level, const char* text, void* user);

/* Options of an engine; zero everywhere is the default. Environment variables, read once inside
 * memra_engine_create and nowhere else, set defaults that options and call arguments override:
 * MEMRA_BACKEND (auto, cuda, cpu), MEMRA_CPU_THREADS (a number), MEMRA_CPU_SIMD (a word of
 * memra_build_properties.simd; UNSUPPORTED where the processor does not run it; the default is the
 * best that it does), MEMRA_LOG (off, error, warning, info), and MEMRA_MOE_VROWS_ILP, _ORD,
 * _DEDUP_ORDER, _PACK (0: AUTO does not pick that variant; 1: AUTO picks it where it is possible).
 * A value that cannot be read is an error. */
typedef struct memra_engine_options {
  uint32_t struct_size;
  memra_backend backend;         /* AUTO: a usable GPU, else the CPU */
  int32_t device;                /* CUDA ordinal; must be 0 on the CPU */
  int32_t cpu_threads;           /* CPU backend, at most 4096; 0: the processors this process may
                                    use */
  uint32_t rows_variant;         /* variant taken where a call says MEMRA_ROWS_AUTO; falls back to
                                    AUTO for layers that do not accept it */
  memra_toggle dependent_launch; /* programmatic dependent launch between kernels; default ON where
                                    the device has it */
  int32_t log_level;             /* MEMRA_LOG_*; 0 = MEMRA_LOG, else off */
  int32_t reserved;
  memra_log_callback log;        /* NULL: no log */
  void* log_user;
} memra_engine_options;
#define MEMRA_ENGINE_OPTIONS_INIT \
  { (uint32_t)sizeof(memra_engine_options), 0, 0, 0, 0, 0, 0, 0, NULL, NULL }
/* struct_size is sizeof(memra_engine_options) as the caller knows it; zeroes the struct and sets the
 * field. For bindings that cannot use the macro. All *_init functions work alike. */
MEMRA_API memra_status memra_engine_options_init(memra_engine_options* options,
                                                 uint32_t struct_size);

/* Creates an engine on one device, or on the CPU. options may be NULL. Loads every kernel and sets
 * its attributes now, so that the first call may be captured; takes milliseconds to seconds. It
 * runs in relaxed capture mode: a capture going on in this or another thread is not disturbed.
 * Errors: NO_DEVICE, DRIVER_TOO_OLD, NO_KERNEL_IMAGE, OUT_OF_MEMORY, CUDA; with AUTO these lead to
 * the CPU, and memra_engine_info says why. On failure *engine is NULL. */
MEMRA_API memra_status memra_engine_create(const memra_engine_options* options,
                                           memra_engine** engine);

/* Destroys an engine; NULL is fine. Waits for streams of memra_stream_create that were not
 * destroyed (on the CPU for the default stream as well), and for nothing else. Layers, events,
 * graphs and streams of the engine must not be used afterwards; layers may be destroyed afterwards.
 * Safe at exit and after a device reset. */
MEMRA_API void memra_engine_destroy(memra_engine* engine);

typedef struct memra_engine_properties {
  uint32_t struct_size;
  memra_backend backend;        /* CUDA or CPU */
  int32_t device;               /* CUDA ordinal, 0 on the CPU */
  int32_t compute_capability;   /* 10 * major + minor, 0 on the CPU */
  int32_t n_multiprocessors;    /* 0 on the CPU */
  int32_t cpu_threads;          /* 0 on CUDA */
  int32_t driver_version;       /* as CUDA gives it, 0 on the CPU */
  int32_t runtime_version;
  int32_t dependent_launch;     /* 1 if in use */
  int32_t reserved;
  uint64_t l2_bytes;            /* 0 if not known */
  uint64_t memory_bytes;        /* 0 if not known */
  char device_name[128];        /* GPU, or processor */
  char simd[64];                /* CPU code path in use, "" on CUDA */
  char fallback_reason[256];    /* why AUTO took the CPU, else "" */
  uint64_t peer_devices;        /* bit d, d < 64: copies between this engine and one on CUDA device
                                   d go straight from memory to memory (P2P); elsewhere CUDA stages
                                   them through the host. Decided when the later of the two engines
                                   is created; the own device's bit is set. 0 on the CPU */
} memra_engine_properties;
#define MEMRA_ENGINE_PROPERTIES_INIT \
  { (uint32_t)sizeof(memra_engine_properties), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, 0 }
MEMRA_API memra_status memra_engine_info(const memra_engine* engine,
                                         memra_engine_properties* properties);

/* ---------------------------------------------------------------------------------------------
 * Memory, streams, events and graphs, for callers with no CUDA headers
 * ------------------------------------------------------------------------------------------- */

typedef void* memra_stream;
typedef struct memra_event memra_event;
typedef struct memra_graph memra_graph;

/* Device memory, aligned to MEMRA_WORKSPACE_ALIGNMENT, contents undefined. 0 bytes give NULL. Not
 * for hot paths; not under capture. */
MEMRA_API memra_status memra_alloc(memra_engine* engine, uint64_t bytes, void** ptr);
/* Frees memory of memra_alloc (NULL is fine). All work that uses it must have finished. */
MEMRA_API memra_status memra_free(memra_engine* engine, void* ptr);
/* Stream-ordered: usable by work enqueued on `stream` after this call. Free with memra_free_async.
 * An engine on a GPU has a pool of its own and keeps freed memory there, for later calls, until it is
 * destroyed; no stream is made to wait for another one so that it may have that one's memory.
 * Under capture only where the device's memory pools allow it. */
MEMRA_API memra_status memra_alloc_async(memra_engine* engine, uint64_t bytes, memra_stream stream,
                                         void** ptr);
MEMRA_API memra_status memra_free_async(memra_engine* engine, void* ptr, memra_stream stream);
/* Pinned host memory, readable by the device. Not under capture. */
MEMRA_API memra_status memra_alloc_host(memra_engine* engine, uint64_t bytes, void** ptr);
MEMRA_API memra_status memra_free_host(memra_engine* engine, void* ptr);

/* Copies bytes between any two buffers of device or host memory, on the stream. Host memory should
 * be pinned: with pageable memory CUDA may wait inside the call. Buffers must not overlap. */
MEMRA_API memra_status memra_memcpy(memra_engine* engine, void* dst, const void* src,
                                    uint64_t bytes, memra_stream stream);
/* Fills bytes of device memory with the low 8 bits of value, on the stream. */
MEMRA_API memra_status memra_memset(memra_engine* engine, void* dst, int32_t value, uint64_t bytes,
                                    memra_stream stream);
/* Copies from src_engine's memory to dst_engine's, both CUDA or both CPU; ordered on `stream`, a
 * stream of dst_engine, and on nothing else. Between two GPUs by P2P where the pair allows it, which
 * is switched on when the later engine is created, and staged by CUDA otherwise: see peer_devices of
 * memra_engine_info. */
MEMRA_API memra_status memra_memcpy_engines(memra_engine* dst_engine, void* dst,
                                            memra_engine* src_engine, const void* src,
                                            uint64_t bytes, memra_stream stream);

/* A stream of the engine, not synchronising with the default stream. On CUDA it is a real
 * cudaStream_t. Not under capture. */
MEMRA_API memra_status memra_stream_create(memra_engine* engine, memra_stream* stream);
/* Waits for the stream's work, then destroys it. Only for streams of memra_stream_create. */
MEMRA_API memra_status memra_stream_destroy(memra_engine* engine, memra_stream stream);
/* MEMRA_OK if all work is done, MEMRA_NOT_READY if not, or the error of work that failed. */
MEMRA_API memra_status memra_stream_query(memra_engine* engine, memra_stream stream);
/* Waits for all work of the stream; returns the error of work that failed. Not under capture. */
MEMRA_API memra_status memra_stream_synchronize(memra_engine* engine, memra_stream stream);

/* An event that takes times. */
MEMRA_API memra_status memra_event_create(memra_engine* engine, memra_event** event);
/* NULL is fine. */
MEMRA_API void memra_event_destroy(memra_event* event);
/* Marks this point of the stream, a stream of the event's engine. Recording again moves the event. */
MEMRA_API memra_status memra_event_record(memra_event* event, memra_stream stream);
/* Work enqueued on `stream` (of `engine`) after this call waits for the event's latest record before
 * this call; a never recorded event waits for nothing. The event may belong to another engine of
 * the same backend. */
MEMRA_API memra_status memra_event_wait(memra_engine* engine, memra_event* event,
                                        memra_stream stream);
/* MEMRA_OK or MEMRA_NOT_READY. A never recorded event is MEMRA_OK. */
MEMRA_API memra_status memra_event_query(memra_event* event);
MEMRA_API memra_status memra_event_synchronize(memra_event* event);
/* Milliseconds between two finished records. Events of two devices or backends, and events never
 * recorded, are INVALID_ARGUMENT; unfinished ones MEMRA_NOT_READY. */
MEMRA_API memra_status memra_event_elapsed(memra_event* start, memra_event* end,
                                           float* milliseconds);

/* Begins recording what this thread enqueues on the stream; nothing runs meanwhile. The stream must
 * not be NULL. */
MEMRA_API memra_status memra_graph_begin(memra_engine* engine, memra_stream stream);
/* Ends it and makes an executable graph. On failure the recording is dropped and *graph is NULL. */
MEMRA_API memra_status memra_graph_end(memra_engine* engine, memra_stream stream,
                                       memra_graph** graph);
/* Runs the graph on a stream; launches of one graph never overlap. */
MEMRA_API memra_status memra_graph_launch(memra_graph* graph, memra_stream stream);
/* NULL is fine. All launches must have finished. */
MEMRA_API void memra_graph_destroy(memra_graph* graph);

/* ---------------------------------------------------------------------------------------------
 * Weights
 *
 * A part of a matrix, for tensor parallelism: rows at multiples of 8, columns at multiples of 64.
 * A zero row_count or column_count means all from the begin on. The result is dense: a slab of
 * [row_count, column_count].
 * ------------------------------------------------------------------------------------------- */

typedef struct memra_slice {
  int64_t row_begin, row_count;
  int64_t column_begin, column_count;
} memra_slice;

/* What a conversion found in its input; device memory, alignment 8. The call overwrites it. */
typedef struct memra_weight_report {
  uint64_t invalid_scales; /* scale codes outside 0x00..0x7E: they decode to 0 everywhere */
  int64_t first_expert;    /* of the first such, in (expert, row, block) order; -1 if none */
  int64_t first_row;       /* row in the source matrix */
  int64_t first_block;     /* block of 16 columns in the source matrix */
  uint64_t non_finite;     /* memra_quantize_nvfp4: NaN and Inf in the input, encoded as 0 */
} memra_weight_report;

/* Bytes of a bank of n_experts slabs [rows, columns], and the byte distance of two slabs. Pure.
 * stride or bytes may be NULL. */
MEMRA_API memra_status memra_bank_bytes(memra_format format, int64_t rows, int64_t columns,
                                        int64_t n_experts, uint64_t* stride, uint64_t* bytes);

/* MEMRA_NVFP4 to MEMRA_NVFP4_V2, n_experts slabs. Codes are unchanged; an invalid scale code becomes
 * 0x00 and is counted.
 * In place: dst == src, with a workspace of memra_repack_v2_workspace_size or any multiple of it
 * (more slabs at a time), and dst_stride <= src_stride. Any other overlap of src and dst is an
 * error. Out of place needs no workspace. */
typedef struct memra_repack_args {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t rows, columns;        /* of a source slab */
  int64_t n_experts;
  memra_slice slice;            /* part of every slab to take; zeros: all */
  const void* src;              /* device, alignment 4 */
  uint64_t src_stride;          /* bytes between slabs, multiple of 4; 0: packed */
  void* dst;                    /* device, alignment 16 */
  uint64_t dst_stride;          /* bytes between slabs, multiple of 16; 0: packed */
  void* workspace;              /* device, alignment 256; in place only */
  uint64_t workspace_bytes;
  memra_weight_report* report;  /* device, or NULL */
} memra_repack_args;
#define MEMRA_REPACK_ARGS_INIT                                                                 \
  {                                                                                            \
    (uint32_t)sizeof(memra_repack_args), 0, 0, 0, 0, {0, 0, 0, 0}, NULL, 0, NULL, 0, NULL, 0, NULL \
  }
MEMRA_API memra_status memra_repack_args_init(memra_repack_args* args, uint32_t struct_size);
MEMRA_API memra_status memra_repack_v2(memra_engine* engine, const memra_repack_args* args,
                                       memra_stream stream);
/* Smallest workspace of an in-place repack: one source slab. Pure. */
MEMRA_API memra_status memra_repack_v2_workspace_size(int64_t rows, int64_t columns,
                                                      uint64_t* bytes);

/* How a checkpoint stores its global scale. */
typedef int32_t memra_global_scale;
enum {
  MEMRA_GLOBAL_SCALE_DIRECT = 1,    /* value = code * block scale * g (modelopt) */
  MEMRA_GLOBAL_SCALE_RECIPROCAL = 2 /* value = code * block scale / g (compressed-tensors) */
};

/* Imports the two-plane layout of safetensors checkpoints to either format. codes: [rows,
 * columns / 2] bytes, byte j of a row holding values 2j (low nibble) and 2j + 1 (high); scales:
 * [rows, columns / 16] UE4M3 bytes, row-major. Codes and scale bytes are unchanged, except that
 * V2 stores 0x00 for an invalid scale code. expert_scales are written before the call returns:
 * g, or 1 / g rounded to nearest. A global scale that is zero, negative, NaN or Inf (or whose
 * reciprocal is) is an error and nothing is done. */
typedef struct memra_import_args {
  uint32_t struct_size;
  memra_format format;               /* of dst */
  int64_t rows, columns;             /* of a source matrix */
  int64_t n_experts;
  memra_slice slice;                 /* zeros: all */
  const void* codes;                 /* device, alignment 4 */
  uint64_t codes_stride;             /* bytes between matrices, multiple of 4; 0: packed */
  const void* scales;                /* device, alignment 4 */
  uint64_t scales_stride;            /* bytes between matrices, multiple of 4; 0: packed */
  const float* global_scales;        /* host, [n_experts] */
  memra_global_scale global_scale;   /* must be said */
  int32_t reserved;
  void* dst;                         /* device, alignment of the format */
  uint64_t dst_stride;               /* bytes between slabs; 0: packed */
  float* expert_scales;              /* host, [n_experts], written */
  memra_weight_report* report;       /* device, or NULL */
} memra_import_args;
#define MEMRA_IMPORT_ARGS_INIT                                                              \
  {                                                                                         \
    (uint32_t)sizeof(memra_import_args), 0, 0, 0, 0, {0, 0, 0, 0}, NULL, 0, NULL, 0, NULL, 0, 0, \
        NULL, 0, NULL, NULL                                                                 \
  }
MEMRA_API memra_status memra_import_args_init(memra_import_args* args, uint32_t struct_size);
MEMRA_API memra_status memra_import_nvfp4(memra_engine* engine, const memra_import_args* args,
                                          memra_stream stream);

/* Quantises f32, f16 or bf16 matrices [rows, columns]. expert_scales is device memory, [n_experts]:
 * read if compute_expert_scale is 0, else computed as amax / (6 * 448) of the matrix (1 if it is
 * all zero) and written. Block scale: amax of 16 values / (6 * expert scale), to the nearest legal
 * code, ties to even; codes: to the nearest E2M1 value, ties to even. Scales given must be finite
 * and positive: others encode to zeros. NaN and Inf encode as 0 and are counted. */
typedef struct memra_quantize_args {
  uint32_t struct_size;
  memra_format format;          /* of dst */
  int64_t rows, columns;
  int64_t n_experts;
  const void* src;              /* device, alignment 16 */
  memra_dtype src_dtype;
  int32_t compute_expert_scale; /* 0 or 1 */
  int64_t src_row_stride;       /* elements, rows of 16 bytes alignment; 0: columns */
  int64_t src_stride;           /* elements between matrices, a multiple of 16 bytes; 0: packed */
  void* dst;                    /* device, alignment of the format */
  uint64_t dst_stride;          /* bytes between slabs; 0: packed */
  float* expert_scales;         /* device, alignment 4 */
  memra_weight_report* report;  /* device, or NULL */
} memra_quantize_args;
#define MEMRA_QUANTIZE_ARGS_INIT                                                              \
  {                                                                                           \
    (uint32_t)sizeof(memra_quantize_args), 0, 0, 0, 0, NULL, 0, 0, 0, 0, NULL, 0, NULL, NULL \
  }
MEMRA_API memra_status memra_quantize_args_init(memra_quantize_args* args, uint32_t struct_size);
MEMRA_API memra_status memra_quantize_nvfp4(memra_engine* engine, const memra_quantize_args* args,
                                            memra_stream stream);

/* Decodes slabs of either format (or a slice of each) to f32, f16 or bf16: the exact product of code
 * and block scale, times the expert scale in f32 if one is given, rounded to dst_dtype. */
typedef struct memra_dequantize_args {
  uint32_t struct_size;
  memra_format format;         /* of src */
  int64_t rows, columns;       /* of a source slab */
  int64_t n_experts;
  memra_slice slice;           /* zeros: all */
  const void* src;             /* device, alignment of the format */
  uint64_t src_stride;         /* bytes between slabs; 0: packed */
  const float* expert_scales;  /* device, [n_experts], or NULL for 1 */
  void* dst;                   /* device, alignment 16 */
  memra_dtype dst_dtype;
  int32_t reserved;
  int64_t dst_row_stride;      /* elements; 0: columns of the slice */
  int64_t dst_stride;          /* elements between matrices; 0: packed */
} memra_dequantize_args;
#define MEMRA_DEQUANTIZE_ARGS_INIT                                                             \
  {                                                                                            \
    (uint32_t)sizeof(memra_dequantize_args), 0, 0, 0, 0, {0, 0, 0, 0}, NULL, 0, NULL, NULL, 0, 0, \
        0, 0                                                                                   \
  }
MEMRA_API memra_status memra_dequantize_args_init(memra_dequantize_args* args,
                                                  uint32_t struct_size);
MEMRA_API memra_status memra_dequantize(memra_engine* engine, const memra_dequantize_args* args,
                                        memra_stream stream);

/* ---------------------------------------------------------------------------------------------
 * Layer
 * ------------------------------------------------------------------------------------------- */

typedef struct memra_moe_layer memra_moe_layer;

/* One plane's slabs, local-indexed: entry e is expert local_expert_offset + e. Give base (and
 * expert_stride), or ptrs, never both; or neither where every call brings expert_ptrs. The slabs themselves and
 * the bias stay the caller's and must outlive the layer's use. */
typedef struct memra_bank {
  uint32_t struct_size;
  memra_format format;
  const void* base;           /* device, alignment of the format */
  uint64_t expert_stride;     /* bytes between slabs; 0: packed as memra_bank_bytes says */
  const void* const* ptrs;    /* host, [n_local_experts] device pointers; a NULL entry is a skipped
                                 pair; copied */
  const float* expert_scales; /* host, [n_local_experts], any finite value; NULL: all 1; copied */
  const float* bias;          /* device, f32 [n_local_experts, output size], alignment 4, or NULL */
} memra_bank;
#define MEMRA_BANK_INIT { (uint32_t)sizeof(memra_bank), 0, NULL, 0, NULL, NULL, NULL }
MEMRA_API memra_status memra_bank_init(memra_bank* bank, uint32_t struct_size);

typedef struct memra_moe_layer_desc {
  uint32_t struct_size;
  memra_activation activation;
  int64_t hidden_size;          /* multiple of 64, at most MEMRA_MAX_DIMENSION */
  int64_t intermediate_size;    /* of this rank; multiple of 64, at most MEMRA_MAX_DIMENSION */
  int64_t n_experts;            /* of the whole model: the range of topk_ids */
  int64_t top_k;                /* 1 .. MEMRA_MAX_TOP_K */
  int64_t local_expert_offset;  /* first expert of this rank */
  int64_t n_local_experts;      /* 0: all from the offset on */
  int64_t max_tokens;           /* largest tokens of a call; at least 1 */
  float limit;                  /* > 0 for the clamped activations; ignored for SWIGLU */
  float alpha;                  /* SWIGLU_OAI (gpt-oss: 1.702); ignored otherwise */
  const memra_bank* gate;       /* [intermediate_size, hidden_size] */
  const memra_bank* up;         /* [intermediate_size, hidden_size] */
  const memra_bank* down;       /* [hidden_size, intermediate_size] */
} memra_moe_layer_desc;
#define MEMRA_MOE_LAYER_DESC_INIT                                                              \
  {                                                                                            \
    (uint32_t)sizeof(memra_moe_layer_desc), 0, 0, 0, 0, 0, 0, 0, 0, 0.0f, 0.0f, NULL, NULL, NULL \
  }
MEMRA_API memra_status memra_moe_layer_desc_init(memra_moe_layer_desc* desc, uint32_t struct_size);

/* All checks of shape, format and alignment happen here, once: what is accepted will run. A size
 * that is no multiple of 64 is refused by name (a tensor-parallel cut must fall on a multiple of
 * 64). Allocates small device tables; not under capture on the same thread's stream. On failure
 * *layer is NULL. */
MEMRA_API memra_status memra_moe_layer_create(memra_engine* engine,
                                              const memra_moe_layer_desc* desc,
                                              memra_moe_layer** layer);
/* NULL is fine. All calls on the layer must have finished. */
MEMRA_API void memra_moe_layer_destroy(memra_moe_layer* layer);

/* What a call with AUTO runs for tokens_min <= tokens <= tokens_max. Ranges follow one another from 1
 * on; where there are more than fit, the last ones are left out. */
typedef struct memra_rows_plan {
  int64_t tokens_min, tokens_max;
  uint32_t gate_up_variant; /* MEMRA_ROWS_* */
  uint32_t down_variant;
  char gate_up_kernel[64];
  char down_kernel[64];
} memra_rows_plan;

typedef struct memra_moe_layer_properties {
  uint32_t struct_size;
  memra_determinism rows_determinism;
  int64_t rows_max_tokens;      /* min(max_tokens, MEMRA_ROWS_MAX_TOKENS) */
  int32_t n_rows_plans;
  int32_t n_rows_variants;
  memra_rows_plan rows_plans[8];
  uint32_t rows_variants[64];   /* every explicit variant that memra_moe_rows accepts */
  /* 0, and all that follows, where the backend has no grouped path. */
  memra_determinism grouped_determinism;
  int32_t reserved;
  int64_t grouped_max_tokens;   /* min(max_tokens, MEMRA_GROUPED_MAX_PAIRS / top_k) */
  /* The rule of memra_moe: with MEMRA_PATH_AUTO, rows below this many tokens, grouped from there
   * on. On CUDA it comes from tables by n_experts and top_k, one for layers that are NVFP4_V2
   * throughout and one for others; the same on every rank, it may change with any version.
   * max_tokens + 1, but no more than INT64_MAX: rows always, as on the CPU. */
  int64_t grouped_min_tokens;
  char grouped_gate_up_kernel[64];
  char grouped_down_kernel[64];
} memra_moe_layer_properties;
/* Too large for an initialiser that is pleasant to read: use the init. */
MEMRA_API memra_status memra_moe_layer_properties_init(memra_moe_layer_properties* properties,
                                                       uint32_t struct_size);
MEMRA_API memra_status memra_moe_layer_info(const memra_moe_layer* layer,
                                            memra_moe_layer_properties* properties);

/* Workspace bytes that a call with this many tokens needs, whatever its path and variant. Pure:
 * depends on nothing but the layer and tokens, and never falls as tokens rises. tokens <= max_tokens;
 * beyond the larger of rows_max_tokens and grouped_max_tokens it is the value there. */
MEMRA_API memra_status memra_moe_workspace_size(const memra_moe_layer* layer, int64_t tokens,
                                                uint64_t* bytes);
/* The same for memra_moe_rows alone, and for memra_moe_grouped alone: at most
 * n_pairs * (2 * hidden_size + 2 * intermediate_size) bytes and 5 %, with the tables of small calls
 * (16 bytes for each expert of this rank, 4 KiB) on top. Beyond rows_max_tokens, or
 * grouped_max_tokens, it is the value there. UNSUPPORTED where the backend has no grouped path. */
MEMRA_API memra_status memra_moe_rows_workspace_size(const memra_moe_layer* layer, int64_t tokens,
                                                     uint64_t* bytes);
MEMRA_API memra_status memra_moe_grouped_workspace_size(const memra_moe_layer* layer,
                                                        int64_t tokens, uint64_t* bytes);

/* Arguments of the layer in one call. All pointers are device memory. */
typedef struct memra_moe_args {
  uint32_t struct_size;
  uint32_t flags;                   /* MEMRA_FLAG_* */
  int64_t tokens;
  const void* x;                    /* [tokens, hidden_size], alignment 16 */
  void* y;                          /* [tokens, hidden_size], alignment 16; must not overlap x */
  memra_dtype x_dtype, y_dtype;
  int64_t x_stride, y_stride;       /* elements between rows, a multiple of 16 bytes; 0: dense */
  const int32_t* topk_ids;          /* [tokens, top_k], global expert ids, alignment 4 */
  const float* topk_weights;        /* [tokens, top_k], used as they are, alignment 4 */
  const void* const* expert_ptrs;   /* [3 * n_local_experts] slabs: gate, up, down; alignment 8;
                                       read when the work runs; overrides the banks; or NULL */
  const float* expert_scales;       /* [3 * n_local_experts], overrides the banks' scales; or NULL */
  uint64_t* invalid_ids;            /* += ids >= n_experts or < -1, alignment 8; or NULL */
  void* workspace;                  /* alignment MEMRA_WORKSPACE_ALIGNMENT */
  uint64_t workspace_bytes;
  uint32_t variant;                 /* MEMRA_ROWS_*; where the grouped path runs it has no effect */
  memra_path path;                  /* memra_moe: AUTO or the one to take. The entries of one path
                                       take AUTO and their own */
} memra_moe_args;
#define MEMRA_MOE_ARGS_INIT                                                                       \
  {                                                                                               \
    (uint32_t)sizeof(memra_moe_args), 0, 0, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, \
        NULL, 0, 0, 0                                                                             \
  }
MEMRA_API memra_status memra_moe_args_init(memra_moe_args* args, uint32_t struct_size);

/* The layer by the rows path: y[token] = sum over slots, in slot order, of
 * topk_weight * (down(activation(gate(x), up(x)))) of the slot's expert. A pair is skipped where its
 * id is -1 or out of range, belongs to another rank, or has a NULL slab in any plane; a token with no
 * pair left gives exactly +0 (or keeps y when accumulating). tokens <= rows_max_tokens. A NaN or Inf
 * in a token makes that token's output NaN, and no other's.
 * Launches: on CUDA with compute capability 9.0 and V2 banks, where AUTO or LANE_MAJOR runs, with
 * at most 1024 pairs and 1024 experts of this rank, one cooperative kernel, whose blocks talk to each
 * other while they run; an engine has room for that for its first 64 workspaces, told apart by their
 * addresses. Five kernels elsewhere, and where the device cannot run all blocks at once (a part of
 * it, as green contexts and MPS make). The bits are the same. */
MEMRA_API memra_status memra_moe_rows(memra_moe_layer* layer, const memra_moe_args* args,
                                      memra_stream stream);

/* The layer by the grouped path: the same sum, pairs, ids, tables and special cases as
 * memra_moe_rows, in the grouped path's arithmetic. tokens <= grouped_max_tokens. Pairs are sorted
 * by expert on the device; nothing comes back to the host. */
MEMRA_API memra_status memra_moe_grouped(memra_moe_layer* layer, const memra_moe_args* args,
                                         memra_stream stream);

/* The layer by either path: that of args->path, or with MEMRA_PATH_AUTO the one that
 * memra_moe_layer_info names for this many tokens, by grouped_min_tokens. The paths differ in bits:
 * who needs the same on both sides of that number pins one in every call. tokens <= max_tokens; AUTO
 * gives rows that are more than rows_max_tokens the bits of memra_moe_rows in parts, and args->path
 * of MEMRA_PATH_ROWS refuses them. The workspace is that of memra_moe_workspace_size. */
MEMRA_API memra_status memra_moe(memra_moe_layer* layer, const memra_moe_args* args,
                                 memra_stream stream);

/* ---------------------------------------------------------------------------------------------
 * The stages of the rows path, for servers that interleave work of their own (LoRA, caches).
 * Chaining them gives the bits of memra_moe_rows. All pointers are device memory.
 * ------------------------------------------------------------------------------------------- */

/* Quantises rows of activations to int8 with one f32 scale d per group of 32 columns. */
typedef struct memra_q8_1_args {
  uint32_t struct_size;
  memra_dtype x_dtype;
  const void* x;      /* [rows, columns], alignment 16 */
  int64_t x_stride;   /* elements between rows, a multiple of 16 bytes; 0: dense */
  int64_t rows;
  int64_t columns;    /* multiple of 64 */
  int8_t* q;          /* [rows, columns], alignment 16 */
  float* d;           /* [rows, columns / 32], alignment 16 */
} memra_q8_1_args;
#define MEMRA_Q8_1_ARGS_INIT { (uint32_t)sizeof(memra_q8_1_args), 0, NULL, 0, 0, 0, NULL, NULL }
MEMRA_API memra_status memra_q8_1_args_init(memra_q8_1_args* args, uint32_t struct_size);
MEMRA_API memra_status memra_quantize_q8_1(memra_engine* engine, const memra_q8_1_args* args,
                                           memra_stream stream);

/* EXPERIMENTAL. Permutes quantised rows within each group of 32 to the order that
 * MEMRA_ROWS_LANE_MAJOR reads. The order is opaque: it may differ between backends and versions.
 * q and out: [rows, columns], alignment 16; out must not overlap q. */
MEMRA_API memra_status memra_q8_to_lane_major(memra_engine* engine, const int8_t* q, int64_t rows,
                                              int64_t columns, int8_t* out, memra_stream stream);

/* Gate and up of every pair, then the activation: out[p] = activation(gate(x), up(x)). q and d are
 * those of memra_quantize_q8_1; of another making, d is 0, NaN or a normal float.
 * Tables are plane-major over pairs: entry plane * n_pairs + p, planes gate 0, up 1, down 2. A pair
 * with a NULL gate or up slab is skipped: its row of out is +0. */
typedef struct memra_rows_gate_up_args {
  uint32_t struct_size;
  uint32_t flags;               /* MEMRA_FLAG_INPUTS_STABLE or 0 */
  int64_t tokens, top_k;
  int64_t hidden_size, intermediate_size;
  memra_format gate_format, up_format;
  memra_activation activation;
  float limit, alpha;
  uint32_t variant;             /* with MEMRA_ROWS_LANE_MAJOR q is in lane-major order; AUTO never
                                   assumes it */
  const void* const* ptrs;      /* [3 * n_pairs], alignment 8 */
  const float* scales;          /* [3 * n_pairs], alignment 4 */
  const float* const* bias;     /* [3 * n_pairs] pointers to f32 rows, or NULL; a NULL entry is no
                                   bias */
  const int32_t* order;         /* [n_pairs], a permutation that puts pairs of one expert side by
                                   side; read by ORD and DEDUP_ORDER, NULL: no order, they are then
                                   an error */
  const int8_t* q;              /* [tokens, hidden_size], alignment 16 */
  const float* d;               /* [tokens, hidden_size / 32], alignment 16 */
  float* out;                   /* [n_pairs, intermediate_size], alignment 16 */
} memra_rows_gate_up_args;
#define MEMRA_ROWS_GATE_UP_ARGS_INIT                                                         \
  {                                                                                          \
    (uint32_t)sizeof(memra_rows_gate_up_args), 0, 0, 0, 0, 0, 0, 0, 0, 0.0f, 0.0f, 0, NULL, NULL, \
        NULL, NULL, NULL, NULL, NULL                                                         \
  }
MEMRA_API memra_status memra_rows_gate_up_args_init(memra_rows_gate_up_args* args,
                                                    uint32_t struct_size);
MEMRA_API memra_status memra_moe_rows_gate_up(memra_engine* engine,
                                              const memra_rows_gate_up_args* args,
                                              memra_stream stream);

/* Down of every pair and the weighted sum over slots, in slot order. The tables are those of gate
 * and up; scales[2 * n_pairs + p] is already the router weight times the expert scale. A pair with a
 * NULL down slab is skipped. */
typedef struct memra_rows_down_args {
  uint32_t struct_size;
  uint32_t flags;               /* MEMRA_FLAG_* */
  int64_t tokens, top_k;
  int64_t intermediate_size, hidden_size;
  memra_format format;
  memra_dtype y_dtype;
  uint32_t variant;             /* as in memra_rows_gate_up_args; ORD needs no order here */
  int32_t reserved;
  const void* const* ptrs;      /* [3 * n_pairs], alignment 8 */
  const float* scales;          /* [3 * n_pairs], alignment 4 */
  const float* const* bias;     /* [3 * n_pairs], or NULL */
  const float* topk_weights;    /* [n_pairs]; needed, and read, only with bias */
  const int8_t* q;              /* [n_pairs, intermediate_size], alignment 16 */
  const float* d;               /* [n_pairs, intermediate_size / 32], alignment 16 */
  void* y;                      /* [tokens, hidden_size], alignment 16 */
  int64_t y_stride;             /* elements between rows, a multiple of 16 bytes; 0: dense */
} memra_rows_down_args;
#define MEMRA_ROWS_DOWN_ARGS_INIT                                                            \
  {                                                                                          \
    (uint32_t)sizeof(memra_rows_down_args), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, 0                                                                  \
  }
MEMRA_API memra_status memra_rows_down_args_init(memra_rows_down_args* args, uint32_t struct_size);
MEMRA_API memra_status memra_moe_rows_down(memra_engine* engine, const memra_rows_down_args* args,
                                           memra_stream stream);

/* ---------------------------------------------------------------------------------------------
 * Routing, and the stages of the grouped path. All pointers are device memory. UNSUPPORTED where
 * the backend has no grouped path.
 * ------------------------------------------------------------------------------------------- */

/* How router logits become scores between 0 and 1. */
typedef int32_t memra_scoring;
enum {
  MEMRA_SCORING_SOFTMAX = 0, /* over all experts */
  MEMRA_SCORING_SIGMOID = 1
};

/* What a group of experts is chosen by. */
typedef int32_t memra_group_score;
enum {
  MEMRA_GROUP_SCORE_MAX = 0,     /* its largest key */
  MEMRA_GROUP_SCORE_TOP2_SUM = 1 /* the sum of its two largest keys */
};

/* Router logits to ids and weights. Each expert gets a score and a key, score + bias. Where there
 * are groups, of n_experts / n_groups neighbours each, the top_k_groups best groups stay. The ids
 * are those of the top_k largest keys left, in falling order, ties to the lower id (and to the lower
 * group); the weights are their scores, without bias, if wanted divided by their sum, and times
 * scaling_factor.
 * A NaN logit counts as -Inf and has the score 0, +Inf as the largest float; a NaN key is below all
 * others. So ids are always top_k distinct experts, and weights finite. Scores that are all 0 stay 0
 * when divided by their sum. Determinism: EXACT, ids and weights. */
typedef struct memra_moe_topk_args {
  uint32_t struct_size;
  memra_dtype logits_dtype;
  const void* logits;            /* [tokens, n_experts], alignment 4 */
  int64_t logits_stride;         /* elements between rows; 0: dense */
  int64_t tokens;
  int64_t n_experts;             /* at most MEMRA_TOPK_MAX_EXPERTS */
  int64_t top_k;                 /* 1 .. MEMRA_MAX_TOP_K, at most the experts of top_k_groups */
  int32_t* topk_ids;             /* [tokens, top_k], alignment 4 */
  float* topk_weights;           /* [tokens, top_k], alignment 4 */
  memra_scoring scoring;
  int32_t renormalize;           /* 1: divide the weights by their sum; 0: do not */
  const float* bias;             /* [n_experts], alignment 4, or NULL: selection only */
  int64_t n_groups;              /* divides n_experts, at most MEMRA_TOPK_MAX_GROUPS; 0: no groups */
  int64_t top_k_groups;          /* 1 .. n_groups; 0 without groups */
  memra_group_score group_score; /* TOP2_SUM needs two experts to a group */
  float scaling_factor;          /* finite; 0: 1 */
} memra_moe_topk_args;
#define MEMRA_MOE_TOPK_ARGS_INIT                                                              \
  {                                                                                           \
    (uint32_t)sizeof(memra_moe_topk_args), 0, NULL, 0, 0, 0, 0, NULL, NULL, 0, 0, NULL, 0, 0, 0, \
        0.0f                                                                                  \
  }
MEMRA_API memra_status memra_moe_topk_args_init(memra_moe_topk_args* args, uint32_t struct_size);
MEMRA_API memra_status memra_moe_topk(memra_engine* engine, const memra_moe_topk_args* args,
                                      memra_stream stream);

/* Ids to pairs sorted by expert. Experts are local-indexed: e is local_expert_offset + e. An active
 * expert is one with pairs; a = *n_active. Entry i < a of active_experts is an expert, rising, and
 * its pairs are pair_order[offsets[i]] .. pair_order[offsets[i + 1] - 1], rising. Beyond, every entry
 * of active_experts is -1, and of offsets offsets[a], so that offsets[n_local_experts] is the number
 * of pairs that are not skipped. Skipped pairs follow in pair_order, rising.
 * A pair is skipped where its id is -1 or out of range, belongs to another rank, or has a NULL slab
 * in any plane of expert_ptrs. Outputs are the same bits everywhere and in every run. */
typedef struct memra_moe_route_args {
  uint32_t struct_size;
  uint32_t flags;                 /* MEMRA_FLAG_INPUTS_STABLE or 0 */
  int64_t tokens, top_k;          /* tokens * top_k at most MEMRA_GROUPED_MAX_PAIRS */
  int64_t n_experts;              /* of the whole model: the range of topk_ids */
  int64_t local_expert_offset;    /* first expert of this rank */
  int64_t n_local_experts;        /* 0: all from the offset on */
  const int32_t* topk_ids;        /* [tokens, top_k], global expert ids, alignment 4 */
  const void* const* expert_ptrs; /* [3 * n_local_experts] slabs: gate, up, down; alignment 8; read
                                     when the work runs; or NULL: every expert has its slabs */
  int32_t* n_active;              /* [1], alignment 4 */
  int32_t* active_experts;        /* [n_local_experts], alignment 4 */
  int32_t* offsets;               /* [n_local_experts + 1], alignment 4 */
  int32_t* pair_order;            /* [n_pairs], alignment 4 */
  int32_t* inverse;               /* [n_pairs]: the place of a pair in pair_order, -1 where it is
                                     skipped; alignment 4; or NULL */
  uint64_t* invalid_ids;          /* += ids >= n_experts or < -1, alignment 8; or NULL */
  void* workspace;                /* alignment MEMRA_WORKSPACE_ALIGNMENT */
  uint64_t workspace_bytes;
} memra_moe_route_args;
#define MEMRA_MOE_ROUTE_ARGS_INIT                                                              \
  {                                                                                            \
    (uint32_t)sizeof(memra_moe_route_args), 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, 0                                                                    \
  }
MEMRA_API memra_status memra_moe_route_args_init(memra_moe_route_args* args, uint32_t struct_size);
MEMRA_API memra_status memra_moe_route(memra_engine* engine, const memra_moe_route_args* args,
                                       memra_stream stream);
/* Workspace of a call of this size. Pure, and rises with every argument. */
MEMRA_API memra_status memra_moe_route_workspace_size(memra_engine* engine, int64_t tokens,
                                                      int64_t top_k, int64_t n_local_experts,
                                                      uint64_t* bytes);

/* Gathers rows of activations as f16 with one f32 scale each: z = f16(x * 2^-k), zs = 2^k, k the
 * row's own, such that nothing overflows and the largest magnitude is 2^-2 or more (less where 2^k
 * would leave the normal floats). A row of zeros has zs = 1; a row with a NaN or Inf z = 0 and zs =
 * NaN; a row whose index names none is a row of zeros.
 * The order of z is opaque: it may differ between backends and versions, and depends on rows. */
typedef struct memra_moe_gather_f16_args {
  uint32_t struct_size;
  memra_dtype x_dtype;
  const void* x;             /* [source_rows, columns], alignment 16 */
  int64_t x_stride;          /* elements between rows, a multiple of 16 bytes; 0: dense */
  int64_t source_rows;       /* at most MEMRA_GROUPED_MAX_PAIRS, as rows */
  int64_t rows;              /* of z */
  int64_t columns;           /* multiple of 64 */
  void* z;                   /* rows * columns f16 values, alignment 128 */
  float* zs;                 /* [rows], alignment 4 */
  const int32_t* index;      /* [rows], alignment 4, or NULL: row r is row r of x */
  int64_t top_k;             /* row r is row index[r] / top_k of x, so that the index may be
                                pair_order; 0 counts as 1; needs an index beyond 1 */
  const int32_t* row_count;  /* [1], alignment 4: rows from *row_count on are left alone; or NULL */
} memra_moe_gather_f16_args;
#define MEMRA_MOE_GATHER_F16_ARGS_INIT                                                          \
  {                                                                                             \
    (uint32_t)sizeof(memra_moe_gather_f16_args), 0, NULL, 0, 0, 0, 0, NULL, NULL, NULL, 0, NULL \
  }
MEMRA_API memra_status memra_moe_gather_f16_args_init(memra_moe_gather_f16_args* args,
                                                      uint32_t struct_size);
MEMRA_API memra_status memra_moe_gather_f16(memra_engine* engine,
                                            const memra_moe_gather_f16_args* args,
                                            memra_stream stream);

/* One plane of many experts: rows offsets[i] .. offsets[i + 1] - 1 of out are those of z times the
 * slab of expert active_experts[i], i < *n_active: out = dot * scale + bias. Any counts will do, 0
 * included. Rows of a NULL slab, and of an expert outside the tables, are +0; rows of no expert are
 * left alone. Offsets rise from entry to entry; what reaches beyond rows is cut. */
typedef struct memra_moe_grouped_gemm_args {
  uint32_t struct_size;
  uint32_t flags;                /* MEMRA_FLAG_INPUTS_STABLE or 0 */
  int64_t rows;                  /* of z, zs and out; at most MEMRA_GROUPED_MAX_PAIRS */
  int64_t columns;               /* of z and of a slab; multiple of 64 */
  int64_t outputs;               /* rows of a slab; multiple of 64 */
  int64_t n_experts;             /* of the tables */
  memra_format format;           /* of the plane's slabs */
  int32_t plane;                 /* 0 gate, 1 up, 2 down: entries plane * n_experts + e */
  const void* const* ptrs;       /* [3 * n_experts] slabs, alignment 8 */
  const int32_t* n_active;       /* [1], alignment 4; counts at most n_experts */
  const int32_t* active_experts; /* [n_experts], alignment 4 */
  const int32_t* offsets;        /* [n_experts + 1], alignment 4 */
  const void* z;                 /* of memra_moe_gather_f16 with the same rows; alignment 128 */
  const float* zs;               /* [rows], alignment 4 */
  float* out;                    /* [rows, outputs], alignment 16 */
  const float* scales;           /* [3 * n_experts], alignment 4, or NULL: all 1 */
  const float* const* bias;      /* [3 * n_experts] pointers to f32 rows, alignment 8, or NULL; a
                                    NULL entry is no bias */
  void* workspace;               /* alignment MEMRA_WORKSPACE_ALIGNMENT; NULL where none is needed */
  uint64_t workspace_bytes;
} memra_moe_grouped_gemm_args;
#define MEMRA_MOE_GROUPED_GEMM_ARGS_INIT                                                          \
  {                                                                                               \
    (uint32_t)sizeof(memra_moe_grouped_gemm_args), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, NULL, NULL, 0                                                           \
  }
MEMRA_API memra_status memra_moe_grouped_gemm_args_init(memra_moe_grouped_gemm_args* args,
                                                        uint32_t struct_size);
MEMRA_API memra_status memra_moe_grouped_gemm(memra_engine* engine,
                                              const memra_moe_grouped_gemm_args* args,
                                              memra_stream stream);
/* Workspace of a call of this size; 0 where the backend needs none. Pure, and rises with both. */
MEMRA_API memra_status memra_moe_grouped_gemm_workspace_size(memra_engine* engine, int64_t rows,
                                                             int64_t n_experts, uint64_t* bytes);

/* ---------------------------------------------------------------------------------------------
 * Diagnostics (EXPERIMENTAL): what limits a kernel
 * ------------------------------------------------------------------------------------------- */

typedef int32_t memra_probe_arm;
enum {
  MEMRA_PROBE_LOADONLY = 1, /* the stage's kernel, same addresses, arithmetic deleted */
  MEMRA_PROBE_MATHONLY = 2, /* the stage's kernel, full instruction stream, weight loads deleted */
  MEMRA_PROBE_STREAM = 3    /* the slabs of the stage's tables, read in the best way known: the roof;
                               slabs aligned to 16. With MEMRA_FLAG_INPUTS_STABLE in the stage's flags
                               each launch prefetches before waiting for the one before */
};

/* Exactly one of gate_up and down is given, and is checked as by its own entry. The contents of its
 * output are undefined afterwards. */
typedef struct memra_rows_probe_args {
  uint32_t struct_size;
  memra_probe_arm arm;
  const memra_rows_gate_up_args* gate_up;
  const memra_rows_down_args* down;
} memra_rows_probe_args;
#define MEMRA_ROWS_PROBE_ARGS_INIT { (uint32_t)sizeof(memra_rows_probe_args), 0, NULL, NULL }
MEMRA_API memra_status memra_rows_probe_args_init(memra_rows_probe_args* args,
                                                  uint32_t struct_size);
MEMRA_API memra_status memra_moe_rows_probe(memra_engine* engine, const memra_rows_probe_args* args,
                                            memra_stream stream);

/* The parts of memra_moe_grouped, in the order in which it runs them. */
enum {
  MEMRA_GROUPED_ROUTE = 1 << 0,   /* ids to pairs sorted by expert */
  MEMRA_GROUPED_GATHER = 1 << 1,  /* x to f16, as gate and up take it */
  MEMRA_GROUPED_GATE_UP = 1 << 2, /* both products and the activation */
  MEMRA_GROUPED_DOWN = 1 << 3,
  MEMRA_GROUPED_SUM = 1 << 4,     /* the weighted sum over slots, to y */
  MEMRA_GROUPED_ALL = (1 << 5) - 1
};

/* Runs the asked stages of memra_moe_grouped, a bitmask of MEMRA_GROUPED_*, each as the whole call
 * does, to time them. All of them are the call itself. Fewer need the workspace as the stages before
 * them have left it, in this call or in earlier ones with the same arguments; elsewhere undefined
 * things happen.
 * A workspace has no room for all intermediates at once, so what a stage reads may have been
 * overwritten by a later one: GATE_UP works on the real activations only where GATHER ran after the
 * last DOWN, and y is that of the whole call where DOWN and SUM ran in one call of this. Otherwise
 * the work is the same, on other numbers, and what it leaves is undefined. ROUTE counts invalid ids
 * again. */
MEMRA_API memra_status memra_moe_grouped_probe(memra_moe_layer* layer, const memra_moe_args* args,
                                               uint32_t stages, memra_stream stream);

#ifdef __cplusplus
}
#endif

#endif /* MEMRA_H */
