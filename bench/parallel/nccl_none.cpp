// In place of NCCL where this program is built without it.
#include "parallel/options.h"
#include "parallel/transport.h"

namespace memra::bench::parallel {

const char* const kTool = "moe-parallel-host";

bool has_nccl() {
  return false;
}

std::unique_ptr<Transport> make_nccl_transport(Group&, const Session&) {
  throw Failure("this program is built without NCCL");
}

}  // namespace memra::bench::parallel
