#include "status.h"

namespace memra {

namespace {

// Zero-initialised and trivially destroyed: safe in any thread at any time, exit included.
thread_local char error_text[kErrorTextBytes];

}  // namespace

Failure::Failure(Status status) : status_(status), text_(error_text, kErrorTextBytes) {}

Failure::Failure(Status status, std::string_view scope, std::string_view field) : Failure(status) {
  if (!scope.empty()) text_ << scope << ".";
  text_ << field;
}

const char* last_error() {
  return error_text;
}

void set_last_error(std::string_view text) {
  copy_text(text, error_text, kErrorTextBytes);
}

const char* status_name(Status status) {
  switch (status) {
    case MEMRA_OK:
      return "MEMRA_OK";
    case MEMRA_NOT_READY:
      return "MEMRA_NOT_READY";
    case MEMRA_ERROR_INVALID_ARGUMENT:
      return "MEMRA_ERROR_INVALID_ARGUMENT";
    case MEMRA_ERROR_UNSUPPORTED:
      return "MEMRA_ERROR_UNSUPPORTED";
    case MEMRA_ERROR_OUT_OF_MEMORY:
      return "MEMRA_ERROR_OUT_OF_MEMORY";
    case MEMRA_ERROR_WORKSPACE_TOO_SMALL:
      return "MEMRA_ERROR_WORKSPACE_TOO_SMALL";
    case MEMRA_ERROR_NO_DEVICE:
      return "MEMRA_ERROR_NO_DEVICE";
    case MEMRA_ERROR_DRIVER_TOO_OLD:
      return "MEMRA_ERROR_DRIVER_TOO_OLD";
    case MEMRA_ERROR_NO_KERNEL_IMAGE:
      return "MEMRA_ERROR_NO_KERNEL_IMAGE";
    case MEMRA_ERROR_CUDA:
      return "MEMRA_ERROR_CUDA";
    case MEMRA_ERROR_FORKED:
      return "MEMRA_ERROR_FORKED";
    case MEMRA_ERROR_INVALID_STATE:
      return "MEMRA_ERROR_INVALID_STATE";
    case MEMRA_ERROR_INTERNAL:
      return "MEMRA_ERROR_INTERNAL";
    default:
      return "unknown status";
  }
}

}  // namespace memra
