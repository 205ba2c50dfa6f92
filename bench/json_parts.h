// What the JSON of the benchmarks has in common.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "session.h"
#include "stats.h"

namespace memra::bench {

nlohmann::json to_json(const Summary& us);
nlohmann::json library_json();
nlohmann::json device_json(const Session& session);

// Throws Failure where a file cannot be written to: now rather than after minutes of measuring.
// `option` is the one that named it.
void require_writable(const std::string& path, const char* option = "--json");

// To a file, or to stdout where the path is "-". Throws Failure where it cannot be written.
void write_document(const nlohmann::json& document, const std::string& path,
                    const char* option = "--json");

}  // namespace memra::bench
