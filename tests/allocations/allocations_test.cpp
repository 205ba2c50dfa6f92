// Hot calls allocate nothing: counted in this whole process, the library and its threads included.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "api_entries.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void count() {
  if (counting) ++allocations;
}
}  // namespace

// The allocator of the C library, beneath whichever operator new a library brings: one linked to
// the C++ library's archive has its own.
extern "C" {
void* __libc_malloc(std::size_t);                 // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t, std::size_t);    // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void*, std::size_t);         // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t, std::size_t);  // NOLINT(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) {
  count();
  return __libc_calloc(n, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
}

namespace memra::api_test {
namespace {

int allocations_of(const std::function<void()>& work) {
  allocations = 0;
  counting = true;
  work();
  counting = false;
  return allocations;
}

TEST(Allocations, AreCounted) {
  // Volatile, or a compiler may leave both calls out.
  EXPECT_EQ(allocations_of([] {
              void* volatile memory = ::operator new(4);
              ::operator delete(memory);
            }),
            1);
  EXPECT_EQ(allocations_of([] {
              void* memory = nullptr;
              EXPECT_EQ(posix_memalign(&memory, 64, 4), 0);
              void* volatile kept = memory;
              std::free(kept);
            }),
            1);
  // The library's own, too: an engine cannot be made without any.
  memra_engine_options options = MEMRA_ENGINE_OPTIONS_INIT;
  options.backend = MEMRA_BACKEND_CPU;
  memra_engine* engine = nullptr;
  EXPECT_GT(allocations_of([&] { memra_engine_create(&options, &engine); }), 0);
  memra_engine_destroy(engine);
}

TEST(Allocations, HotCallsHaveNone) {
  int hot = 0;
  for (const memra_format format : {MEMRA_NVFP4, MEMRA_NVFP4_V2}) {
    World world(format);
    ASSERT_TRUE(world.ok());
    for (const auto& make :
         {moe_rows_entry, moe_grouped_entry, moe_either_entry, topk_entry, route_entry,
          gather_entry, gemm_entry, q8_entry, gate_up_entry, down_entry}) {
      const Entry entry = make(world);
      ++hot;
      ASSERT_EQ(entry.call(entry.valid.data()), MEMRA_OK) << entry.name << memra_last_error();
      EXPECT_EQ(allocations_of([&] {
                  for (int i = 0; i < 100; ++i)
                    (void)entry.call(entry.valid.data());
                }),
                0)
          << entry.name;
    }
  }
  EXPECT_EQ(hot, 20);
}

}  // namespace
}  // namespace memra::api_test
