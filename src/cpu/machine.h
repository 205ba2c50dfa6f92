#pragma once

// Facts about the machine.

#include <cstdint>
#include <string>

namespace memra::cpu {

// Processors that this process may run on; at least 1.
int usable_processors();

// Marketing name of the processor, "unknown processor" where the system does not tell.
std::string processor_name();

// 0 where not known.
std::uint64_t memory_bytes();
std::uint64_t l2_bytes();

}  // namespace memra::cpu
