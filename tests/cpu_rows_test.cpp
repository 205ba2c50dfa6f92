// The stages of the rows path on the CPU against the reference: every kernel set, number of
// threads, mixture of formats and variant must give its bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend.h"
#include "cpu/rows.h"
#include "cpu/rows_kernels.h"
#include "cpu/thread_pool.h"
#include "cpu_paths.h"
#include "reference/compare.h"
#include "reference/generate.h"
#include "reference/moe.h"

namespace memra::cpu {
namespace {

namespace ref = memra::reference;

ThreadPool& pool_of(int threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  std::unique_ptr<ThreadPool>& pool = pools[threads];
  if (pool == nullptr) {
    EXPECT_EQ(ThreadPool::create(threads, &pool), MEMRA_OK);
  }
  return *pool;
}

// A problem's tables in memory, and buffers for the stages, poisoned.
class Stages {
 public:
  explicit Stages(const ref::MoeProblem& problem)
      : problem_(problem), n_pairs_(static_cast<std::size_t>(problem.n_pairs())) {
    for (const ref::Bank& bank : problem.banks) {
      for (std::int64_t e = 0; e < problem.n_local; ++e) {
        const std::vector<std::uint8_t>& bytes = bank.slabs[static_cast<std::size_t>(e)].bytes;
        expert_ptrs_.push_back(bytes.empty() ? nullptr : bytes.data());
        expert_scales_.push_back(bank.scales[static_cast<std::size_t>(e)]);
        expert_bias_.push_back(bank.bias.empty() ? nullptr : bank.bias.data() + e * bank.rows);
      }
    }
  }

  void run(const RowsKernels& kernels, ThreadPool& pool, std::uint32_t variant) {
    const bool lane_major = (variant & MEMRA_ROWS_LANE_MAJOR) != 0;
    const auto tokens = static_cast<std::size_t>(problem_.tokens);
    const auto hidden = static_cast<std::size_t>(problem_.hidden);
    const auto intermediate = static_cast<std::size_t>(problem_.intermediate);

    ptrs.assign(3 * n_pairs_, &n_pairs_);
    scales.assign(3 * n_pairs_, -77.0f);
    bias.assign(3 * n_pairs_, nullptr);
    order.assign(n_pairs_, -1);
    invalid_ids = 1000;
    PreparePairsArgs pairs;
    pairs.tokens = problem_.tokens;
    pairs.top_k = problem_.top_k;
    pairs.n_experts = problem_.n_experts;
    pairs.local_expert_offset = problem_.local_offset;
    pairs.n_local_experts = problem_.n_local;
    pairs.topk_ids = problem_.ids.data();
    pairs.topk_weights = problem_.weights.data();
    pairs.expert_ptrs = expert_ptrs_.data();
    pairs.expert_scales = expert_scales_.data();
    pairs.expert_bias = expert_bias_.data();
    pairs.invalid_ids = &invalid_ids;
    pairs.ptrs = ptrs.data();
    pairs.scales = scales.data();
    pairs.bias = bias.data();
    pairs.order = order.data();
    prepare_pairs(pairs);

    q.assign(tokens * hidden, 99);
    d.assign(tokens * hidden / 32, -77.0f);
    QuantizeQ8Args quantize;
    quantize.q8.x_dtype = abi(problem_.x_dtype);
    quantize.q8.x = problem_.x.data();
    quantize.q8.x_stride = problem_.x_stride;
    quantize.q8.rows = problem_.tokens;
    quantize.q8.columns = problem_.hidden;
    quantize.q8.q = q.data();
    quantize.q8.d = d.data();
    quantize.lane_major = lane_major;
    quantize_q8(quantize, kernels, pool);

    act.assign(n_pairs_ * intermediate, -77.0f);
    memra_rows_gate_up_args gate_up = MEMRA_ROWS_GATE_UP_ARGS_INIT;
    gate_up.tokens = problem_.tokens;
    gate_up.top_k = problem_.top_k;
    gate_up.hidden_size = problem_.hidden;
    gate_up.intermediate_size = problem_.intermediate;
    gate_up.gate_format = static_cast<memra_format>(problem_.banks[ref::kGate].format);
    gate_up.up_format = static_cast<memra_format>(problem_.banks[ref::kUp].format);
    gate_up.activation = static_cast<memra_activation>(problem_.activation.kind);
    gate_up.limit = problem_.activation.limit;
    gate_up.alpha = problem_.activation.alpha;
    gate_up.variant = variant;
    gate_up.ptrs = ptrs.data();
    gate_up.scales = scales.data();
    gate_up.bias = bias.data();
    gate_up.order = order.data();
    gate_up.q = q.data();
    gate_up.d = d.data();
    gate_up.out = act.data();
    rows_gate_up(gate_up, kernels, kernels.dots, pool);

    act_q.assign(n_pairs_ * intermediate, 99);
    act_d.assign(n_pairs_ * intermediate / 32, -77.0f);
    quantize.q8.x_dtype = MEMRA_F32;
    quantize.q8.x = act.data();
    quantize.q8.x_stride = quantize.q8.columns = problem_.intermediate;
    quantize.q8.rows = problem_.n_pairs();
    quantize.q8.q = act_q.data();
    quantize.q8.d = act_d.data();
    quantize_q8(quantize, kernels, pool);

    y = problem_.y_initial;
    memra_rows_down_args down = MEMRA_ROWS_DOWN_ARGS_INIT;
    down.flags = problem_.accumulate ? MEMRA_FLAG_ACCUMULATE : 0;
    down.tokens = problem_.tokens;
    down.top_k = problem_.top_k;
    down.intermediate_size = problem_.intermediate;
    down.hidden_size = problem_.hidden;
    down.format = static_cast<memra_format>(problem_.banks[ref::kDown].format);
    down.y_dtype = abi(problem_.y_dtype);
    down.variant = variant;
    down.ptrs = ptrs.data();
    down.scales = scales.data();
    down.bias = bias.data();
    down.topk_weights = problem_.weights.data();
    down.q = act_q.data();
    down.d = act_d.data();
    down.y = y.data();
    down.y_stride = problem_.y_stride;
    rows_down(down, kernels, kernels.dots, pool);
  }

  void check(const ref::MoeResult& expected, bool lane_major) const {
    if (!lane_major) {
      EXPECT_EQ(q, expected.x_q.q);
      EXPECT_EQ(act_q, expected.act_q.q);
    }
    EXPECT_TRUE(same(d, expected.x_q.d));
    EXPECT_TRUE(same(act, expected.gate_up.act));
    EXPECT_TRUE(same(act_d, expected.act_q.d));
    EXPECT_EQ(y, expected.y);
    EXPECT_EQ(invalid_ids, 1000 + expected.invalid_ids);
    for (std::size_t p = 0; p < n_pairs_; ++p) {
      for (std::size_t plane = 0; plane < 3; ++plane) {
        const std::size_t entry = plane * n_pairs_ + p;
        EXPECT_EQ(ptrs[entry] != nullptr, expected.pair_live[p] != 0);
        if (expected.pair_live[p] != 0) continue;
        EXPECT_EQ(ref::bits_of(scales[entry]), 0u);
        EXPECT_EQ(bias[entry], nullptr);
      }
    }
    check_order(expected);
  }

  std::vector<const void*> ptrs;
  std::vector<float> scales;
  std::vector<const float*> bias;
  std::vector<std::int32_t> order;
  std::uint64_t invalid_ids = 0;
  std::vector<std::int8_t> q, act_q;
  std::vector<float> d, act, act_d;
  std::vector<std::uint8_t> y;

 private:
  static memra_dtype abi(ref::DType dtype) {
    return dtype == ref::DType::kF32   ? MEMRA_F32
           : dtype == ref::DType::kF16 ? MEMRA_F16
                                       : MEMRA_BF16;
  }
  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  // Sorted by (expert, pair), skipped pairs last.
  void check_order(const ref::MoeResult& expected) const {
    std::vector<std::array<std::int64_t, 3>> keys;
    for (const std::int32_t p : order) {
      const auto pair = static_cast<std::size_t>(p);
      ASSERT_LT(pair, n_pairs_);
      const bool live = expected.pair_live[pair] != 0;
      keys.push_back({live ? 0 : 1, live ? problem_.ids[pair] : 0, p});
    }
    EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), n_pairs_);
  }

  const ref::MoeProblem& problem_;
  const std::size_t n_pairs_;
  std::vector<const void*> expert_ptrs_;
  std::vector<float> expert_scales_;
  std::vector<const float*> expert_bias_;
};

constexpr std::uint32_t kVariants[] = {MEMRA_ROWS_PLAIN, MEMRA_ROWS_ILP | MEMRA_ROWS_PACK,
                                       MEMRA_ROWS_ORD, MEMRA_ROWS_DEDUP_ORDER,
                                       MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_DEDUP_ORDER};

void check_everywhere(const ref::MoeProblem& problem) {
  const ref::MoeResult expected = ref::moe_rows(problem);
  const bool all_v2 = std::all_of(problem.banks.begin(), problem.banks.end(),
                                  [](const auto& bank) { return bank.format == ref::Format::kV2; });
  Stages stages(problem);
  for (const RowsKernels* kernels : kernel_sets()) {
    for (const int threads : {1, 2, 3}) {
      for (const std::uint32_t variant : kVariants) {
        const bool lane_major = (variant & MEMRA_ROWS_LANE_MAJOR) != 0;
        if (lane_major && !all_v2) continue;
        SCOPED_TRACE(std::string(kernels->simd) + ", " + std::to_string(threads) +
                     " threads, variant " + std::to_string(variant));
        stages.run(*kernels, pool_of(threads), variant);
        stages.check(expected, lane_major);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(CpuRows, EveryFormatAndActivation) {
  for (const ref::Activation kind :
       {ref::Activation::kSwiglu, ref::Activation::kSwigluPreclamp,
        ref::Activation::kSwigluPostclamp, ref::Activation::kSwigluOai}) {
    for (const ref::Format format : {ref::Format::kV1, ref::Format::kV2}) {
      ref::ProblemSpec spec;
      spec.hidden = 448;
      spec.intermediate = 192;
      spec.tokens = 5;
      spec.bias = true;
      spec.activation.kind = kind;
      spec.scales = ref::ScaleCodes::kAll;
      spec.with_format(format);
      check_everywhere(ref::make_problem(spec));
    }
  }
}

TEST(CpuRows, MixedFormats) {
  ref::ProblemSpec spec;
  spec.hidden = 320;
  spec.intermediate = 64;
  spec.gate_format = ref::Format::kV2;
  spec.down_format = ref::Format::kV2;
  check_everywhere(ref::make_problem(spec));
  spec.gate_format = ref::Format::kV1;
  spec.up_format = ref::Format::kV2;
  spec.down_format = ref::Format::kV1;
  check_everywhere(ref::make_problem(spec));
}

TEST(CpuRows, SkippedPairsAndSharedExperts) {
  for (const ref::IdPattern ids :
       {ref::IdPattern::kOneExpert, ref::IdPattern::kWithInvalid, ref::IdPattern::kDuplicates}) {
    for (const bool accumulate : {false, true}) {
      ref::ProblemSpec spec;
      spec.n_experts = 8;
      spec.local_offset = 2;
      spec.n_local = 5;
      spec.top_k = 3;
      spec.tokens = 9;
      spec.ids = ids;
      spec.accumulate = accumulate;
      spec.x_dtype = ref::DType::kBF16;
      spec.y_dtype = accumulate ? ref::DType::kF16 : ref::DType::kBF16;
      spec.x_padding = 8;
      spec.y_padding = 8;
      spec.with_format(ref::Format::kV2);
      ref::MoeProblem problem = ref::make_problem(spec);
      problem.banks[ref::kUp].slabs[3] = {};  // a NULL slab in one plane
      check_everywhere(problem);
    }
  }
}

TEST(CpuRows, SpecialRowsStayAlone) {
  ref::ProblemSpec spec;
  spec.tokens = 9;
  spec.special_rows = {{0, ref::RowKind::kZero},    {1, ref::RowKind::kOneNan},
                       {2, ref::RowKind::kOneInf},  {3, ref::RowKind::kTiny41},
                       {4, ref::RowKind::kTiny38},  {5, ref::RowKind::kTinyMixed},
                       {6, ref::RowKind::kOneHuge}, {7, ref::RowKind::kBlockOf6000}};
  spec.with_format(ref::Format::kV2);
  check_everywhere(ref::make_problem(spec));
  spec.with_format(ref::Format::kV1);
  check_everywhere(ref::make_problem(spec));
}

TEST(CpuRows, LargerThanOneUnitOfWork) {
  ref::ProblemSpec spec;
  spec.hidden = 1088;
  spec.intermediate = 704;
  spec.top_k = 4;
  spec.tokens = 3;
  spec.with_format(ref::Format::kV2);
  check_everywhere(ref::make_problem(spec));
}

TEST(CpuRows, QuantizesRowsOfAnyLength) {
  ref::Random random(2);
  for (const auto& [rows, columns] :
       {std::pair(700, 64), std::pair(3, 16384), std::pair(2, 40000)}) {
    const std::int64_t stride = columns + 4, n = rows * columns;
    std::vector<float> x(static_cast<std::size_t>(rows * stride)), dense, d(n / 32, -1.0f);
    for (float& value : x)
      value = random.normal();
    for (std::int64_t row = 0; row < rows; ++row) {
      dense.insert(dense.end(), x.begin() + row * stride, x.begin() + row * stride + columns);
    }
    std::vector<std::int8_t> q(static_cast<std::size_t>(n), 99);
    QuantizeQ8Args args;
    args.q8.x_dtype = MEMRA_F32;
    args.q8.x = x.data();
    args.q8.x_stride = stride;
    args.q8.rows = rows;
    args.q8.columns = columns;
    args.q8.q = q.data();
    args.q8.d = d.data();
    quantize_q8(args, best_kernels(), pool_of(3));
    const ref::QuantizedRows expected = ref::quantize_q8(dense, rows, columns);
    EXPECT_EQ(q, expected.q);
    EXPECT_EQ(d, expected.d);
  }
}

TEST(CpuRows, LaneMajorIsOnePermutationOfQ) {
  std::vector<std::int8_t> q(3 * 192), permuted(q.size(), 99), quantized(q.size(), 99);
  ref::Random random(1);
  std::vector<float> x(q.size()), d(q.size() / 32);
  for (float& value : x)
    value = random.normal();
  QuantizeQ8Args args;
  args.q8.x_dtype = MEMRA_F32;
  args.q8.x = x.data();
  args.q8.rows = 3;
  args.q8.columns = args.q8.x_stride = 192;
  args.q8.q = q.data();
  args.q8.d = d.data();
  quantize_q8(args, best_kernels(), pool_of(2));
  args.lane_major = true;
  args.q8.q = quantized.data();
  quantize_q8(args, best_kernels(), pool_of(2));
  q8_to_lane_major(q.data(), 3, 192, permuted.data(), pool_of(2));
  EXPECT_EQ(permuted, quantized);
  EXPECT_NE(permuted, q);
}

}  // namespace
}  // namespace memra::cpu
