// Which of how many ranks this process is: what launchers leave in the environment.
#pragma once

#include <string>

namespace memra::bench::parallel {

struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among those of this host
  int local_size = 1;
};

// From RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as torchrun sets them and a shell loop
// may; else from what Open MPI, MPICH or Slurm set; else the only rank. Without the local ones all
// ranks are on one host. Returns what is wrong with them, else "".
std::string read_place(Place* place);

// Where ranks meet that were told nothing: MASTER_ADDR and MASTER_PORT as "tcp:ADDRESS:PORT", one
// port further under torchrun, which listens on that one itself; "mpi" under an MPI launcher where
// this program is built with MPI; else "".
std::string usual_meeting();

}  // namespace memra::bench::parallel
