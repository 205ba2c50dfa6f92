// The processes of a run, and the small messages among their hosts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/place.h"

namespace memra::bench::parallel {

using Bytes = std::vector<std::byte>;

class Group {
 public:
  explicit Group(const Place& place) : place_(place), exceptions_(std::uncaught_exceptions()) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const Place& place() const { return place_; }
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }

  // What every rank gives, in the order of ranks. All ranks make the same calls in the same order.
  // Throws Failure where another rank has left, or does not come in time.
  virtual std::vector<Bytes> exchange(const Bytes& mine) = 0;
  void barrier() { exchange({}); }

  // One value of every rank.
  template <typename T>
  std::vector<T> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&mine);
    std::vector<T> all;
    for (const Bytes& part : exchange(Bytes(bytes, bytes + sizeof(T)))) {
      T value;
      std::memcpy(&value, part.data(), sizeof(T));
      all.push_back(value);
    }
    return all;
  }

 protected:
  // While an exception destroys the group: there is no waiting for others then.
  bool is_failing() const { return std::uncaught_exceptions() > exceptions_; }

 private:
  Place place_;
  int exceptions_;
};

struct Meeting {
  // "tcp:ADDRESS:PORT" of rank 0, "file:FOLDER" that all see and rank 0 makes, "mpi", or "" for a
  // rank that is alone.
  std::string where;
  std::chrono::milliseconds timeout{120000};  // for a rank to come, and for a message
};

// Whether this program is built with MPI.
bool has_mpi();

// What is wrong with the text of a meeting, else "".
std::string meeting_objection(const std::string& where);

// Returns when all ranks are there.
std::unique_ptr<Group> join(const Meeting& meeting, const Place& place);

}  // namespace memra::bench::parallel
