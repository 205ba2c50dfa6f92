#include "emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace memra::emulation {
namespace {

constexpr size_t kStackBytes = size_t{192} << 10;
constexpr size_t kPageBytes = 4096;

}  // namespace

// A page that cannot be touched lies below the stack.
Fiber::Fiber() {
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kPageBytes, PROT_NONE);
  stack_ = static_cast<std::byte*>(memory);
}

Fiber::~Fiber() {
  munmap(stack_, kStackBytes);
}

#if defined(__x86_64__)

// swapcontext() asks the kernel for the signal mask each time, and a launch has millions of
// switches. This keeps what the ABI says a call keeps, and nothing else.
extern "C" void memra_emulation_switch(void** save, void* to);
asm(R"(
.pushsection .text
.globl memra_emulation_switch
.hidden memra_emulation_switch
.type memra_emulation_switch, @function
memra_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size memra_emulation_switch, .-memra_emulation_switch
.popsection
)");

void Fiber::restart(Entry entry) {
  constexpr int kSavedRegisters = 6;
  auto* top = reinterpret_cast<std::uint64_t*>(stack_ + kStackBytes);
  *--top = 0;  // the entry's return address: it has none, and its stack is aligned as after a call
  *--top = reinterpret_cast<std::uint64_t>(entry);
  for (int i = 0; i < kSavedRegisters; ++i)
    *--top = 0;
  here_ = top;
}

void Fiber::resume() {
  memra_emulation_switch(&caller_, here_);
}

void Fiber::suspend() {
  memra_emulation_switch(&here_, caller_);
}

#else

void Fiber::restart(Entry entry) {
  getcontext(&here_);
  here_.uc_stack.ss_sp = stack_;
  here_.uc_stack.ss_size = kStackBytes;
  here_.uc_link = nullptr;
  makecontext(&here_, entry, 0);
}

void Fiber::resume() {
  swapcontext(&caller_, &here_);
}

void Fiber::suspend() {
  swapcontext(&here_, &caller_);
}

#endif

}  // namespace memra::emulation
