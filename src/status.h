#pragma once

// Failures: a status plus a thread-local text, built without printf and without allocation.

#include <cstddef>
#include <string_view>

#include "memra.h"
#include "text.h"

namespace memra {

using Status = memra_status;

// Builds the text of memra_last_error() in the calling thread and converts to the status:
//   return fail(MEMRA_ERROR_INVALID_ARGUMENT) << "tokens is " << tokens << ": legal is 0 to " << n;
// Texts longer than the buffer are cut. What << takes is what Text takes; pointers print in
// hexadecimal.
class Failure {
 public:
  explicit Failure(Status status);
  // Begins the text with "scope.field", or "field" where the scope is empty.
  Failure(Status status, std::string_view scope, std::string_view field);
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  template <typename T>
  Failure& operator<<(const T& value) {
    text_ << value;
    return *this;
  }

  operator Status() const { return status_; }  // NOLINT: the conversion is the point

 private:
  Status status_;
  Text text_;
};

inline Failure fail(Status status) {
  return Failure(status);
}

inline constexpr std::size_t kErrorTextBytes = 512;

const char* last_error();
// Puts an earlier text back, after a failure that is handled inside a call that succeeds.
void set_last_error(std::string_view text);
const char* status_name(Status status);

}  // namespace memra

// Leaves the function with a failure that already has its text.
#define MEMRA_TRY(expression)                        \
  do {                                               \
    const ::memra::Status memra_try_ = (expression); \
    if (memra_try_ != MEMRA_OK) return memra_try_;   \
  } while (false)
