// Sums and rows that travel among the ranks' devices.
#pragma once

#include <memory>
#include <string>

#include "parallel/group.h"
#include "parallel/split.h"
#include "session.h"

namespace memra::bench::parallel {

inline size_t dtype_bytes(memra_dtype dtype) {
  return dtype == MEMRA_F32 ? 4 : 2;
}

// A token plan, and what a rank needs on its device to follow it.
struct RowExchange {
  RowExchange(const Session& session, TokenPlan token_plan, int64_t columns, memra_dtype type);

  TokenPlan plan;
  int64_t columns;
  memra_dtype dtype;
  size_t row_bytes;
  Memory send_rows, sum_offsets, sum_places;
  Memory staging;  // the rows sent, then the sums that come back for them
};

// Data is f32 or bf16 memory of the device. What a call does comes after what is on the stream, and
// before what is enqueued on it later; it need not wait for the device. All ranks make the same
// calls in the same order. A rank's data may be empty.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  // The sum over all ranks, in place.
  virtual void all_reduce(void* data, int64_t count, memra_dtype dtype, memra_stream stream) = 0;
  // Rows of x by the plan's send_rows, to `received` in order of arrival.
  virtual void dispatch(const RowExchange& rows, const void* x, void* received,
                        memra_stream stream) = 0;
  // The same rows back, and y[row] = the sum of what came back for it.
  virtual void combine(const RowExchange& rows, const void* computed, void* y,
                       memra_stream stream) = 0;
};

// Over the hosts, and by their processors. Waits inside its calls.
std::unique_ptr<Transport> make_host_transport(Group& group, const Session& session);

// Whether this program is built with NCCL.
bool has_nccl();
// For CUDA engines, each on a device of its own. Throws Failure without NCCL.
std::unique_ptr<Transport> make_nccl_transport(Group& group, const Session& session);

}  // namespace memra::bench::parallel
