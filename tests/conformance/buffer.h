// Device memory of tests: filled with 0xFF (NaN as a float, -1 as an id), with guard bands on both
// sides, and with transfers that have finished when they return.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "conformance/engine.h"

namespace memra::test {

using Bytes = std::vector<std::uint8_t>;

template <typename T>
Bytes bytes_of(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
  return Bytes(begin, begin + values.size_bytes());
}
template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  return bytes_of(std::span<const T>(values));
}

// Names the first byte that differs.
::testing::AssertionResult same_bytes(const Bytes& expected, const Bytes& actual);

class Buffer {
 public:
  static constexpr std::int64_t kGuard = 64;
  static Bytes guard_bytes();  // what lies on either side

  Buffer() = default;
  // The data begins `skew` bytes after a multiple of MEMRA_WORKSPACE_ALIGNMENT.
  Buffer(Engine& engine, std::int64_t bytes, std::int64_t skew = 0);
  Buffer(Engine& engine, const Bytes& contents, std::int64_t skew = 0);
  template <typename T>
  Buffer(Engine& engine, const std::vector<T>& contents, std::int64_t skew = 0)
      : Buffer(engine, bytes_of(contents), skew) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::int64_t bytes() const { return bytes_; }
  std::uint8_t* data() const { return data_; }
  template <typename T>
  T* as(std::int64_t index = 0) const {
    return reinterpret_cast<T*>(data_) + index;
  }

  void fill(std::uint8_t value) const;
  void upload(const Bytes& contents, std::int64_t offset = 0) const;
  template <typename T>
  void upload_values(const std::vector<T>& values) const {
    upload(bytes_of(values));
  }
  Bytes download() const { return download(0, bytes_); }
  Bytes download(std::int64_t offset, std::int64_t bytes) const;
  template <typename T>
  std::vector<T> download_values() const {
    const Bytes raw = download();
    const auto* begin = reinterpret_cast<const T*>(raw.data());
    return std::vector<T>(begin, begin + raw.size() / sizeof(T));
  }

  ::testing::AssertionResult guards_intact() const;

 private:
  bool has_guards() const { return front_ != 0; }

  Engine* engine_ = nullptr;
  void* allocation_ = nullptr;
  std::uint8_t* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t front_ = 0;  // bytes before the data; 0: no guards
};

// A buffer that only the test writes, and what it must still hold in the end.
class Input {
 public:
  Input() = default;
  Input(Engine& engine, Bytes contents, std::int64_t skew = 0)
      : buffer_(engine, contents, skew), contents_(std::move(contents)) {}
  template <typename T>
  Input(Engine& engine, const std::vector<T>& values) : Input(engine, bytes_of(values)) {}

  const Buffer& buffer() const { return buffer_; }
  std::uint8_t* data() const { return buffer_.data(); }
  const Bytes& contents() const { return contents_; }
  void replace(Bytes contents);
  ::testing::AssertionResult intact(const char* name) const;

 private:
  Buffer buffer_;
  Bytes contents_;
};

}  // namespace memra::test
