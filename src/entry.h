#pragma once

// What every entry of the ABI does around its work: no exception leaves the library, a forked
// engine is refused, failures reach the engine's log.

#include <exception>
#include <new>
#include <utility>

#include "engine.h"
#include "memra.h"
#include "status.h"

namespace memra {

template <typename Body>
Status guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return fail(MEMRA_ERROR_OUT_OF_MEMORY) << "out of host memory";
  } catch (const std::exception& e) {
    return fail(MEMRA_ERROR_INTERNAL) << "unexpected exception: " << e.what();
  } catch (...) {
    return fail(MEMRA_ERROR_INTERNAL) << "unexpected exception";
  }
}

inline Status missing_handle(const char* name, const char* maker) {
  return fail(MEMRA_ERROR_INVALID_ARGUMENT) << name << " is NULL: must come from " << maker;
}

// body() of an entry on some handle of the engine.
template <typename Body>
Status run_on(const EngineState& state, Body&& body) noexcept {
  const Status status = guarded([&]() -> Status {
    MEMRA_TRY(check_not_forked(state));
    return body();
  });
  if (status > MEMRA_NOT_READY) state.log.write(MEMRA_LOG_ERROR, last_error());
  return status;
}

// body(state) of an entry on an engine.
template <typename Body>
Status run_on(const memra_engine* engine, Body&& body) noexcept {
  if (engine == nullptr) return missing_handle("engine", "memra_engine_create");
  return run_on(*engine->state, [&] { return body(*engine->state); });
}

// Where a stage stands that its caller enqueues by itself.
inline Launch stage_launch(uint32_t flags, memra_stream stream) {
  return {
      .stream = stream, .chained = false, .inputs_stable = (flags & MEMRA_FLAG_INPUTS_STABLE) != 0};
}

// Ends a handle: NULL is fine, and in a forked child, whose threads and contexts are gone, it is
// only forgotten.
template <typename Handle, typename BeforeEnd>
void destroy_handle(Handle* handle, BeforeEnd&& before_end) noexcept {
  if (handle == nullptr || is_forked(*handle->state)) return;
  try {
    before_end();
    delete handle;
  } catch (...) {  // NOLINT(bugprone-empty-catch): nobody could be told
  }
}

template <typename Handle>
void destroy_handle(Handle* handle) noexcept {
  destroy_handle(handle, [] {});
}

}  // namespace memra
