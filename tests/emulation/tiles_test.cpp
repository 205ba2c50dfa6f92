// Lists of tiles from CSRs that no routing would make: nothing is written outside a list, and its
// tiles stay within the rows that there are.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "emulation/guarded.h"
#include "emulation/machine.h"
#include "emulation/support.h"
#include "grouped_products.h"
#include "grouped_tiles.cuh"
#include "reference/generate.h"

namespace memra::emulation {
namespace {

struct Csr {
  int32_t n_active = 0;
  std::vector<int32_t> experts, offsets;
  int64_t rows = 0;
};

int32_t any_number(reference::Random& random) {
  return static_cast<int32_t>(random.bits());
}

Csr hostile_csr(reference::Random& random) {
  const int64_t n_experts = 1 + random.below(70);
  Csr csr;
  csr.rows = 1 + random.below(400);
  for (int64_t i = 0; i < n_experts; ++i)
    csr.experts.push_back(random.below(4) != 0 ? static_cast<int32_t>(random.below(n_experts))
                                               : any_number(random));
  const bool rises = random.below(2) == 0;
  int64_t next = random.below(9) - 3;
  for (int64_t i = 0; i <= n_experts; ++i) {
    const int64_t offset = rises ? next : random.below(csr.rows + 9) - 4;
    csr.offsets.push_back(random.below(20) == 0 ? any_number(random)
                                                : static_cast<int32_t>(offset));
    next += random.below(40);
  }
  switch (random.below(4)) {
    case 0:
      csr.n_active = static_cast<int32_t>(n_experts);
      break;
    case 1:
      csr.n_active = any_number(random);
      break;
    default:
      csr.n_active = static_cast<int32_t>(random.below(n_experts + 1));
  }
  return csr;
}

void expect_legal(const cuda::TileList& list, const Csr& csr, int32_t units) {
  const auto n_experts = static_cast<int64_t>(csr.experts.size());
  ASSERT_GE(list.n_tiles, 0);
  ASSERT_LE(list.n_tiles, cuda::most_tiles(csr.rows, n_experts, units));
  const auto* const tiles = reinterpret_cast<const cuda::RowTile*>(&list + 1);
  for (int32_t i = 0; i < list.n_tiles; ++i) {
    const cuda::RowTile& tile = tiles[i];
    EXPECT_LE(tile.row() + tile.count(), csr.rows);
    EXPECT_LE(tile.units(), i == 0 ? units : tiles[i - 1].units());
    EXPECT_EQ((tile.count() + cuda::kTileUnit - 1) / cuda::kTileUnit, tile.units());
    EXPECT_LE(tile.expert(), n_experts);
  }
}

TEST(EmulatedTiles, HostileOffsetsStayInBounds) {
  machine().seed(31);
  reference::Random random(31);
  for (int round = 0; round < 400 && !HasFailure(); ++round) {
    const Csr csr = hostile_csr(random);
    const auto n_experts = static_cast<int64_t>(csr.experts.size());
    constexpr int32_t kWidths[] = {4, 8, 15, 16};
    const int32_t units[] = {kWidths[random.below(4)], kWidths[random.below(4)]};
    Guarded<uint8_t> memory[] = {
        Guarded<uint8_t>(cuda::tile_list_bytes(csr.rows, n_experts, units[0]), 0xEE),
        Guarded<uint8_t>(cuda::tile_list_bytes(csr.rows, n_experts, units[1]), 0xEE)};
    cuda::TileList* const lists[] = {reinterpret_cast<cuda::TileList*>(memory[0].data()),
                                     reinterpret_cast<cuda::TileList*>(memory[1].data())};
    const cuda::ExpertRows rows{&csr.n_active, csr.experts.data(), csr.offsets.data(), n_experts,
                                csr.rows};
    const cuda::TilePlans plans{{lists[0], units[0]}, {lists[1], units[1]}};
    ASSERT_EQ(cuda::plan_tiles(device(true, 2), rows, plans, {}), MEMRA_OK);
    expect_no_faults("hostile offsets");
    for (int which = 0; which < 2; ++which) {
      EXPECT_TRUE(memory[which].intact());
      expect_legal(*lists[which], csr, units[which]);
    }
  }
}

TEST(EmulatedTiles, RewoundListsBeginAgain) {
  Guarded<uint8_t> memory(cuda::tile_list_bytes(64, 4, 4), 0xEE);
  auto* const list = reinterpret_cast<cuda::TileList*>(memory.data());
  *list = {3, {7, 8, 9}};
  const cuda::TilePlans plans{{list, 4}, {list, 4}};
  ASSERT_EQ(cuda::rewind_tiles(device(true, 1), plans, {}), MEMRA_OK);
  expect_no_faults("rewind");
  EXPECT_EQ(list->n_tiles, 3);
  for (const int32_t next : list->next)
    EXPECT_EQ(next, 0);
}

}  // namespace
}  // namespace memra::emulation
