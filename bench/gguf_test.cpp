// bench/gguf on files that the `gguf` Python package wrote (scripts/make_gguf.py), and on damaged
// copies of them: every fault is a GgufError with a text that names it, nothing reads out of
// bounds.
#include "gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace memra::bench {
namespace {

// As in make_gguf.py.
constexpr uint32_t kLayer = 3;
constexpr uint64_t kHidden = 256;
constexpr uint64_t kIntermediate = 128;
constexpr uint64_t kExperts = 6;
constexpr uint64_t kTopK = 2;

using Bytes = std::vector<std::byte>;

// A heap block of exactly the file's size, so that the address sanitiser sees any read beyond it.
Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::string error_of(const Bytes& bytes, uint32_t layer = kLayer) {
  try {
    const Gguf gguf(bytes);
    find_moe_layer(gguf, layer);
  } catch (const GgufError& error) {
    return error.what();
  }
  return "";
}

uint8_t weight_byte(uint64_t seed, uint64_t index) {
  const auto mixed = static_cast<uint32_t>((index + seed) * 2654435761U);
  const auto byte = static_cast<uint8_t>(mixed >> 24);
  return index % 36 < 4 ? static_cast<uint8_t>((byte & 7) | 0x38) : byte;
}

// Every byte of every slab; `first_row` and `rows` say which part of the tensor the plane is.
void expect_plane(const GgufPlane& plane, uint64_t seed, uint64_t first_row, uint64_t rows,
                  uint64_t tensor_rows, uint64_t columns) {
  const uint64_t row_bytes = columns / 64 * 36;
  ASSERT_EQ(plane.slab_bytes, rows * row_bytes);
  ASSERT_EQ(plane.stride, tensor_rows * row_bytes);
  ASSERT_EQ(plane.scales.size(), kExperts);
  uint64_t wrong = 0;
  for (uint64_t e = 0; e < kExperts; ++e) {
    for (uint64_t i = 0; i < plane.slab_bytes; ++i) {
      const uint64_t index = (e * tensor_rows + first_row) * row_bytes + i;
      const auto byte = static_cast<uint8_t>(plane.data[e * plane.stride + i]);
      wrong += byte != weight_byte(seed, index) ? 1U : 0U;
    }
  }
  EXPECT_EQ(wrong, 0U);
}

// Little-endian bytes of a file written by hand, for headers that no writer would make.
class Writer {
 public:
  template <typename T>
  Writer& put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
    return *this;
  }
  Writer& text(const std::string& value) {
    put<uint64_t>(value.size());
    const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
    bytes_.insert(bytes_.end(), bytes, bytes + value.size());
    return *this;
  }
  Writer& header(uint64_t n_tensors, uint64_t n_values, uint32_t version = 3) {
    return put<uint32_t>(0x46554747).put(version).put(n_tensors).put(n_values);
  }
  Writer& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                 uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims)
      put(dim);
    return put(type).put(offset);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

std::string down_name() {
  return "blk.3.ffn_down_exps.weight";
}

class GgufFile : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(path("wrong_scales"))) {
      GTEST_SKIP() << "no files of scripts/make_gguf.py: install tests/requirements.txt";
    }
  }
  static std::string path(const std::string& name) {
    return std::string(MEMRA_TEST_GGUF_DIR) + "/" + name + ".gguf";
  }
  static Bytes load(const std::string& name) { return read_file(path(name)); }
};

TEST_F(GgufFile, SeparateGateAndUpWithScales) {
  const MappedFile file(path("separate"));
  const Gguf gguf(file.bytes());
  EXPECT_EQ(gguf.version(), 3U);
  EXPECT_EQ(gguf.alignment(), 32U);
  EXPECT_EQ(gguf.tensors().size(), 7U);
  const GgufMoeLayer layer = find_moe_layer(gguf, kLayer);
  EXPECT_EQ(layer.architecture, "qwen3moe");
  EXPECT_EQ(layer.hidden_size, kHidden);
  EXPECT_EQ(layer.intermediate_size, kIntermediate);
  EXPECT_EQ(layer.n_experts, kExperts);
  EXPECT_EQ(layer.top_k, kTopK);
  EXPECT_EQ(layer.limit, 7.0F);
  EXPECT_TRUE(layer.has_scales);
  expect_plane(layer.gate, 1, 0, kIntermediate, kIntermediate, kHidden);
  expect_plane(layer.up, 2, 0, kIntermediate, kIntermediate, kHidden);
  expect_plane(layer.down, 3, 0, kHidden, kHidden, kIntermediate);
  EXPECT_EQ(layer.gate.scales.front(), 0.01F);
  EXPECT_EQ(layer.up.scales.front(), 0.02F);
  EXPECT_EQ(layer.down.scales.back(), static_cast<float>(0.01 * 8));
}

TEST_F(GgufFile, NoScalesAndAnotherAlignment) {
  const Bytes bytes = load("plain");
  const Gguf gguf(bytes);
  EXPECT_EQ(gguf.alignment(), 128U);
  const GgufMoeLayer layer = find_moe_layer(gguf, kLayer);
  EXPECT_FALSE(layer.has_scales);
  EXPECT_EQ(layer.limit, 0.0F);
  expect_plane(layer.down, 3, 0, kHidden, kHidden, kIntermediate);
  for (const float scale : layer.gate.scales)
    EXPECT_EQ(scale, 1.0F);
}

TEST_F(GgufFile, FusedGateAndUp) {
  const Bytes bytes = load("fused");
  const Gguf gguf(bytes);
  const GgufMoeLayer layer = find_moe_layer(gguf, kLayer);
  expect_plane(layer.gate, 4, 0, kIntermediate, 2 * kIntermediate, kHidden);
  expect_plane(layer.up, 4, kIntermediate, kIntermediate, 2 * kIntermediate, kHidden);
  EXPECT_EQ(layer.gate.scales, layer.up.scales);
}

TEST_F(GgufFile, Metadata) {
  const Bytes bytes = load("separate");
  const Gguf gguf(bytes);
  EXPECT_EQ(gguf.string_value("general.name"), "test model");
  EXPECT_EQ(gguf.unsigned_value("qwen3moe.expert_count"), kExperts);
  EXPECT_EQ(gguf.unsigned_value("test.int8"), std::nullopt);
  EXPECT_EQ(gguf.unsigned_value("general.name"), std::nullopt);
  EXPECT_EQ(gguf.unsigned_value("no.such.key"), std::nullopt);
  EXPECT_EQ(gguf.float_element("qwen3moe.swiglu_clamp_exp", 99), std::nullopt);
  const GgufValue* tokens = gguf.find_value("tokenizer.ggml.tokens");
  ASSERT_NE(tokens, nullptr);
  EXPECT_TRUE(tokens->is_array);
  EXPECT_EQ(tokens->count, 4U);
}

TEST_F(GgufFile, FaultsOfTheLayerAreNamed) {
  EXPECT_EQ(
      error_of(load("wrong_type")),
      "gguf: tensor 'blk.3.ffn_down_exps.weight' has ggml type 1; the probe needs 40 (NVFP4)");
  EXPECT_EQ(error_of(load("missing_up")), "gguf: tensor 'blk.3.ffn_up_exps.weight' is missing");
  EXPECT_EQ(error_of(load("wrong_shape")),
            "gguf: tensor 'blk.3.ffn_up_exps.weight' has shape [256, 256, 6]; the layer's other "
            "tensors ask for [256, 128, 6]");
  EXPECT_EQ(error_of(load("wrong_experts")),
            "gguf: tensor 'blk.3.ffn_gate_exps.weight' has shape [256, 128, 5]; the layer's other "
            "tensors ask for [256, 128, 6]");
  EXPECT_EQ(error_of(load("wrong_scales")),
            "gguf: tensor 'blk.3.ffn_up_exps.scale' has shape [7]; one value for each of 6 experts "
            "is expected");
  EXPECT_EQ(error_of(load("separate"), 4), "gguf: tensor 'blk.4.ffn_down_exps.weight' is missing");
}

TEST_F(GgufFile, EveryTruncationIsAnError) {
  const Bytes whole = load("separate");
  const size_t header = whole.size() - 3 * kExperts * kHidden * kIntermediate / 64 * 36;
  for (size_t size = 0; size < whole.size(); size += size < header ? 1 : 997) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_NE(error_of(part).find("truncated"), std::string::npos) << size << " bytes";
  }
}

TEST_F(GgufFile, NoByteFlipReadsOutOfBounds) {
  // Whatever a damaged directory says, the answer is an error or planes that lie inside the file:
  // both are fine, and the sanitiser builds see any read that does not.
  const Bytes whole = load("fused");
  const size_t directory = 1200;
  ASSERT_LT(directory, whole.size());
  uint32_t lcg = 1;
  uint64_t checksum = 0;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes(
        whole.begin(),
        whole.begin() + static_cast<ptrdiff_t>(
                            round % 4 == 0 ? 4096 : whole.size() / (round % 16 == 1 ? 1 : 8)));
    for (int flip = 0; flip <= round % 3; ++flip) {
      lcg = lcg * 1664525U + 1013904223U;
      const size_t place = (lcg >> 8) % directory;
      lcg = lcg * 1664525U + 1013904223U;
      bytes[place] ^= static_cast<std::byte>(1 + (lcg >> 24) % 255);
    }
    try {
      const Gguf gguf(bytes);
      const GgufMoeLayer layer = find_moe_layer(gguf, kLayer);
      for (const GgufPlane* plane : {&layer.gate, &layer.up, &layer.down}) {
        const std::byte* last = plane->data + (layer.n_experts - 1) * plane->stride;
        ASSERT_LE(last + plane->slab_bytes, bytes.data() + bytes.size());
        checksum += static_cast<uint64_t>(plane->data[0]) +
                    static_cast<uint64_t>(last[plane->slab_bytes - 1]);
      }
    } catch (const GgufError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
  EXPECT_GT(checksum, 0U);
}

TEST(Gguf, WrongMagicAndVersions) {
  EXPECT_EQ(error_of(Writer().put<uint32_t>(0x46474747).put<uint64_t>(0).put<uint64_t>(0).bytes()),
            "gguf: wrong magic: the file does not begin with 'GGUF'");
  EXPECT_EQ(error_of(Writer().header(0, 0, 1).bytes()),
            "gguf: version 1 is not supported; 2 and 3 are");
  EXPECT_EQ(error_of(Writer().header(0, 0, 4).bytes()),
            "gguf: version 4 is not supported; 2 and 3 are");
  EXPECT_EQ(error_of(Writer().header(0, 0, 0x03000000).bytes()),
            "gguf: the file is big-endian; only little-endian files are read");
  EXPECT_EQ(error_of({}),
            "gguf: the file is truncated: the magic at byte 0 needs 4 bytes, 0 are left");
}

TEST(Gguf, VersionTwoIsRead) {
  const Bytes bytes =
      Writer().header(0, 1, 2).text("a.b").put<uint32_t>(4).put<uint32_t>(7).bytes();
  const Gguf gguf(bytes);
  EXPECT_EQ(gguf.version(), 2U);
  EXPECT_EQ(gguf.unsigned_value("a.b"), 7U);
}

TEST(Gguf, NestedArraysAreWalked) {
  Writer writer;
  writer.header(0, 2).text("nested").put<uint32_t>(9).put<uint32_t>(9).put<uint64_t>(2);
  writer.put<uint32_t>(4).put<uint64_t>(2).put<uint32_t>(1).put<uint32_t>(2);
  writer.put<uint32_t>(8).put<uint64_t>(1).text("x");
  writer.text("after").put<uint32_t>(0).put<uint8_t>(5);
  EXPECT_EQ(Gguf(writer.bytes()).unsigned_value("after"), 5U);

  Writer deep;
  deep.header(0, 1).text("deep").put<uint32_t>(9);
  for (int i = 0; i < 100; ++i)
    deep.put<uint32_t>(9).put<uint64_t>(1);
  EXPECT_EQ(error_of(deep.bytes()), "gguf: array 'deep' is nested deeper than 8");
}

TEST(Gguf, HugeNumbersAreRefusedBeforeAnythingIsReserved) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  EXPECT_NE(error_of(Writer().header(0, kHuge).bytes()).find("metadata entries"),
            std::string::npos);
  EXPECT_NE(error_of(Writer().header(kHuge, 0).bytes()).find("tensors"), std::string::npos);
  EXPECT_NE(error_of(Writer().header(0, 1).put(kHuge).put<uint64_t>(0).bytes()).find("truncated"),
            std::string::npos);
  // An array of kHuge / 4 + 2 numbers of 4 bytes: the product wraps to 4.
  EXPECT_NE(error_of(Writer()
                         .header(0, 1)
                         .text("k")
                         .put<uint32_t>(9)
                         .put<uint32_t>(4)
                         .put(kHuge / 4 + 2)
                         .put<uint32_t>(0)
                         .bytes())
                .find("overflows"),
            std::string::npos);
  EXPECT_NE(error_of(Writer().header(0, 1).text("k").put<uint32_t>(99).put<uint32_t>(0).bytes())
                .find("unknown type 99"),
            std::string::npos);
}

TEST(Gguf, TensorSizesThatOverflowOrLieOutside) {
  const auto one_tensor = [](const std::vector<uint64_t>& dims, uint64_t offset) {
    return error_of(Writer().header(1, 0).tensor(down_name(), dims, kGgmlNvfp4, offset).bytes());
  };
  EXPECT_NE(one_tensor({64, uint64_t{1} << 62, 64}, 0).find("overflows"), std::string::npos);
  EXPECT_NE(one_tensor({64, 64, 4}, 0).find("truncated"), std::string::npos);
  EXPECT_NE(one_tensor({64, 64, 1}, ~uint64_t{31}).find("truncated"), std::string::npos);
  EXPECT_NE(one_tensor({64, 64, 1}, 1).find("no multiple of the alignment"), std::string::npos);
  EXPECT_NE(one_tensor({64, 0, 1}, 0).find("hidden_size is 0"), std::string::npos);
  EXPECT_NE(one_tensor({96, 64, 1}, 0).find("intermediate_size is 96"), std::string::npos);
  EXPECT_NE(one_tensor({64, 64, 0}, 0).find("no experts"), std::string::npos);
  EXPECT_NE(one_tensor({64, 64}, 0).find("[columns, rows, experts]"), std::string::npos);
  EXPECT_NE(one_tensor({}, 0).find("has 0 dimensions"), std::string::npos);
}

TEST(Gguf, DuplicatesAndBadAlignment) {
  EXPECT_NE(error_of(Writer().header(2, 0).tensor("t", {1}, 0, 0).tensor("t", {1}, 0, 0).bytes())
                .find("appears twice"),
            std::string::npos);
  for (const uint32_t alignment : {0U, 3U, 48U}) {
    EXPECT_EQ(error_of(Writer()
                           .header(0, 1)
                           .text("general.alignment")
                           .put<uint32_t>(4)
                           .put(alignment)
                           .bytes()),
              "gguf: general.alignment must be a power of two");
  }
}

TEST(Gguf, PartsOfASplitModelGetAHint) {
  Writer writer;
  writer.header(0, 2).text("split.count").put<uint32_t>(2).put<uint16_t>(5);
  writer.text("split.no").put<uint32_t>(2).put<uint16_t>(1);
  EXPECT_EQ(
      error_of(writer.bytes()),
      "gguf: tensor 'blk.3.ffn_down_exps.weight' is missing; this is part 2 of 5, try another "
      "part");
}

TEST(MappedFile, FaultsNameThePath) {
  EXPECT_THROW(
      {
        try {
          const MappedFile file("/no/such/file");
        } catch (const GgufError& error) {
          EXPECT_STREQ(error.what(),
                       "gguf: cannot open '/no/such/file': No such file or directory");
          throw;
        }
      },
      GgufError);
  EXPECT_THROW(MappedFile("/tmp"), GgufError);
}

}  // namespace
}  // namespace memra::bench
