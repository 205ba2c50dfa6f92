#include <nccl.h>

#include <cstdlib>
#include <exception>

#include "parallel/nccl_rows.h"
#include "parallel/options.h"
#include "parallel/transport.h"

namespace memra::bench::parallel {
namespace {

void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw Failure(std::string(call) + ": " + cudaGetErrorString(error));
}

void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw Failure(std::string(call) + ": " + ncclGetErrorString(result) + ": " +
                ncclGetLastError(nullptr));
}

ncclDataType_t nccl_type(memra_dtype dtype) {
  return dtype == MEMRA_F32 ? ncclFloat32 : ncclBfloat16;
}

// A stream of the library is one of CUDA.
cudaStream_t as_stream(memra_stream stream) {
  return static_cast<cudaStream_t>(stream);
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(Group& group, const Session& session) : ranks_(group.size()) {
    // NVLink multicast stays off unless the user wants it: a virtual machine may not have it.
    setenv("NCCL_NVLS_ENABLE", "0", 0);  // NOLINT(concurrency-mt-unsafe): before NCCL's threads
    // NCCL and the kernels use the current device; the library leaves it alone.
    check_cuda(cudaSetDevice(session.properties().device), "cudaSetDevice");
    ncclUniqueId id{};
    if (group.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    id = group.gather(id)[0];
    check_nccl(ncclCommInitRank(&comm_, ranks_, id, group.rank()), "ncclCommInitRank");
  }
  ~NcclTransport() override {
    // Of a rank that failed the others may be waiting for a message.
    std::uncaught_exceptions() > 0 ? ncclCommAbort(comm_) : ncclCommDestroy(comm_);
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  std::string name() const override {
    int version = 0;
    check_nccl(ncclGetVersion(&version), "ncclGetVersion");
    return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
           "." + std::to_string(version % 100);
  }

  void all_reduce(void* data, int64_t count, memra_dtype dtype, memra_stream stream) override {
    check_nccl(ncclAllReduce(data, data, static_cast<size_t>(count), nccl_type(dtype), ncclSum,
                             comm_, as_stream(stream)),
               "ncclAllReduce");
  }

  void dispatch(const RowExchange& rows, const void* x, void* received,
                memra_stream stream) override {
    check_cuda(gather_rows(x, rows.send_rows.as<const int32_t>(),
                           static_cast<int64_t>(rows.plan.send_rows.size()), rows.row_bytes,
                           rows.staging.as(), as_stream(stream)),
               "gather_rows");
    all_to_all(rows, rows.staging.as(), rows.plan.send_counts, received, rows.plan.receive_counts,
               stream);
  }

  void combine(const RowExchange& rows, const void* computed, void* y,
               memra_stream stream) override {
    all_to_all(rows, computed, rows.plan.receive_counts, rows.staging.as(), rows.plan.send_counts,
               stream);
    check_cuda(sum_rows(rows, rows.staging.as(), y, as_stream(stream)), "sum_rows");
  }

 private:
  void all_to_all(const RowExchange& rows, const void* from, const std::vector<int64_t>& send,
                  void* to, const std::vector<int64_t>& receive, memra_stream stream) const {
    const auto* source = static_cast<const char*>(from);
    auto* target = static_cast<char*>(to);
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    for (int rank = 0; rank < ranks_; ++rank) {
      const size_t out = static_cast<size_t>(send[static_cast<size_t>(rank)]) * rows.row_bytes;
      const size_t in = static_cast<size_t>(receive[static_cast<size_t>(rank)]) * rows.row_bytes;
      // Both sides know of an empty message.
      if (out > 0) {
        check_nccl(ncclSend(source, out, ncclUint8, rank, comm_, as_stream(stream)), "ncclSend");
      }
      if (in > 0) {
        check_nccl(ncclRecv(target, in, ncclUint8, rank, comm_, as_stream(stream)), "ncclRecv");
      }
      source += out;
      target += in;
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  }

  int ranks_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

const char* const kTool = "moe-parallel";

bool has_nccl() {
  return true;
}

std::unique_ptr<Transport> make_nccl_transport(Group& group, const Session& session) {
  return std::make_unique<NcclTransport>(group, session);
}

}  // namespace memra::bench::parallel
