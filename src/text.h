#pragma once

// Texts in fixed buffers: no allocation, no printf, no locale.

#include <cstddef>
#include <string_view>

namespace memra {

// Appends to a buffer that stays terminated by a zero. What does not fit is cut.
class Text {
 public:
  Text(char* buffer, std::size_t capacity) : buffer_(buffer), capacity_(capacity) {
    buffer_[0] = '\0';
  }

  Text& operator<<(std::string_view text);
  Text& operator<<(const char* text);
  Text& operator<<(int value);
  Text& operator<<(unsigned value);
  Text& operator<<(long value);
  Text& operator<<(unsigned long value);
  Text& operator<<(long long value);
  Text& operator<<(unsigned long long value);
  // The shortest digits that read back as the same value.
  Text& operator<<(float value);
  Text& operator<<(double value);
  // Hexadecimal; NULL by name.
  Text& operator<<(const void* value);

 private:
  template <typename T>
  Text& append_number(T value, int base);

  char* buffer_;
  std::size_t capacity_;
  std::size_t length_ = 0;
};

// Copies what fits, and terminates it.
void copy_text(std::string_view text, char* buffer, std::size_t capacity);

}  // namespace memra
