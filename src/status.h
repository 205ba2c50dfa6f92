#pragma once

// Failures: a status plus a thread-local text, built without printf and without allocation.

#include <cstdint>
#include <string_view>

#include "memra.h"

namespace memra {

using Status = memra_status;

// Builds the text of memra_last_error() in the calling thread and converts to the status:
//   return fail(MEMRA_ERROR_INVALID_ARGUMENT) << "tokens is " << tokens << ": legal is 0 to " << n;
// Texts longer than the buffer are cut.
class Failure {
 public:
  explicit Failure(Status status);
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  Failure& operator<<(std::string_view text);
  Failure& operator<<(const char* text);
  Failure& operator<<(int value);
  Failure& operator<<(unsigned value);
  Failure& operator<<(long value);
  Failure& operator<<(unsigned long value);
  Failure& operator<<(long long value);
  Failure& operator<<(unsigned long long value);
  Failure& operator<<(double value);
  // Pointers print in hexadecimal.
  Failure& operator<<(const void* value);

  operator Status() const { return status_; }  // NOLINT: the conversion is the point

 private:
  Status status_;
};

inline Failure fail(Status status) { return Failure(status); }

const char* last_error();
const char* status_name(Status status);

}  // namespace memra

// Leaves the function with a failure that already has its text.
#define MEMRA_TRY(expression)                         \
  do {                                                \
    const ::memra::Status memra_try_ = (expression);  \
    if (memra_try_ != MEMRA_OK) return memra_try_;    \
  } while (false)
