#pragma once

// The banks of a layer description: their checks, and the tables made from them.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layer.h"
#include "memra.h"
#include "status.h"

namespace memra {

// A bank that has been read and checked.
struct Bank {
  memra_bank bank{};
  int64_t rows = 0;
  int64_t columns = 0;

  bool has_slabs() const { return bank.base != nullptr || bank.ptrs != nullptr; }
};

// name is the plane's, for messages.
Status read_bank(const memra_bank* caller, const char* name, int64_t rows, int64_t columns,
                 int64_t n_local_experts, Bank* bank);

// The tables as one block of bytes for the device; offsets from its begin.
struct HostTables {
  std::vector<std::byte> bytes;
  std::size_t ptrs = 0;
  std::size_t scales = 0;
  std::size_t bias = 0;
  bool has_bias = false;
};

HostTables make_tables(const Bank (&banks)[kPlanes], int64_t n_local_experts);

}  // namespace memra
