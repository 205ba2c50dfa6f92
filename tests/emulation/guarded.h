// Memory for kernels, with guards on both sides: behind it a page that cannot be touched.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

namespace memra::emulation {

template <typename T>
class Guarded {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr size_t kAlignment = 128;

  explicit Guarded(size_t size, uint8_t fill = 0xFF) : size_(size) {
    const size_t room = (bytes() + kAlignment - 1) / kAlignment * kAlignment;
    usable_ = (room + kGuardBytes + kPage - 1) / kPage * kPage;
    void* const memory =
        mmap(nullptr, usable_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<uint8_t*>(memory);
    mprotect(memory_ + usable_, kPage, PROT_NONE);
    std::memset(memory_, kGuard, usable_);
    begin_ = memory_ + usable_ - room;
    std::memset(begin_, fill, bytes());
  }
  explicit Guarded(std::span<const T> values) : Guarded(values.size()) {
    if (size_ != 0) std::memcpy(begin_, values.data(), bytes());
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(std::span<const T>(values)) {}
  ~Guarded() { munmap(memory_, usable_ + kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return reinterpret_cast<T*>(begin_); }
  const T* data() const { return reinterpret_cast<const T*>(begin_); }
  size_t size() const { return size_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  std::vector<T> values() const { return std::vector<T>(data(), data() + size_); }

  // Nothing was written around it.
  bool intact() const {
    const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
    return std::all_of(memory_, begin_, is_guard) &&
           std::all_of(begin_ + bytes(), memory_ + usable_, is_guard);
  }

 private:
  static constexpr size_t kPage = 4096, kGuardBytes = 256;
  static constexpr uint8_t kGuard = 0xA5;

  size_t bytes() const { return size_ * sizeof(T); }

  size_t size_, usable_;
  uint8_t* memory_;
  uint8_t* begin_;
};

}  // namespace memra::emulation
