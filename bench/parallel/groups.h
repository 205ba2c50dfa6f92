// The ways in which ranks meet.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "parallel/group.h"

namespace memra::bench::parallel {

struct Endpoint {
  std::string address;
  std::string port;
};

// "ADDRESS:PORT"; an IPv6 address may stand in brackets.
bool read_endpoint(const std::string& text, Endpoint* endpoint);

// Rank 0 listens there, and all messages go through it.
std::unique_ptr<Group> join_tcp(const Endpoint& endpoint, const Place& place,
                                std::chrono::milliseconds timeout);

// A file for each message, in a folder that rank 0 makes and removes.
std::unique_ptr<Group> join_files(const std::string& folder, const Place& place,
                                  std::chrono::milliseconds timeout);

// MPI knows the place. Throws Failure in a program that is built without it.
std::unique_ptr<Group> join_mpi();

}  // namespace memra::bench::parallel
