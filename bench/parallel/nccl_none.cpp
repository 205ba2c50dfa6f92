// In place of NCCL where this program is built without it.
#include "parallel/transport.h"

namespace memra::bench::parallel {

bool has_nccl() {
  return false;
}

std::unique_ptr<Transport> make_nccl_transport(Group&, const Session&) {
  throw Failure("this program is built without NCCL");
}

}  // namespace memra::bench::parallel
