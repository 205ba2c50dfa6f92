// What ran: the library and the device, as every report begins.
#pragma once

#include <cstdio>
#include <string>

#include "session.h"

namespace memra::bench {

// "moe-rows-ceiling, memra 0.1.0"
std::string tool_and_version(const std::string& tool);

// The tool, the version and the device.
void print_setup(std::FILE* out, const std::string& tool, const Session& session);

}  // namespace memra::bench
