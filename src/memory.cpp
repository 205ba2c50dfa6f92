#include "check.h"
#include "entry.h"
#include "memra.h"

namespace memra {
namespace {

// Two byte ranges of a copy.
Status check_copy(const void* dst, const void* src, uint64_t bytes) {
  MEMRA_TRY(check_pointer(dst, 1, "dst"));
  MEMRA_TRY(check_pointer(src, 1, "src"));
  const Area to{.begin = dst, .item_bytes = bytes};
  const Area from{.begin = src, .item_bytes = bytes};
  MEMRA_TRY(check_area(to, "dst"));
  MEMRA_TRY(check_area(from, "src"));
  return check_apart(to, "dst", from, "src");
}

// Runs allocate(&memory) and hands out its result; 0 bytes give NULL.
template <typename Allocate>
Status allocate_to(void** ptr, uint64_t bytes, Allocate&& allocate) {
  MEMRA_TRY(check_out(ptr, "ptr"));
  void* memory = nullptr;
  if (bytes != 0) MEMRA_TRY(allocate(&memory));
  *ptr = memory;
  return MEMRA_OK;
}

}  // namespace
}  // namespace memra

using memra::EngineState;
using memra::Status;

extern "C" {

memra_status memra_alloc(memra_engine* engine, uint64_t bytes, void** ptr) {
  return memra::run_on(engine, [&](const EngineState& state) {
    return memra::allocate_to(ptr, bytes,
                              [&](void** memory) { return state.backend->alloc(bytes, memory); });
  });
}

memra_status memra_free(memra_engine* engine, void* ptr) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    return ptr != nullptr ? state.backend->free(ptr) : MEMRA_OK;
  });
}

memra_status memra_alloc_async(memra_engine* engine, uint64_t bytes, memra_stream stream,
                               void** ptr) {
  return memra::run_on(engine, [&](const EngineState& state) {
    return memra::allocate_to(ptr, bytes, [&](void** memory) {
      return state.backend->alloc_async(bytes, stream, memory);
    });
  });
}

memra_status memra_free_async(memra_engine* engine, void* ptr, memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    return ptr != nullptr ? state.backend->free_async(ptr, stream) : MEMRA_OK;
  });
}

memra_status memra_alloc_host(memra_engine* engine, uint64_t bytes, void** ptr) {
  return memra::run_on(engine, [&](const EngineState& state) {
    return memra::allocate_to(
        ptr, bytes, [&](void** memory) { return state.backend->alloc_host(bytes, memory); });
  });
}

memra_status memra_free_host(memra_engine* engine, void* ptr) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    return ptr != nullptr ? state.backend->free_host(ptr) : MEMRA_OK;
  });
}

memra_status memra_memcpy(memra_engine* engine, void* dst, const void* src, uint64_t bytes,
                          memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    if (bytes == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_copy(dst, src, bytes));
    return state.backend->memcpy_async(dst, src, bytes, stream);
  });
}

memra_status memra_memset(memra_engine* engine, void* dst, int32_t value, uint64_t bytes,
                          memra_stream stream) {
  return memra::run_on(engine, [&](const EngineState& state) -> Status {
    if (bytes == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_pointer(dst, 1, "dst"));
    MEMRA_TRY(memra::check_area({.begin = dst, .item_bytes = bytes}, "dst"));
    return state.backend->memset_async(dst, value & 0xFF, bytes, stream);
  });
}

memra_status memra_memcpy_engines(memra_engine* dst_engine, void* dst, memra_engine* src_engine,
                                  const void* src, uint64_t bytes, memra_stream stream) {
  if (dst_engine == nullptr) return memra::missing_handle("dst_engine", "memra_engine_create");
  if (src_engine == nullptr) return memra::missing_handle("src_engine", "memra_engine_create");
  return memra::run_on(*dst_engine->state, [&]() -> Status {
    memra::Backend& to = *dst_engine->state->backend;
    memra::Backend& from = *src_engine->state->backend;
    MEMRA_TRY(memra::check_not_forked(*src_engine->state));
    MEMRA_TRY(memra::check_same_backend(from, "src_engine", to, "dst_engine"));
    if (bytes == 0) return MEMRA_OK;
    MEMRA_TRY(memra::check_copy(dst, src, bytes));
    return to.memcpy_from(from, dst, src, bytes, stream);
  });
}

}  // extern "C"
