#include "json_parts.h"

#include <cstdio>
#include <fstream>

namespace memra::bench {

using nlohmann::json;

json to_json(const Summary& us) {
  return {{"median", us.median}, {"min", us.min}, {"max", us.max}};
}

json library_json() {
  memra_build_properties build = MEMRA_BUILD_PROPERTIES_INIT;
  check(memra_build_info(&build), "memra_build_info");
  return {{"version", build.version},
          {"cuda_version", build.cuda_version},
          {"cuda_archs", build.cuda_archs},
          {"compiler", build.compiler}};
}

json device_json(const Session& session) {
  const memra_engine_properties& engine = session.properties();
  return {{"backend", session.on_cpu() ? "cpu" : "cuda"},
          {"name", engine.device_name},
          {"index", engine.device},
          {"compute_capability", engine.compute_capability},
          {"threads", engine.cpu_threads},
          {"simd", engine.simd},
          {"driver_version", engine.driver_version},
          {"dependent_launch", engine.dependent_launch != 0}};
}

namespace {

Failure cannot_write(const char* option, const std::string& path) {
  return Failure(std::string(option) + ": cannot write '" + path + "'");
}

}  // namespace

void require_writable(const std::string& path, const char* option) {
  if (path.empty() || path == "-") return;
  if (!std::ofstream(path, std::ios::app)) throw cannot_write(option, path);
}

void write_document(const json& document, const std::string& path, const char* option) {
  // Paths and device names may hold any bytes: they must not make the dump fail.
  const std::string text = document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw cannot_write(option, path);
}

}  // namespace memra::bench
