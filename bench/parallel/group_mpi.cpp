#include "parallel/groups.h"
#include "session.h"

#ifdef MEMRA_BENCH_WITH_MPI
#include <mpi.h>

#include <climits>
#endif

namespace memra::bench::parallel {

#ifdef MEMRA_BENCH_WITH_MPI
namespace {

void check_mpi(int result, const char* call) {
  if (result != MPI_SUCCESS) throw Failure(std::string(call) + " failed");
}

// MPI while it is up, and where that puts this process.
struct MpiLife {
  Place place;

  MpiLife() {
    check_mpi(MPI_Init(nullptr, nullptr), "MPI_Init");
    MPI_Comm local = MPI_COMM_NULL;
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &place.size), "MPI_Comm_size");
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
              "MPI_Comm_split_type");
    check_mpi(MPI_Comm_rank(local, &place.local_rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(local, &place.local_size), "MPI_Comm_size");
    MPI_Comm_free(&local);
  }
  ~MpiLife() {
    // Finalising waits for the others, which a rank that has failed must not make wait for ever.
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
  }
  MpiLife(const MpiLife&) = delete;
  MpiLife& operator=(const MpiLife&) = delete;

  bool failed = false;
};

class MpiGroup final : public Group {
 public:
  explicit MpiGroup(std::unique_ptr<MpiLife> life) : Group(life->place), life_(std::move(life)) {}
  ~MpiGroup() override { life_->failed = is_failing(); }

  std::vector<Bytes> exchange(const Bytes& mine) override {
    const auto n = static_cast<size_t>(size());
    if (mine.size() > INT_MAX / n) throw Failure("a message is too long for MPI");
    const int bytes = static_cast<int>(mine.size());
    std::vector<int> counts(n);
    check_mpi(MPI_Allgather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, MPI_COMM_WORLD),
              "MPI_Allgather");
    std::vector<int> offsets(n);
    int64_t total = 0;
    for (size_t r = 0; r < n; ++r) {
      offsets[r] = static_cast<int>(total);
      total += counts[r];
    }
    if (total > INT_MAX) throw Failure("messages are too long for MPI");
    Bytes joined(static_cast<size_t>(total));
    check_mpi(MPI_Allgatherv(mine.data(), bytes, MPI_BYTE, joined.data(), counts.data(),
                             offsets.data(), MPI_BYTE, MPI_COMM_WORLD),
              "MPI_Allgatherv");
    std::vector<Bytes> all;
    for (size_t r = 0; r < n; ++r) {
      const std::byte* part = joined.data() + offsets[r];
      all.emplace_back(part, part + counts[r]);
    }
    return all;
  }

 private:
  std::unique_ptr<MpiLife> life_;
};

}  // namespace

bool has_mpi() {
  return true;
}

std::unique_ptr<Group> join_mpi() {
  return std::make_unique<MpiGroup>(std::make_unique<MpiLife>());
}

#else

bool has_mpi() {
  return false;
}

std::unique_ptr<Group> join_mpi() {
  throw Failure("this program is built without MPI");
}

#endif

}  // namespace memra::bench::parallel
