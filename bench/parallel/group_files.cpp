#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "parallel/groups.h"
#include "session.h"

namespace memra::bench::parallel {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPoll{200};
constexpr const char* kFailed = "failed";

class FileGroup final : public Group {
 public:
  FileGroup(const fs::path& folder, const Place& place, std::chrono::milliseconds timeout)
      : Group(place), folder_(folder), timeout_(timeout) {
    std::error_code error;
    if (rank() > 0) {
      await(folder_);
    } else if (!fs::create_directory(folder_, error)) {
      throw Failure(error ? "cannot make the folder '" + folder_.string() + "': " + error.message()
                          : "the folder '" + folder_.string() +
                                "' is there already: an earlier run's, or another's");
    }
  }

  ~FileGroup() override {
    std::error_code ignored;
    if (is_failing()) {
      std::ofstream(folder_ / kFailed).put('\n');
      return;
    }
    // The last messages may still be unread: rank 0 removes them once each has said that it has
    // read its own.
    try {
      barrier();
      if (rank() > 0) {
        write("left", {});
      } else {
        for (int other = 1; other < size(); ++other)
          await(file("left", other));
        fs::remove_all(folder_, ignored);
      }
    } catch (const std::exception&) {
      return;  // a rank has failed: what it left stays, and says so
    }
  }

  std::vector<Bytes> exchange(const Bytes& mine) override {
    const std::string name = std::to_string(round_++);
    write(name, mine);
    std::vector<Bytes> all;
    for (int other = 0; other < size(); ++other) {
      await(file(name, other));
      all.push_back(read(file(name, other)));
    }
    // All have come to this round, so nobody reads the one before any more.
    std::error_code ignored;
    if (round_ > 1) fs::remove(file(std::to_string(round_ - 2), rank()), ignored);
    return all;
  }

 private:
  fs::path file(const std::string& name, int rank) const {
    return folder_ / (name + "." + std::to_string(rank));
  }

  void write(const std::string& name, const Bytes& bytes) const {
    const fs::path unfinished = file("unfinished", rank());
    std::ofstream out(unfinished, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    out.close();
    std::error_code error;
    if (out) fs::rename(unfinished, file(name, rank()), error);
    if (!out || error) throw Failure("cannot write to the folder '" + folder_.string() + "'");
  }

  static Bytes read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(in), {}};
    if (!in) throw Failure("cannot read '" + path.string() + "'");
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    return {bytes, bytes + text.size()};
  }

  void await(const fs::path& path) const {
    const Clock::time_point end = Clock::now() + timeout_;
    std::error_code ignored;
    while (!fs::exists(path, ignored)) {
      if (fs::exists(folder_ / kFailed, ignored)) throw Failure("another rank has failed");
      if (Clock::now() > end) throw Failure("'" + path.string() + "' does not come");
      std::this_thread::sleep_for(kPoll);
    }
  }

  fs::path folder_;
  std::chrono::milliseconds timeout_;
  int64_t round_ = 0;
};

}  // namespace

std::unique_ptr<Group> join_files(const std::string& folder, const Place& place,
                                  std::chrono::milliseconds timeout) {
  return std::make_unique<FileGroup>(folder, place, timeout);
}

}  // namespace memra::bench::parallel
