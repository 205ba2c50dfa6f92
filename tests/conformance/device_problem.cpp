#include "conformance/device_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "conformance/banks.h"

namespace memra::test {

using reference::BitReport;
using reference::Format;
using reference::MoeProblem;
using reference::MoeResult;
using reference::Plane;
using reference::Slab;

namespace {

constexpr Plane kPlanes[] = {reference::kGate, reference::kUp, reference::kDown};
// The calls add to it.
constexpr std::uint64_t kCounterBefore = 5;
// x and y are aligned to what the ABI asks for and no more.
constexpr std::int64_t kActivationSkew = 16;

std::int64_t slab_alignment(Format format) {
  return format == Format::kV1 ? 4 : 16;
}

}  // namespace

std::string variant_name(std::uint32_t variant) {
  constexpr std::pair<std::uint32_t, const char*> kNames[] = {
      {MEMRA_ROWS_PLAIN, "PLAIN"}, {MEMRA_ROWS_ILP, "ILP"},
      {MEMRA_ROWS_ORD, "ORD"},     {MEMRA_ROWS_DEDUP_ORDER, "DEDUP_ORDER"},
      {MEMRA_ROWS_PACK, "PACK"},   {MEMRA_ROWS_LANE_MAJOR, "LANE_MAJOR"}};
  std::string result;
  for (const auto& [bit, name] : kNames) {
    if ((variant & bit) == 0) continue;
    if (!result.empty()) result += '|';
    result += name;
  }
  return result.empty() ? "AUTO" : result;
}

DeviceProblem::DeviceProblem(Engine& engine, const MoeProblem& problem, Placement placement)
    : engine_(engine), problem_(problem), placement_(placement) {
  for (const Plane plane : kPlanes)
    upload_bank(plane);
  create_layer();
  upload_tables();
  x_ = Input(engine, problem.x, kActivationSkew);
  ids_ = Input(engine, problem.ids);
  weights_ = Input(engine, problem.weights);
  y_ = Buffer(engine, problem.y_initial, kActivationSkew);
  counter_ = Buffer(engine, std::vector<std::uint64_t>{kCounterBefore});
  std::uint64_t bytes = 0;
  require(memra_moe_workspace_size(layer_, problem.tokens, &bytes));
  workspace_ = Buffer(engine, static_cast<std::int64_t>(bytes));
}

DeviceProblem::~DeviceProblem() {
  memra_moe_layer_destroy(layer_);
}

void DeviceProblem::upload_bank(Plane plane) {
  const reference::Bank& source = problem_.banks[plane];
  Bank& bank = banks_[plane];
  const std::int64_t skew = source.format == Format::kV1 ? placement_.v1_skew : 0;
  if (placement_.slabs == Slabs::kPacked || placement_.slabs == Slabs::kStrided) {
    const std::int64_t gap =
        placement_.slabs == Slabs::kStrided ? slab_alignment(source.format) : 0;
    bank.stride = reference::slab_bytes(source.rows, source.cols) + gap;
    bank.inputs.emplace_back(engine_, bank_bytes(source.slabs, bank.stride), skew);
    for (std::int64_t e = 0; e < problem_.n_local; ++e)
      bank.slabs.push_back(bank.inputs[0].data() + e * bank.stride);
  } else {
    for (const Slab& slab : source.slabs) {
      bank.inputs.emplace_back(engine_, slab.bytes, skew);
      bank.slabs.push_back(slab.bytes.empty() ? nullptr : bank.inputs.back().data());
    }
  }
  if (!source.bias.empty()) bank.bias = Input(engine_, source.bias);
}

void DeviceProblem::create_layer() {
  memra_bank banks[3];
  std::vector<const void*> pointers[3];
  for (const Plane plane : kPlanes) {
    const reference::Bank& source = problem_.banks[plane];
    banks[plane] = MEMRA_BANK_INIT;
    banks[plane].format = abi(source.format);
    banks[plane].expert_scales = source.scales.data();
    if (!source.bias.empty()) banks[plane].bias = bias(plane, 0);
    switch (placement_.slabs) {
      case Slabs::kPacked:
        banks[plane].base = slab(plane, 0);
        break;
      case Slabs::kStrided:
        banks[plane].base = slab(plane, 0);
        banks[plane].expert_stride = static_cast<std::uint64_t>(banks_[plane].stride);
        break;
      case Slabs::kPointers:
        pointers[plane].assign(banks_[plane].slabs.begin(), banks_[plane].slabs.end());
        banks[plane].ptrs = pointers[plane].data();
        break;
      case Slabs::kTables:
        break;
    }
  }
  memra_moe_layer_desc desc = MEMRA_MOE_LAYER_DESC_INIT;
  desc.activation = abi(problem_.activation.kind);
  desc.hidden_size = problem_.hidden;
  desc.intermediate_size = problem_.intermediate;
  desc.n_experts = problem_.n_experts;
  desc.top_k = problem_.top_k;
  desc.local_expert_offset = problem_.local_offset;
  desc.n_local_experts = problem_.n_local;
  desc.max_tokens = problem_.tokens;
  desc.limit = problem_.activation.limit;
  desc.alpha = problem_.activation.alpha;
  desc.gate = &banks[0];
  desc.up = &banks[1];
  desc.down = &banks[2];
  require(memra_moe_layer_create(engine_.get(), &desc, &layer_));
}

void DeviceProblem::upload_tables() {
  const bool own = placement_.slabs == Slabs::kTables;
  if (!problem_.table_slabs.empty()) {
    std::vector<const void*> ptrs;
    for (const Slab* slab : problem_.table_slabs) {
      if (slab != nullptr && !table_slabs_.contains(slab)) {
        table_slabs_.emplace(slab, Input(engine_, slab->bytes));
      }
      ptrs.push_back(slab == nullptr ? nullptr : table_slabs_.at(slab).data());
    }
    table_ptrs_ = Input(engine_, ptrs);
  } else if (own) {
    table_ptrs_ = Input(engine_, slab_table());
  }
  if (!problem_.table_scales.empty()) {
    table_scales_ = Input(engine_, problem_.table_scales);
  } else if (own) {
    table_scales_ = Input(engine_, scale_table());
  }
}

std::vector<const void*> DeviceProblem::slab_table() const {
  std::vector<const void*> table;
  for (const Bank& bank : banks_)
    table.insert(table.end(), bank.slabs.begin(), bank.slabs.end());
  return table;
}

std::vector<float> DeviceProblem::scale_table() const {
  std::vector<float> table;
  for (const reference::Bank& bank : problem_.banks)
    table.insert(table.end(), bank.scales.begin(), bank.scales.end());
  return table;
}

const float* DeviceProblem::bias(Plane plane, std::int64_t local) const {
  const Input& input = banks_[plane].bias;
  return input.contents().empty() ? nullptr
                                  : input.buffer().as<float>(local * problem_.banks[plane].rows);
}

std::vector<std::uint32_t> DeviceProblem::variants() const {
  memra_moe_layer_properties properties;
  require(memra_moe_layer_properties_init(&properties, sizeof properties));
  require(memra_moe_layer_info(layer_, &properties));
  std::vector<std::uint32_t> result = {MEMRA_ROWS_AUTO};
  result.insert(result.end(), properties.rows_variants,
                properties.rows_variants + properties.n_rows_variants);
  return result;
}

std::int64_t DeviceProblem::tokens_of(const Call& call) const {
  return call.tokens < 0 ? problem_.tokens - call.first : call.tokens;
}

memra_moe_args DeviceProblem::args(const Call& call) const {
  const std::int64_t x_bytes = reference::dtype_bytes(problem_.x_dtype);
  const std::int64_t y_bytes = reference::dtype_bytes(problem_.y_dtype);
  memra_moe_args args = MEMRA_MOE_ARGS_INIT;
  if (problem_.accumulate) args.flags |= MEMRA_FLAG_ACCUMULATE;
  if (call.inputs_stable) args.flags |= MEMRA_FLAG_INPUTS_STABLE;
  args.tokens = tokens_of(call);
  args.x = x_.data() + call.first * problem_.x_stride * x_bytes;
  args.y = y_.data() + call.first * problem_.y_stride * y_bytes;
  args.x_dtype = abi(problem_.x_dtype);
  args.y_dtype = abi(problem_.y_dtype);
  args.x_stride = problem_.x_stride == problem_.hidden ? 0 : problem_.x_stride;
  args.y_stride = problem_.y_stride == problem_.hidden ? 0 : problem_.y_stride;
  args.topk_ids = ids_.buffer().as<std::int32_t>(call.first * problem_.top_k);
  args.topk_weights = weights_.buffer().as<float>(call.first * problem_.top_k);
  args.expert_ptrs = table_ptrs_.buffer().as<const void*>();
  args.expert_scales = table_scales_.buffer().as<float>();
  args.invalid_ids = counter_.as<std::uint64_t>();
  args.workspace = workspace_.data();
  const auto workspace_size = call.path == MEMRA_PATH_ROWS      ? memra_moe_rows_workspace_size
                              : call.path == MEMRA_PATH_GROUPED ? memra_moe_grouped_workspace_size
                                                                : memra_moe_workspace_size;
  require(workspace_size(layer_, args.tokens, &args.workspace_bytes));
  args.variant = call.variant;
  return args;
}

memra_status DeviceProblem::enqueue(const Call& call, memra_stream stream) const {
  const memra_moe_args call_args = args(call);
  if (call.path == MEMRA_PATH_ROWS) return memra_moe_rows(layer_, &call_args, stream);
  if (call.path == MEMRA_PATH_GROUPED) return memra_moe_grouped(layer_, &call_args, stream);
  return memra_moe(layer_, &call_args, stream);
}

void DeviceProblem::reset() const {
  workspace_.fill(0xFF);
  y_.upload(problem_.y_initial);
  counter_.upload_values(std::vector<std::uint64_t>{kCounterBefore});
}

void DeviceProblem::run(const Call& call) const {
  reset();
  require(enqueue(call, engine_.stream()));
  engine_.synchronize();
}

void DeviceProblem::run_recorded(const Call& call) const {
  const Graph graph(engine_, engine_.stream(), [&] { return enqueue(call, engine_.stream()); });
  reset();
  graph.launch(engine_.stream());
  engine_.synchronize();
}

::testing::AssertionResult DeviceProblem::check_y(const Call& call,
                                                  const MoeResult& expected) const {
  const std::int64_t row_bytes = problem_.y_stride * reference::dtype_bytes(problem_.y_dtype);
  const std::int64_t tokens = tokens_of(call);
  Bytes whole = problem_.y_initial;
  if (tokens > 0) {
    const std::int64_t begin = call.first * row_bytes;
    const std::int64_t end =
        begin + reference::strided_elements(tokens, problem_.hidden, problem_.y_stride) *
                    reference::dtype_bytes(problem_.y_dtype);
    std::copy(expected.y.begin() + begin, expected.y.begin() + end, whole.begin() + begin);
  }
  const Bytes actual = y();
  if (actual == whole) return ::testing::AssertionSuccess();
  const BitReport report = reference::compare_bits(whole, actual, problem_.y_dtype, problem_.tokens,
                                                   problem_.hidden, problem_.y_stride);
  return ::testing::AssertionFailure()
         << "y: " << (report.same() ? "bytes between its rows were written" : report.text());
}

std::uint64_t DeviceProblem::expected_count(const Call& call) const {
  std::vector<std::int32_t> ids(ids_.contents().size() / sizeof(std::int32_t));
  std::memcpy(ids.data(), ids_.contents().data(), ids_.contents().size());
  const auto begin = ids.begin() + call.first * problem_.top_k;
  const auto bad = std::count_if(begin, begin + tokens_of(call) * problem_.top_k,
                                 [&](auto id) { return id < -1 || id >= problem_.n_experts; });
  return static_cast<std::uint64_t>(bad);
}

::testing::AssertionResult DeviceProblem::check(const Call& call, const MoeResult& expected) const {
  if (auto result = check_y(call, expected); !result) return result;
  return check_surroundings(call);
}

::testing::AssertionResult DeviceProblem::check_close(const Call& call,
                                                      const std::vector<double>& exact) const {
  const std::int64_t hidden = problem_.hidden;
  const Bytes bytes = y();
  const std::vector<float> actual =
      reference::widen(bytes, problem_.y_dtype, problem_.tokens, hidden, problem_.y_stride);
  // What the type's own rounding adds to the path's 1e-3.
  const double limit = problem_.y_dtype == reference::DType::kF32   ? 1e-3
                       : problem_.y_dtype == reference::DType::kF16 ? 1.1e-3
                                                                    : 2.5e-3;
  Bytes expected_bytes = problem_.y_initial;
  std::vector<double> finite_expected;
  std::vector<float> finite_actual;
  for (std::int64_t token = call.first; token < call.first + tokens_of(call); ++token) {
    const bool is_nan = std::isnan(exact[static_cast<std::size_t>(token * hidden)]);
    for (std::int64_t i = token * hidden; i < (token + 1) * hidden; ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (std::isnan(actual[index]) != is_nan) {
        return ::testing::AssertionFailure()
               << "y: token " << token << ", column " << i - token * hidden << " is "
               << actual[index] << ", expected " << exact[index];
      }
      reference::store(expected_bytes, problem_.y_dtype, token * problem_.y_stride + i % hidden,
                       actual[index]);
      if (is_nan) continue;
      finite_expected.push_back(exact[index]);
      finite_actual.push_back(actual[index]);
    }
  }
  // Beyond the call's rows, and between them, y is as it was; a NaN is the canonical one.
  if (bytes != expected_bytes) {
    return ::testing::AssertionFailure() << "y was written outside its rows, or NaNs are not alike";
  }
  const reference::Closeness close = reference::closeness(finite_expected, finite_actual, hidden);
  if (!(close.relative_l2 <= limit)) return ::testing::AssertionFailure() << "y: " << close.text();
  return check_surroundings(call);
}

::testing::AssertionResult DeviceProblem::check_surroundings(const Call& call) const {
  if (const std::uint64_t counted = counted_since_reset(); counted != expected_count(call)) {
    return ::testing::AssertionFailure()
           << counted << " added to invalid_ids, expected " << expected_count(call);
  }
  const auto asked = static_cast<std::int64_t>(args(call).workspace_bytes);
  const Bytes rest =
      workspace_.download(asked, std::min(Buffer::kGuard, workspace_.bytes() - asked));
  if (rest != Bytes(rest.size(), 0xFF)) {
    return ::testing::AssertionFailure() << "the workspace was written beyond workspace_bytes";
  }
  for (const Buffer* buffer : {&y_, &workspace_, &counter_}) {
    if (auto result = buffer->guards_intact(); !result) return result;
  }
  return ::testing::AssertionSuccess();
}

std::uint64_t DeviceProblem::counted_since_reset() const {
  return counter_.download_values<std::uint64_t>()[0] - kCounterBefore;
}

::testing::AssertionResult DeviceProblem::untouched() const {
  if (y() != problem_.y_initial) return ::testing::AssertionFailure() << "y was written";
  if (counted_since_reset() != 0) {
    return ::testing::AssertionFailure() << "invalid_ids was written";
  }
  const Bytes workspace = workspace_.download();
  if (workspace != Bytes(workspace.size(), 0xFF)) {
    return ::testing::AssertionFailure() << "the workspace was written";
  }
  return inputs_intact();
}

::testing::AssertionResult DeviceProblem::inputs_intact() const {
  std::vector<std::pair<const Input*, const char*>> inputs = {{&x_, "x"},
                                                              {&ids_, "topk_ids"},
                                                              {&weights_, "topk_weights"},
                                                              {&table_ptrs_, "expert_ptrs"},
                                                              {&table_scales_, "expert_scales"}};
  for (const Bank& bank : banks_) {
    for (const Input& input : bank.inputs)
      inputs.emplace_back(&input, "slabs");
    inputs.emplace_back(&bank.bias, "bias");
  }
  for (const auto& [slab, input] : table_slabs_)
    inputs.emplace_back(&input, "slabs");
  for (const auto& [input, name] : inputs) {
    if (auto result = input->intact(name); !result) return result;
  }
  return ::testing::AssertionSuccess();
}

void DeviceProblem::replace_tokens(const MoeProblem& problem) {
  x_.replace(problem.x);
  ids_.replace(bytes_of(problem.ids));
  weights_.replace(bytes_of(problem.weights));
}

void DeviceProblem::replace_slabs(const MoeProblem& problem) {
  for (const Plane plane : kPlanes) {
    Bank& bank = banks_[plane];
    const reference::Bank& source = problem.banks[plane];
    if (bank.stride != 0) {
      bank.inputs[0].replace(bank_bytes(source.slabs, bank.stride));
      continue;
    }
    for (std::size_t e = 0; e < source.slabs.size(); ++e)
      bank.inputs[e].replace(source.slabs[e].bytes);
  }
}

void DeviceProblem::replace_tables(const std::vector<const void*>& ptrs,
                                   const std::vector<float>& scales) {
  table_ptrs_.replace(bytes_of(ptrs));
  table_scales_.replace(bytes_of(scales));
}

std::vector<float> DeviceProblem::y_row(std::int64_t token) const {
  const std::vector<float> all =
      reference::widen(y(), problem_.y_dtype, problem_.tokens, problem_.hidden, problem_.y_stride);
  const auto begin = all.begin() + token * problem_.hidden;
  return {begin, begin + problem_.hidden};
}

}  // namespace memra::test
