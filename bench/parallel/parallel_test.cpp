// How ranks meet and share a layer; a thread for each rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "parallel/layer.h"
#include "parallel/measure.h"
#include "routing.h"

namespace memra::bench::parallel {
namespace {

std::string fresh_folder() {
  static int number = 0;
  return testing::TempDir() + "memra-parallel-" + std::to_string(getpid()) + "-" +
         std::to_string(number++);
}

// Runs each rank in a thread of its own; what a rank throws is a failure of the test.
void run_ranks(int size, const std::string& where, const std::function<void(Group&)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const std::unique_ptr<Group> group = join({where}, {rank, size, rank, size});
        work(*group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

Bytes bytes_of(int rank, int round) {
  // Lengths from none to many, different for each rank and round.
  const size_t size = static_cast<size_t>(rank * round) * 1000;
  return Bytes(size, static_cast<std::byte>(16 * rank + round));
}

void talk(Group& group) {
  for (int round = 0; round < 10; ++round) {
    const std::vector<Bytes> all = group.exchange(bytes_of(group.rank(), round));
    ASSERT_EQ(all.size(), static_cast<size_t>(group.size()));
    for (int rank = 0; rank < group.size(); ++rank)
      EXPECT_EQ(all[static_cast<size_t>(rank)], bytes_of(rank, round));
  }
  const std::vector<int> ranks = group.gather(group.rank());
  for (int rank = 0; rank < group.size(); ++rank)
    EXPECT_EQ(ranks[static_cast<size_t>(rank)], rank);
}

TEST(Group, TalksThroughFilesAndLeavesNone) {
  const std::string folder = fresh_folder();
  run_ranks(3, "file:" + folder, talk);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Group, TalksOverTcp) {
  // Any port will do, and another process may have taken this one.
  const int port = 20000 + getpid() % 20000;
  run_ranks(4, "tcp:127.0.0.1:" + std::to_string(port), talk);
}

TEST(Group, AloneNeedsNoMeeting) {
  run_ranks(1, "", talk);
}

TEST(Group, AFolderOfAnotherRunIsRefused) {
  const std::string folder = fresh_folder();
  std::filesystem::create_directory(folder);
  EXPECT_THROW(join({"file:" + folder}, {0, 2, 0, 2}), Failure);
  std::filesystem::remove(folder);
}

TEST(Group, WhoDoesNotComeIsNotWaitedForForEver) {
  const Meeting files = {"file:" + fresh_folder(), std::chrono::milliseconds(50)};
  EXPECT_THROW(join(files, {1, 2, 1, 2}), Failure);
  const Meeting tcp = {"tcp:127.0.0.1:9", std::chrono::milliseconds(50)};
  EXPECT_THROW(join(tcp, {1, 2, 1, 2}), Failure);
}

TEST(Group, MeetingsAreChecked) {
  for (const char* good : {"tcp:host:1", "tcp:10.0.0.1:65535", "tcp:[::1]:29500", "file:/tmp/x"})
    EXPECT_EQ(meeting_objection(good), "") << good;
  for (const char* bad : {"", "x", "tcp:", "tcp:host", "tcp:host:", "tcp::1", "tcp:host:0",
                          "tcp:host:65536", "tcp:host:1x", "file:"}) {
    EXPECT_NE(meeting_objection(bad), "") << bad;
  }
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe): no other thread
  }
  ~Variable() { unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe): no other thread
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Place, IsReadFromTheEnvironment) {
  Place place;
  EXPECT_EQ(read_place(&place), "");
  EXPECT_EQ(place.size, 1);
  const Variable open_mpi_rank("OMPI_COMM_WORLD_RANK", "1");
  const Variable open_mpi_size("OMPI_COMM_WORLD_SIZE", "2");
  EXPECT_EQ(read_place(&place), "");
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  const Variable rank("RANK", "5");
  EXPECT_NE(read_place(&place), "");
  const Variable size("WORLD_SIZE", "8");
  EXPECT_EQ(read_place(&place), "");
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.local_rank, 5);
  const Variable local_rank("LOCAL_RANK", "1");
  EXPECT_EQ(read_place(&place), "");
  EXPECT_EQ(place.local_rank, 1);
  for (const char* wrong : {"8", "-1", "text", "1.5", ""}) {
    const Variable bad("RANK", wrong);
    EXPECT_NE(read_place(&place).find("RANK"), std::string::npos) << wrong;
  }
}

TEST(Place, MeetsWhereTorchrunSays) {
  EXPECT_EQ(usual_meeting(), "");
  const Variable address("MASTER_ADDR", "node7");
  const Variable port("MASTER_PORT", "29500");
  EXPECT_EQ(usual_meeting(), "tcp:node7:29500");
  const Variable torchrun("TORCHELASTIC_RUN_ID", "none");
  EXPECT_EQ(usual_meeting(), "tcp:node7:29501");
}

TEST(Split, PartsCoverTheWholeAndDifferByAUnit) {
  for (const int parts : {1, 2, 3, 7}) {
    int64_t next = 0;
    for (int i = 0; i < parts; ++i) {
      const Range part = part_of(1280, parts, i, 64);
      EXPECT_EQ(part.begin, next);
      EXPECT_EQ(part.count % 64, 0);
      EXPECT_LE(std::abs(part.count - 1280 / parts), 64);
      next += part.count;
    }
    EXPECT_EQ(next, 1280);
  }
  EXPECT_EQ(part_of(3, 8, 0), (Range{0, 0}));
}

TEST(Split, EveryTokenReachesItsExpertsAndComesBack) {
  const Shape shape = {64, 64, 10, 3, 29};
  const std::vector<int32_t> ids = hashed_experts(shape, 1.35);
  constexpr int kRanks = 3;
  constexpr int kParts = 2;
  for (int part = 0; part < kParts; ++part) {
    std::vector<TokenPlan> plans;
    plans.reserve(kRanks);
    for (int rank = 0; rank < kRanks; ++rank)
      plans.push_back(make_token_plan(shape, ids, kRanks, rank, kParts, part));
    for (int from = 0; from < kRanks; ++from) {
      const TokenPlan& sender = plans[static_cast<size_t>(from)];
      const Range own = own_tokens(shape.tokens, kRanks, from, kParts, part);
      EXPECT_EQ(sender.n_own(), own.count);
      std::multiset<int32_t> summed(sender.sum_places.begin(), sender.sum_places.end());
      EXPECT_EQ(summed.size(), sender.send_rows.size());
      int64_t place = 0;
      for (int to = 0; to < kRanks; ++to) {
        const TokenPlan& receiver = plans[static_cast<size_t>(to)];
        const int64_t count = sender.send_counts[static_cast<size_t>(to)];
        ASSERT_EQ(count, receiver.receive_counts[static_cast<size_t>(from)]);
        int64_t arrival = 0;
        for (int r = 0; r < from; ++r)
          arrival += receiver.receive_counts[static_cast<size_t>(r)];
        const Range experts = share_of(Scheme::kExpertAllToAll, shape, kRanks, to).experts;
        for (int64_t i = 0; i < count; ++i, ++place) {
          const int64_t token = own.begin + sender.send_rows[static_cast<size_t>(place)];
          EXPECT_EQ(token, receiver.received[static_cast<size_t>(arrival + i)]);
          const auto first = ids.begin() + token * shape.top_k;
          EXPECT_TRUE(std::any_of(first, first + shape.top_k, [&](int32_t id) {
            return id >= experts.begin && id < experts.begin + experts.count;
          }));
        }
      }
    }
  }
}

// The whole way, on small CPU engines: what every scheme sums up to is the layer of one device.
TEST(ParallelLayer, SumsAreThoseOfOneDevice) {
  const Shape shape = {128, 192, 7, 3, 11};
  run_ranks(3, "file:" + fresh_folder(), [&](Group& group) {
    const Session session({MEMRA_BACKEND_CPU, 0, 1});
    const std::unique_ptr<Transport> transport = make_host_transport(group, session);
    const LayerFixture whole(session, shape, {});
    for (const memra_dtype dtype : {MEMRA_F32, MEMRA_BF16}) {
      for (const memra_path path : {MEMRA_PATH_ROWS, MEMRA_PATH_GROUPED}) {
        const Call call = make_call(shape, path, dtype);
        const OneDevice one = measure_one_device(group, &whole, session, call, {1, 1});
        for (const Scheme scheme : kSchemes) {
          const Share share = share_of(scheme, shape, group.size(), group.rank());
          LayerPart part;
          part.intermediate_begin = share.intermediate.begin;
          part.intermediate_count = share.intermediate.count;
          part.expert_begin = share.experts.begin;
          part.expert_count = share.experts.count;
          const LayerFixture fixture(session, shape, {}, part);
          for (const int micro_batches : {1, 2, 4}) {
            ParallelLayer layer(fixture, group, transport.get(), scheme, call, micro_batches);
            const Agreement agreement = compare(group, session, &layer, call, one);
            EXPECT_TRUE(agreement.is_good())
                << scheme_name(scheme) << ", path " << path << ", dtype " << dtype << ", "
                << micro_batches << " micro-batches: " << agreement.relative_l2;
            EXPECT_LT(agreement.relative_l2, dtype == MEMRA_F32 ? 1e-6 : 1e-2);
            // Again, after layers back to back.
            layer.run({}, 3);
            layer.synchronize();
            EXPECT_EQ(compare(group, session, &layer, call, one).relative_l2,
                      agreement.relative_l2);
          }
        }
      }
    }
  });
}

TEST(ParallelLayer, AWrongSumIsSeen) {
  const Shape shape = {128, 64, 4, 2, 5};
  run_ranks(1, "", [&](Group& group) {
    const Session session({MEMRA_BACKEND_CPU, 0, 1});
    const std::unique_ptr<Transport> transport = make_host_transport(group, session);
    const LayerFixture fixture(session, shape, {});
    const Call call = make_call(shape, MEMRA_PATH_ROWS, MEMRA_F32);
    OneDevice one = measure_one_device(group, &fixture, session, call, {1, 1});
    ParallelLayer layer(fixture, group, transport.get(), Scheme::kTensor, call, 1);
    EXPECT_TRUE(compare(group, session, &layer, call, one).is_good());
    one.y[one.y.size() / 2 + 3] ^= std::byte{0x80};  // a sign
    EXPECT_FALSE(compare(group, session, &layer, call, one).is_good());
    std::fill(one.y.begin(), one.y.end(), std::byte{0});
    EXPECT_FALSE(compare(group, session, &layer, call, one).is_good());
  });
}

}  // namespace
}  // namespace memra::bench::parallel
