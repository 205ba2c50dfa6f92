#include "engine.h"

#include <unistd.h>

#include <limits>

#include "check.h"
#include "entry.h"
#include "environment.h"
#include "structs.h"

namespace memra {

bool is_forked(const EngineState& state) {
  return getpid() != state.pid;
}

Status check_not_forked(const EngineState& state) {
  if (!is_forked(state)) return MEMRA_OK;
  return fail(MEMRA_ERROR_FORKED) << "the engine was created by process " << state.pid
                                  << " and does not survive a fork: create one in process "
                                  << getpid();
}

namespace {

const char* backend_name(memra_backend kind) {
  return kind == MEMRA_BACKEND_CUDA ? "CUDA" : "CPU";
}

}  // namespace

Status check_same_backend(const Backend& backend, const char* name, const Backend& other,
                          const char* other_name) {
  if (backend.kind() == other.kind()) return MEMRA_OK;
  return invalid(name) << " is of backend " << backend_name(backend.kind()) << ": must be "
                       << backend_name(other.kind()) << ", as " << other_name;
}

namespace {

Status check_options(const memra_engine_options& options) {
  MEMRA_TRY(check_range(options.backend, MEMRA_BACKEND_AUTO, MEMRA_BACKEND_CPU, "backend"));
  MEMRA_TRY(check_range(options.device, 0, std::numeric_limits<int32_t>::max(), "device"));
  MEMRA_TRY(check_range(options.cpu_threads, 0, kMaxCpuThreads, "cpu_threads"));
  // Layers that do not accept the variant fall back, so formats do not matter here.
  MEMRA_TRY(check_variant(options.rows_variant, true, "rows_variant"));
  MEMRA_TRY(check_toggle(options.dependent_launch, "dependent_launch"));
  MEMRA_TRY(check_range(options.log_level, MEMRA_LOG_OFF, MEMRA_LOG_INFO, "log_level"));
  return check_reserved(options.reserved, "reserved");
}

// What a server can do without a GPU; anything else is not AUTO's to hide.
bool leads_to_cpu(Status status) {
  return status == MEMRA_ERROR_NO_DEVICE || status == MEMRA_ERROR_DRIVER_TOO_OLD ||
         status == MEMRA_ERROR_NO_KERNEL_IMAGE || status == MEMRA_ERROR_OUT_OF_MEMORY ||
         status == MEMRA_ERROR_CUDA;
}

Status make_cuda([[maybe_unused]] const BackendConfig& config,
                 [[maybe_unused]] std::shared_ptr<Backend>* backend) {
#if MEMRA_WITH_CUDA
  return make_cuda_backend(config, backend);
#else
  return fail(MEMRA_ERROR_NO_DEVICE) << "this library was built without CUDA";
#endif
}

// AUTO with a GPU that cannot be used: the reason is kept, and is not the caller's failure.
Status make_auto(BackendConfig config, EngineState* state) {
  char earlier_error[kErrorTextBytes];
  copy_text(last_error(), earlier_error, sizeof(earlier_error));
  const Status status = make_cuda(config, &state->backend);
  if (!leads_to_cpu(status)) return status;
  copy_text(last_error(), state->fallback_reason, sizeof(state->fallback_reason));
  set_last_error(earlier_error);
  state->backend.reset();
  config.device = 0;
  return make_cpu_backend(config, &state->backend);
}

Status make_backend(memra_backend kind, const BackendConfig& config, EngineState* state) {
  switch (kind) {
    case MEMRA_BACKEND_CUDA:
      return make_cuda(config, &state->backend);
    case MEMRA_BACKEND_CPU:
      MEMRA_TRY(check_range(config.device, 0, 0, "device"));
      return make_cpu_backend(config, &state->backend);
    default:
      return make_auto(config, state);
  }
}

void log_creation(const EngineState& state) {
  char line[kErrorTextBytes];
  if (state.fallback_reason[0] != '\0' && state.log.wants(MEMRA_LOG_WARNING)) {
    Text(line, sizeof(line)) << "backend AUTO took the CPU: " << state.fallback_reason;
    state.log.write(MEMRA_LOG_WARNING, line);
  }
  if (!state.log.wants(MEMRA_LOG_INFO)) return;
  memra_engine_properties properties{};
  state.backend->describe(properties);
  Text text(line, sizeof(line));
  if (properties.backend == MEMRA_BACKEND_CUDA) {
    text << "engine on CUDA device " << properties.device << ", " << properties.device_name;
  } else {
    text << "engine on the CPU, " << properties.cpu_threads << " threads, " << properties.simd;
  }
  state.log.write(MEMRA_LOG_INFO, line);
}

Status create(const memra_engine_options* caller_options, memra_engine** engine) {
  memra_engine_options options{};
  if (caller_options != nullptr) MEMRA_TRY(read_struct(caller_options, "options", &options));
  MEMRA_TRY(check_options(options));
  Environment environment;
  MEMRA_TRY(read_environment(&environment));

  auto state = std::make_shared<EngineState>();
  state->pid = getpid();
  state->log.callback = options.log;
  state->log.user = options.log_user;
  state->log.level = options.log_level != 0 ? options.log_level : environment.log_level;
  state->rows.default_variant = options.rows_variant;
  state->rows.preferred = environment.rows_preferred;
  state->rows.excluded = environment.rows_excluded;

  BackendConfig config;
  config.device = options.device;
  config.cpu_threads = options.cpu_threads != 0 ? options.cpu_threads : environment.cpu_threads;
  config.cpu_simd = environment.cpu_simd;
  config.dependent_launch = options.dependent_launch != MEMRA_OFF;
  const Status status =
      make_backend(options.backend != MEMRA_BACKEND_AUTO ? options.backend : environment.backend,
                   config, state.get());
  if (status != MEMRA_OK) {
    state->log.write(MEMRA_LOG_ERROR, last_error());
    return status;
  }
  log_creation(*state);
  *engine = new memra_engine{std::move(state)};
  return MEMRA_OK;
}

}  // namespace
}  // namespace memra

extern "C" {

memra_status memra_engine_create(const memra_engine_options* options, memra_engine** engine) {
  return memra::guarded([&]() -> memra::Status {
    MEMRA_TRY(memra::check_out(engine, "engine"));
    *engine = nullptr;
    return memra::create(options, engine);
  });
}

void memra_engine_destroy(memra_engine* engine) {
  memra::destroy_handle(engine, [&] { engine->state->backend->shutdown(); });
}

memra_status memra_engine_info(const memra_engine* engine, memra_engine_properties* properties) {
  return memra::run_on(engine, [&](const memra::EngineState& state) -> memra::Status {
    MEMRA_TRY(
        memra::check_struct(properties, memra::kStructKind<memra_engine_properties>, "properties"));
    memra_engine_properties full{};
    state.backend->describe(full);
    memra::copy_text(state.fallback_reason, full.fallback_reason, sizeof(full.fallback_reason));
    memra::write_struct(full, properties);
    return MEMRA_OK;
  });
}

}  // extern "C"
