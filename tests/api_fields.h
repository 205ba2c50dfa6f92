// Fields of argument structs, and what is wrong and right for each kind.
#pragma once

#include "api_world.h"

namespace memra::api_test {

inline constexpr int64_t kNever = int64_t{1} << 62;  // a stride or size that no memory holds

#define MEMRA_FIELD(Struct, field) #field, offsetof(Struct, field)

inline Field number32(const char* name, std::size_t offset, std::vector<int64_t> wrong,
                      std::vector<int64_t> right = {}) {
  return {name, offset, FieldType::kInt32, std::move(wrong), std::move(right)};
}
inline Field number64(const char* name, std::size_t offset, std::vector<int64_t> wrong,
                      std::vector<int64_t> right = {}) {
  return {name, offset, FieldType::kInt64, std::move(wrong), std::move(right)};
}
inline Field pointer(const char* name, std::size_t offset, std::size_t alignment,
                     bool optional = false) {
  return {name, offset, FieldType::kPointer, {}, {}, alignment, optional};
}

inline Field struct_pointer(const char* name, std::size_t offset) {
  Field field = pointer(name, offset, 8);
  field.to_struct = true;
  return field;
}

inline std::vector<int64_t> wrong_dimensions(int64_t multiple) {
  return {-multiple, multiple / 2, multiple + 1, 100, MEMRA_MAX_DIMENSION + multiple,
          INT64_MIN, INT64_MAX};
}
inline Field dimension(const char* name, std::size_t offset, int64_t multiple,
                       std::vector<int64_t> right = {}) {
  std::vector<int64_t> wrong = wrong_dimensions(multiple);
  wrong.push_back(0);
  return number64(name, offset, wrong, std::move(right));
}
// Zero rows and zero matrices are no work.
inline Field rows(const char* name, std::size_t offset, int64_t multiple) {
  return number64(name, offset, wrong_dimensions(multiple), {0});
}

inline const std::vector<int64_t> kWrongDtypes = {-1, 3, INT32_MAX, INT32_MIN};
inline const std::vector<int64_t> kWrongFormats = {-1, 0, 8, 106, 108, INT32_MAX};

}  // namespace memra::api_test
