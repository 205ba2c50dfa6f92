// 10^5 random argument sets: a status each, no crash, and no output unless it is MEMRA_OK.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api_entries.h"
#include "memra.h"
#include "reference/generate.h"

namespace memra::api_test {
namespace {

using reference::Random;

std::size_t pick(Random& random, std::size_t n) {
  return static_cast<std::size_t>(random.below(static_cast<std::int64_t>(n)));
}

// Numbers stay inside the field's own lists, pointers inside their buffers: a set that happens to
// be valid must be one that can run.
void mutate(Random& random, const Entry& entry, const Field& field,
            std::vector<unsigned char>& bytes) {
  if (field.type == FieldType::kPointer) {
    const int64_t valid = field.get(entry.valid);
    const int64_t shift =
        field.to_struct ? 1 + random.below(7) : random.below(static_cast<int64_t>(33));
    field.put(bytes, random.below(3) == 0 ? 0 : valid + shift);
    return;
  }
  const std::vector<int64_t>& values =
      random.below(2) == 0 && !field.right.empty() ? field.right : field.wrong;
  field.put(bytes, values[pick(random, values.size())]);
}

void mutate_size(Random& random, std::vector<unsigned char>& bytes, std::size_t size) {
  const auto whole = static_cast<uint32_t>(size);
  const uint32_t choices[] = {0,     1,         4,         8,           whole - 1, whole - 8,
                              whole, whole + 1, whole + 8, whole + 256, 4096,      UINT32_MAX};
  const uint32_t struct_size = choices[pick(random, std::size(choices))];
  std::memcpy(bytes.data(), &struct_size, sizeof(struct_size));
  if (random.below(2) == 0) bytes[size + pick(random, 256)] = 1;
}

TEST(ApiFuzz, RandomArgumentSets) {
  constexpr int kSets = 100000;
  constexpr std::size_t kRoomBehind = 4096;
  Random random(20240607);
  World world;
  ASSERT_TRUE(world.ok()) << memra_last_error();
  const std::vector<Entry> entries = all_entries(world);
  std::vector<int> accepted(entries.size());
  std::vector<int> refused(entries.size());
  for (const Entry& entry : entries) {
    for (Memory* output : entry.outputs)
      output->poison();
  }
  for (int set = 0; set < kSets; ++set) {
    const std::size_t index = pick(random, entries.size());
    const Entry& entry = entries[index];
    std::vector<unsigned char> bytes = entry.valid;
    bytes.resize(entry.valid.size() + kRoomBehind);
    const int64_t mutations = 1 + random.below(4);
    for (int64_t i = 0; i < mutations; ++i) {
      mutate(random, entry, entry.fields[pick(random, entry.fields.size())], bytes);
    }
    if (random.below(16) == 0) mutate_size(random, bytes, entry.valid.size());

    const memra_status status = entry.call(bytes.data());
    ASSERT_GE(status, MEMRA_OK) << entry.name;
    ASSERT_LE(status, MEMRA_ERROR_WORKSPACE_TOO_SMALL) << entry.name << ": " << memra_last_error();
    ASSERT_NE(status, MEMRA_NOT_READY) << entry.name;
    status == MEMRA_OK ? ++accepted[index] : ++refused[index];
    for (Memory* output : entry.outputs) {
      if (status == MEMRA_OK) {
        output->poison();
      } else {
        ASSERT_TRUE(output->poisoned()) << entry.name << ", set " << set;
      }
    }
    if (status != MEMRA_OK) {
      ASSERT_STRNE(memra_last_error(), "");
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_GT(accepted[i], 100) << entries[i].name;
    EXPECT_GT(refused[i], 1000) << entries[i].name;
  }
  // A known call still works.
  const memra_moe_args args = world.moe_args();
  EXPECT_EQ(world.finish(memra_moe_rows(world.layer, &args, nullptr)), MEMRA_OK);
}

}  // namespace
}  // namespace memra::api_test
