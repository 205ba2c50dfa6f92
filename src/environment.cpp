#include "environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "backend.h"

namespace memra {

namespace {

struct Word {
  std::string_view text;
  int32_t value;
};

constexpr Word kBackends[] = {
    {"auto", MEMRA_BACKEND_AUTO}, {"cuda", MEMRA_BACKEND_CUDA}, {"cpu", MEMRA_BACKEND_CPU}};
constexpr Word kLogLevels[] = {{"off", MEMRA_LOG_OFF},
                               {"error", MEMRA_LOG_ERROR},
                               {"warning", MEMRA_LOG_WARNING},
                               {"info", MEMRA_LOG_INFO}};

struct RowsVariable {
  const char* name;
  uint32_t variant;
};

constexpr RowsVariable kRowsVariables[] = {
    {"MEMRA_MOE_VROWS_ILP", MEMRA_ROWS_ILP},
    {"MEMRA_MOE_VROWS_ORD", MEMRA_ROWS_ORD},
    {"MEMRA_MOE_VROWS_DEDUP_ORDER", MEMRA_ROWS_DEDUP_ORDER},
    {"MEMRA_MOE_VROWS_PACK", MEMRA_ROWS_PACK},
};

// The one getenv of the library.
const char* variable(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
}

template <std::size_t kCount>
Status read_word(const char* name, const Word (&words)[kCount], int32_t* value) {
  const char* text = variable(name);
  if (text == nullptr) return MEMRA_OK;
  for (const Word& word : words) {
    if (word.text == text) {
      *value = word.value;
      return MEMRA_OK;
    }
  }
  Failure failure(MEMRA_ERROR_INVALID_ARGUMENT);
  failure << "environment variable " << name << " is \"" << text << "\": legal is";
  for (const Word& word : words)
    failure << " " << word.text;
  return failure;
}

Status read_number(const char* name, int32_t highest, int32_t* value) {
  const char* text = variable(name);
  if (text == nullptr) return MEMRA_OK;
  const char* end = text + std::char_traits<char>::length(text);
  int32_t number = 0;
  const auto [rest, error] = std::from_chars(text, end, number);
  if (error != std::errc() || rest != end || number < 0 || number > highest) {
    return fail(MEMRA_ERROR_INVALID_ARGUMENT) << "environment variable " << name << " is \"" << text
                                              << "\": legal is 0 to " << highest;
  }
  *value = number;
  return MEMRA_OK;
}

// One of the words of `legal`, which blanks keep apart.
Status read_name(const char* name, std::string_view legal, std::string* value) {
  const char* text = variable(name);
  if (text == nullptr) return MEMRA_OK;
  for (std::string_view rest = legal; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (word == text) {
      *value = word;
      return MEMRA_OK;
    }
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return fail(MEMRA_ERROR_INVALID_ARGUMENT)
         << "environment variable " << name << " is \"" << text << "\": legal is " << legal;
}

}  // namespace

Status read_environment(Environment* environment) {
  MEMRA_TRY(read_word("MEMRA_BACKEND", kBackends, &environment->backend));
  MEMRA_TRY(read_number("MEMRA_CPU_THREADS", kMaxCpuThreads, &environment->cpu_threads));
  MEMRA_TRY(read_name("MEMRA_CPU_SIMD", cpu_simd_paths(), &environment->cpu_simd));
  MEMRA_TRY(read_word("MEMRA_LOG", kLogLevels, &environment->log_level));
  for (const RowsVariable& entry : kRowsVariables) {
    int32_t choice = -1;
    MEMRA_TRY(read_number(entry.name, 1, &choice));
    if (choice == 1) environment->rows_preferred |= entry.variant;
    if (choice == 0) environment->rows_excluded |= entry.variant;
  }
  return MEMRA_OK;
}

}  // namespace memra
