#include "parallel/group.h"

#include "parallel/groups.h"
#include "session.h"

namespace memra::bench::parallel {
namespace {

class Alone final : public Group {
 public:
  using Group::Group;
  std::vector<Bytes> exchange(const Bytes& mine) override { return {mine}; }
};

bool begins_with(const std::string& text, const char* start) {
  return text.rfind(start, 0) == 0;
}

}  // namespace

std::string meeting_objection(const std::string& where) {
  if (where == "mpi") return has_mpi() ? "" : "this program is built without MPI";
  if (begins_with(where, "file:")) return where.size() > 5 ? "" : "file: names no folder";
  Endpoint endpoint;
  if (begins_with(where, "tcp:") && read_endpoint(where.substr(4), &endpoint)) return "";
  return "'" + where + "' is none of tcp:ADDRESS:PORT, file:FOLDER" + (has_mpi() ? ", mpi" : "");
}

std::unique_ptr<Group> join(const Meeting& meeting, const Place& place) {
  std::unique_ptr<Group> group;
  if (meeting.where == "mpi") {
    group = join_mpi();
  } else if (place.size == 1) {
    group = std::make_unique<Alone>(place);
  } else if (begins_with(meeting.where, "file:")) {
    group = join_files(meeting.where.substr(5), place, meeting.timeout);
  } else {
    Endpoint endpoint;
    if (!begins_with(meeting.where, "tcp:") || !read_endpoint(meeting.where.substr(4), &endpoint))
      throw Failure("the ranks have nowhere to meet");
    group = join_tcp(endpoint, place, meeting.timeout);
  }
  for (const int size : group->gather(group->size())) {
    if (size != group->size()) throw Failure("the ranks do not agree on how many they are");
  }
  return group;
}

}  // namespace memra::bench::parallel
