#pragma once

#include <functional>
#include <thread>

#include "status.h"

namespace memra::cpu {

// Starts a thread that receives no signals: handlers are the host's business, in the host's
// threads. Failure to start one is OUT_OF_MEMORY.
Status start_thread(std::thread* thread, std::function<void()> body);

}  // namespace memra::cpu
