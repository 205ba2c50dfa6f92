#include "text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace memra {

Text& Text::operator<<(std::string_view text) {
  const std::size_t size = std::min(text.size(), capacity_ - 1 - length_);
  std::memcpy(buffer_ + length_, text.data(), size);
  length_ += size;
  buffer_[length_] = '\0';
  return *this;
}

Text& Text::operator<<(const char* text) {
  return *this << std::string_view(text != nullptr ? text : "(null)");
}

template <typename T>
Text& Text::append_number(T value, [[maybe_unused]] int base) {
  char digits[64];
  std::to_chars_result result{};
  if constexpr (std::is_floating_point_v<T>) {
    result = std::to_chars(digits, digits + sizeof(digits), value);
  } else {
    result = std::to_chars(digits, digits + sizeof(digits), value, base);
  }
  return *this << std::string_view(digits, static_cast<std::size_t>(result.ptr - digits));
}

Text& Text::operator<<(int value) {
  return append_number(value, 10);
}
Text& Text::operator<<(unsigned value) {
  return append_number(value, 10);
}
Text& Text::operator<<(long value) {
  return append_number(value, 10);
}
Text& Text::operator<<(unsigned long value) {
  return append_number(value, 10);
}
Text& Text::operator<<(long long value) {
  return append_number(value, 10);
}
Text& Text::operator<<(unsigned long long value) {
  return append_number(value, 10);
}
Text& Text::operator<<(float value) {
  return append_number(value, 10);
}
Text& Text::operator<<(double value) {
  return append_number(value, 10);
}

Text& Text::operator<<(const void* value) {
  if (value == nullptr) return *this << "NULL";
  *this << "0x";
  return append_number(reinterpret_cast<std::uintptr_t>(value), 16);
}

void copy_text(std::string_view text, char* buffer, std::size_t capacity) {
  Text(buffer, capacity) << text;
}

}  // namespace memra
