// Sizes beyond 2^31: the border of 64-bit indexing, row * stride = 131071 * 16384 and one row more.
// Needs tens of GB of device memory; MEMRA_TEST_LARGE=1 runs it on a CPU too, 0 nowhere.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "conformance/banks.h"
#include "conformance/fixture.h"
#include "conformance/problems.h"
#include "reference/weights.h"

namespace memra::test {
namespace {

using reference::Format;
using reference::Slab;

constexpr std::int64_t kColumns = 16384;
constexpr std::int64_t kBorder = 131072;  // * kColumns = 2^31
constexpr std::int64_t kRows = kBorder + 8;
constexpr std::int64_t kTail = 16;  // the last rows, which are looked at; 8 below the border

class FaultsSizes : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    const char* wish = std::getenv("MEMRA_TEST_LARGE");  // NOLINT(concurrency-mt-unsafe)
    constexpr std::uint64_t kEnough = 40ull << 30;
    const bool wanted = wish != nullptr
                            ? std::string(wish) == "1"
                            : engine().is_cuda() && engine().properties().memory_bytes >= kEnough;
    if (!wanted) GTEST_SKIP() << "needs a GPU of 40 GiB, or MEMRA_TEST_LARGE=1";
  }

  // A slab [rows, kColumns] of zeros but for its last rows.
  Buffer make_slab(const Slab& tail, std::int64_t rows) {
    const std::int64_t bytes = reference::slab_bytes(rows, kColumns);
    Buffer slab(engine(), bytes);
    slab.fill(0);
    if (tail.format == Format::kV1) {
      slab.upload(tail.bytes, bytes - static_cast<std::int64_t>(tail.bytes.size()));
    } else {
      // Row blocks are contiguous, codes and scales apart.
      const std::int64_t codes = kTail * kColumns / 2;
      const Bytes scales(tail.bytes.begin() + codes, tail.bytes.end());
      slab.upload(Bytes(tail.bytes.begin(), tail.bytes.begin() + codes),
                  rows * kColumns / 2 - codes);
      slab.upload(scales, bytes - static_cast<std::int64_t>(scales.size()));
    }
    return slab;
  }

  static Slab make_tail(Format format) { return random_slabs(1, format, 1, kTail, kColumns)[0]; }
};

TEST_P(FaultsSizes, DequantizeAndRepackReachTheLastRow) {
  const Slab tail = make_tail(Format::kV1);
  const Buffer v1_slab = make_slab(tail, kRows);
  const Buffer v2_slab(engine(), v1_slab.bytes());
  const Report report(engine());
  memra_repack_args repack = MEMRA_REPACK_ARGS_INIT;
  repack.rows = kRows;
  repack.columns = kColumns;
  repack.n_experts = 1;
  repack.src = v1_slab.data();
  repack.dst = v2_slab.data();
  repack.report = report.get();
  ASSERT_TRUE(ok(memra_repack_v2(engine().get(), &repack, engine().stream())));
  engine().synchronize();
  EXPECT_TRUE(report.check({}));

  const Bytes expected =
      reference::narrow(reference::dequantize(tail, 1.0f), reference::DType::kBF16);
  const Buffer out(engine(), kRows * kColumns * 2);
  for (const Format format : {Format::kV1, Format::kV2}) {
    out.fill(0xFF);
    memra_dequantize_args args = MEMRA_DEQUANTIZE_ARGS_INIT;
    args.format = abi(format);
    args.rows = kRows;
    args.columns = kColumns;
    args.n_experts = 1;
    args.src = format == Format::kV1 ? v1_slab.data() : v2_slab.data();
    args.dst = out.data();
    args.dst_dtype = MEMRA_BF16;
    ASSERT_TRUE(ok(memra_dequantize(engine().get(), &args, engine().stream())));
    engine().synchronize();
    const std::int64_t begin = (kRows - kTail) * kColumns * 2;
    EXPECT_TRUE(same_bytes(expected, out.download(begin, kTail * kColumns * 2)));
    EXPECT_TRUE(same_bytes(Bytes(64, 0), out.download(begin - 64, 64)));
    EXPECT_TRUE(same_bytes(Bytes(64, 0), out.download(0, 64)));
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST_P(FaultsSizes, QuantiseReachesTheLastRow) {
  reference::Random random(2);
  std::vector<float> values(static_cast<std::size_t>(kTail * kColumns));
  for (float& value : values)
    value = random.normal();
  const Bytes raw = reference::narrow(values, reference::DType::kBF16);
  const auto seen = reference::widen(raw, reference::DType::kBF16, kTail, kColumns, kColumns);
  const Buffer x(engine(), kRows * kColumns * 2);
  x.fill(0);
  const std::int64_t begin = (kRows - kTail) * kColumns;
  x.upload(raw, 2 * begin);

  const Buffer q(engine(), kRows * kColumns);
  const Buffer d(engine(), kRows * (kColumns / 32) * 4);
  memra_q8_1_args q8 = MEMRA_Q8_1_ARGS_INIT;
  q8.x_dtype = MEMRA_BF16;
  q8.x = x.data();
  q8.rows = kRows;
  q8.columns = kColumns;
  q8.q = q.as<std::int8_t>();
  q8.d = d.as<float>();
  ASSERT_TRUE(ok(memra_quantize_q8_1(engine().get(), &q8, engine().stream())));
  engine().synchronize();
  const auto rows = reference::quantize_q8(seen, kTail, kColumns);
  EXPECT_TRUE(same_bytes(bytes_of(rows.q), q.download(begin, kTail * kColumns)));
  EXPECT_TRUE(same_bytes(bytes_of(rows.d), d.download(begin / 8, kTail * kColumns / 8)));

  const Buffer bank(engine(), reference::slab_bytes(kRows, kColumns));
  const Input scale(engine(), std::vector<float>{0.01f});
  memra_quantize_args args = MEMRA_QUANTIZE_ARGS_INIT;
  args.format = MEMRA_NVFP4;
  args.rows = kRows;
  args.columns = kColumns;
  args.n_experts = 1;
  args.src = x.data();
  args.src_dtype = MEMRA_BF16;
  args.dst = bank.data();
  args.expert_scales = scale.buffer().as<float>();
  ASSERT_TRUE(ok(memra_quantize_nvfp4(engine().get(), &args, engine().stream())));
  engine().synchronize();
  const Slab slab = reference::quantize_nvfp4(seen, kTail, kColumns, 0.01f, Format::kV1);
  const auto size = static_cast<std::int64_t>(slab.bytes.size());
  EXPECT_TRUE(same_bytes(slab.bytes, bank.download(bank.bytes() - size, size)));
}

// One token and one expert of [131136, 16384]: the last rows of the output.
TEST_P(FaultsSizes, RowsReachTheLastRow) {
  constexpr std::int64_t kOutputs = kBorder + 64;
  const float scale = 1e-3f;
  reference::Random random(3);
  std::vector<float> x(static_cast<std::size_t>(kColumns));
  for (float& value : x)
    value = random.normal();
  const auto quantized = reference::quantize_q8(x, 1, kColumns);
  const Input q(engine(), quantized.q);
  const Input d(engine(), quantized.d);
  const Input scales(engine(), std::vector<float>(3, scale));
  const Buffer out(engine(), kOutputs * 4);
  const auto expect_tail = [&](const std::vector<float>& expected) {
    engine().synchronize();
    ASSERT_TRUE(reference::count_values(expected).informative());
    EXPECT_TRUE(same_bytes(bytes_of(expected), out.download(out.bytes() - kTail * 4, kTail * 4)));
    EXPECT_TRUE(same_bytes(Bytes(64, 0), out.download(0, 64)));
    EXPECT_TRUE(out.guards_intact());
    out.fill(0xFF);
  };
  for (const Format format : {Format::kV1, Format::kV2}) {
    const Slab tail = make_tail(format);
    const Buffer slab = make_slab(tail, kOutputs);
    const Input ptrs(engine(), std::vector<const void*>(3, slab.data()));
    const reference::PairPlane plane{{&tail}, {scale}, {}};

    memra_rows_gate_up_args gate_up = MEMRA_ROWS_GATE_UP_ARGS_INIT;
    gate_up.tokens = gate_up.top_k = 1;
    gate_up.hidden_size = kColumns;
    gate_up.intermediate_size = kOutputs;
    gate_up.gate_format = gate_up.up_format = abi(format);
    gate_up.ptrs = ptrs.buffer().as<const void*>();
    gate_up.scales = scales.buffer().as<float>();
    gate_up.q = q.buffer().as<std::int8_t>();
    gate_up.d = d.buffer().as<float>();
    gate_up.out = out.as<float>();
    ASSERT_TRUE(ok(memra_moe_rows_gate_up(engine().get(), &gate_up, engine().stream())));
    expect_tail(reference::gate_up(quantized, 1, kTail, plane, plane, {}).act);

    memra_rows_down_args down = MEMRA_ROWS_DOWN_ARGS_INIT;
    down.tokens = down.top_k = 1;
    down.intermediate_size = kColumns;
    down.hidden_size = kOutputs;
    down.format = abi(format);
    down.ptrs = gate_up.ptrs;
    down.scales = gate_up.scales;
    down.q = gate_up.q;
    down.d = gate_up.d;
    down.y = out.data();
    ASSERT_TRUE(ok(memra_moe_rows_down(engine().get(), &down, engine().stream())));
    std::vector<float> y(static_cast<std::size_t>(kTail), 0.0f);
    reference::down(quantized, 1, kTail, plane, {}, y);
    expect_tail(y);
  }
}

MEMRA_ON_BOTH_BACKENDS(FaultsSizes);

}  // namespace
}  // namespace memra::test
