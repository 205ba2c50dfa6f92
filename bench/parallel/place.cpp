#include "parallel/place.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "parallel/group.h"

namespace memra::bench::parallel {
namespace {

struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kOwnNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kLauncherNames[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

const char* variable(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no other thread yet
}

// "" where it is a number of at least `least`, or not set.
std::string read_number(const char* name, int least, int* value) {
  const char* text = variable(name);
  if (text == nullptr) return "";
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, *value);
  if (error == std::errc() && rest == end && rest != text && *value >= least) return "";
  return std::string(name) + ": '" + text + "' is no number of " + std::to_string(least) +
         " or more";
}

const Names* names_in_use() {
  if (variable(kOwnNames.rank) != nullptr || variable(kOwnNames.size) != nullptr) return &kOwnNames;
  for (const Names& names : kLauncherNames) {
    if (variable(names.rank) != nullptr && variable(names.size) != nullptr) return &names;
  }
  return nullptr;
}

}  // namespace

std::string read_place(Place* place) {
  const Names* names = names_in_use();
  if (names == nullptr) return "";
  if (variable(names->rank) == nullptr || variable(names->size) == nullptr) {
    return std::string(names->rank) + " and " + names->size + " belong together: one is not set";
  }
  Place read;
  for (const std::string& text :
       {read_number(names->rank, 0, &read.rank), read_number(names->size, 1, &read.size)}) {
    if (!text.empty()) return text;
  }
  if (read.rank >= read.size) {
    return std::string(names->rank) + " " + std::to_string(read.rank) + " is not below " +
           names->size + " " + std::to_string(read.size);
  }
  read.local_rank = read.rank;
  read.local_size = read.size;
  for (const std::string& text : {read_number(names->local_rank, 0, &read.local_rank),
                                  read_number(names->local_size, 1, &read.local_size)}) {
    if (!text.empty()) return text;
  }
  *place = read;
  return "";
}

std::string usual_meeting() {
  const char* address = variable("MASTER_ADDR");
  const char* port = variable("MASTER_PORT");
  int number = 0;
  if (address != nullptr && port != nullptr && read_number("MASTER_PORT", 1, &number).empty()) {
    if (variable("TORCHELASTIC_RUN_ID") != nullptr) ++number;
    return std::string("tcp:") + address + ":" + std::to_string(number);
  }
  const Names* names = names_in_use();
  return has_mpi() && names != nullptr && names != &kOwnNames ? "mpi" : "";
}

}  // namespace memra::bench::parallel
