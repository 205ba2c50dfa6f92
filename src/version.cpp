// Version, build facts, and the texts of statuses and failures.

#include "backend.h"
#include "entry.h"
#include "memra.h"
#include "structs.h"

#define MEMRA_QUOTE_(text) #text
#define MEMRA_QUOTE(text) MEMRA_QUOTE_(text)

namespace memra {
namespace {

constexpr const char kVersion[] = MEMRA_QUOTE(MEMRA_VERSION_MAJOR) "." MEMRA_QUOTE(
    MEMRA_VERSION_MINOR) "." MEMRA_QUOTE(MEMRA_VERSION_PATCH);

#if defined(__clang__)
constexpr const char kCompiler[] = __VERSION__;
#elif defined(__GNUC__)
constexpr const char kCompiler[] = "GCC " __VERSION__;
#else
constexpr const char kCompiler[] = "";
#endif

void describe_build(memra_build_properties& properties) {
#if MEMRA_WITH_CUDA
  properties.with_cuda = 1;
  properties.cuda_version = cuda_runtime_version();
  copy_text(cuda_archs(), properties.cuda_archs, sizeof(properties.cuda_archs));
#endif
  copy_text(kVersion, properties.version, sizeof(properties.version));
  copy_text(cpu_simd_paths(), properties.simd, sizeof(properties.simd));
  copy_text(kCompiler, properties.compiler, sizeof(properties.compiler));
}

}  // namespace
}  // namespace memra

extern "C" {

uint32_t memra_version(void) {
  return MEMRA_VERSION;
}

memra_status memra_build_info(memra_build_properties* properties) {
  return memra::guarded([&]() -> memra::Status {
    MEMRA_TRY(
        memra::check_struct(properties, memra::kStructKind<memra_build_properties>, "properties"));
    memra_build_properties full{};
    memra::describe_build(full);
    memra::write_struct(full, properties);
    return MEMRA_OK;
  });
}

const char* memra_status_string(memra_status status) {
  return memra::status_name(status);
}

const char* memra_last_error(void) {
  return memra::last_error();
}

}  // extern "C"
